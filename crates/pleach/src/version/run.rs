//! A run: an ordered list of SSTs with disjoint key ranges, in which a user key stands at most once.
//!
//! A section, a partition's slice of a shared flush file, is a run of one file whose keys carry the partition number.
//! Entries below the clip are not read: a compaction has moved them to its output. Of a file a run may have some parts only
//! ([`super::parts`]); each is an element of its list.
//!
//! # Invariants
//! 1. *Order*: files ascend and do not overlap. Checked in [`Run::check_invariants`].
//! 2. *One version per run*: a user key stands once. Follows from 1 and from the builder of each file.
//!
//! # Origin
//! `SifrDB`'s logical tree (section 3.1). Departure: the clip replaces the paper's redirection map.

use std::sync::Arc;

use pleach_index::{Index, IndexBuilder};
use pleach_log::SeqNo;
use pleach_table::{Filter, Sst};

use super::edit::{RunFileMeta, RunId, RunKind, RunMeta};
use super::sst_file::SstFile;

/// A file of a run, or a part of it.
#[derive(Clone)]
pub(crate) struct RunFile {
    pub(crate) file: Arc<SstFile>,
    pub(crate) meta: RunFileMeta,
    /// The file's filter, if it was in memory when this version was made.
    filter: Option<Arc<Filter>>,
    /// The file's reader when this version was made. `None` only while a store is being opened.
    sst: Option<Arc<Sst>>,
}

impl RunFile {
    pub(crate) fn new(file: Arc<SstFile>, meta: RunFileMeta) -> Self {
        let (filter, sst) = (file.filter(), file.opened_sst());
        Self { file, meta, filter, sst }
    }

    /// The reader of the file.
    ///
    /// Requires: the file was open when this version was made.
    #[inline]
    pub(crate) fn sst(&self) -> &Arc<Sst> {
        self.sst.as_ref().expect("files are opened before a version shows them")
    }

    /// Prefetches the cache line that [`RunFile::may_contain`] will read.
    #[inline]
    pub(crate) fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// Whether a key with this hash can be in the file; true if the filter is not in memory.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// Whether the file's filter was in memory when this version was made.
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the file's filter in memory and its reader are still those of this version.
    fn is_current(&self) -> bool {
        self.file.is_current(self.filter.as_ref(), self.sst.as_ref())
    }
}

/// Sums over a run's files, computed once. Entries below the clip count.
#[derive(Clone)]
pub(crate) struct Totals {
    pub(crate) entries: u64,
    /// Bytes of the entries.
    pub(crate) bytes: u64,
    /// Bytes of the largest file's entries.
    pub(crate) file_bytes_max: u64,
    /// About how much garbage the run makes: its tombstones, and the entries of older runs that its entries shadow.
    pub(crate) garbage: u64,
    /// About how many entries of older runs its entries shadow.
    pub(crate) overwrites: u64,
    /// Bytes of the separated values that its entries refer to, above the clip.
    pub(crate) value_bytes: u64,
    /// Seconds since 1970 at which the oldest tombstone was flushed; `None` without tombstones.
    pub(crate) tombstones_since: Option<u64>,
}

impl Totals {
    fn of(files: &[RunFile]) -> Self {
        let metas = || files.iter().map(|file| &file.meta);
        let sum = |numbers: &mut dyn Iterator<Item = u64>| numbers.fold(0, u64::saturating_add);
        Self {
            bytes: sum(&mut metas().map(|m| m.bytes)),
            file_bytes_max: metas().map(|m| m.bytes).max().unwrap_or(0),
            entries: sum(&mut metas().map(|m| m.entries)),
            overwrites: sum(&mut metas().map(|m| m.overwrites)),
            value_bytes: sum(&mut metas().map(|m| m.values.bytes())),
            garbage: sum(&mut metas().flat_map(|m| [m.tombstones, m.overwrites])),
            tombstones_since: metas().filter(|m| m.tombstones > 0).map(|m| m.tombstones_since).min(),
        }
    }
}

/// The run. Immutable, shared by versions.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) stage: u8,
    pub(crate) kind: RunKind,
    pub(crate) clip: Option<Box<[u8]>>,
    /// No write in it has a higher sequence number.
    pub(crate) newest_seq: SeqNo,
    pub(crate) files: Vec<RunFile>,
    pub(crate) totals: Totals,
    /// Which file can hold a key. `None` if the index would be too long; then the files are searched.
    locator: Option<Index>,
}

impl Run {
    /// Requires: [`Run::check_files`] finds nothing wrong.
    pub(crate) fn new(meta: &RunMeta, files: Vec<RunFile>) -> Self {
        let RunMeta { id, stage, kind, ref clip, newest_seq, .. } = *meta;
        let (totals, locator) = (Totals::of(&files), locator(&files, LOCATOR_LEN_MAX));
        Self { id, stage, kind, clip: clip.clone(), newest_seq, files, totals, locator }
    }

    /// The only file that can hold `user_key`, by clip and key ranges.
    #[inline]
    pub(crate) fn file_for(&self, user_key: &[u8]) -> Option<&RunFile> {
        if self.clip.as_deref().is_some_and(|clip| user_key < clip) || self.files.is_empty() {
            return None;
        }
        let file =
            if let [only] = &self.files[..] { only } else { &self.files[self.last_file_from(user_key)] };
        (&*file.meta.smallest <= user_key && user_key <= &*file.meta.largest).then_some(file)
    }

    /// Index of the last file that does not begin above `user_key`, or 0. If the key lies between two files, of either.
    ///
    /// Requires: there are files.
    #[inline]
    fn last_file_from(&self, user_key: &[u8]) -> usize {
        match &self.locator {
            Some(locator) => locator.find(user_key) as usize,
            None => self.search_files(user_key),
        }
    }

    #[cold]
    fn search_files(&self, user_key: &[u8]) -> usize {
        self.files.partition_point(|file| &*file.meta.smallest <= user_key).saturating_sub(1)
    }

    /// Whether the run may hold `user_key`: by clip, key range and filter. A no is certain.
    pub(crate) fn may_hold(&self, user_key: &[u8], hash: u64) -> bool {
        self.file_for(user_key).is_some_and(|file| file.may_contain(hash))
    }

    /// The filter of the file that can hold `user_key`, and its false-positive rate. `None` if no file has the key in its
    /// range, or the filter is not in memory.
    pub(crate) fn filter_for(&self, user_key: &[u8]) -> Option<(&Filter, f64)> {
        let file = self.file_for(user_key)?;
        Some((&**file.filter.as_ref()?, file.file.filter_error_rate()))
    }

    /// Index of the first file whose largest key is `user_key` or above.
    pub(crate) fn first_file_reaching(&self, user_key: &[u8]) -> usize {
        let Some(last) = self.files.len().checked_sub(1) else { return 0 };
        let file = if last == 0 { 0 } else { self.last_file_from(user_key) };
        file + usize::from(&*self.files[file].meta.largest < user_key)
    }

    /// The manifest's record of it.
    pub(crate) fn meta(&self) -> RunMeta {
        RunMeta {
            id: self.id,
            stage: self.stage,
            kind: self.kind,
            clip: self.clip.clone(),
            newest_seq: self.newest_seq,
            files: self.files.iter().map(|f| f.meta.clone()).collect(),
        }
    }

    /// The run with another clip.
    pub(crate) fn with_clip(&self, clip: Box<[u8]>) -> Self {
        Self { clip: Some(clip), ..self.clone() }
    }

    /// The run with other files.
    pub(crate) fn with_files(&self, files: Vec<RunFile>) -> Self {
        let (totals, locator) = (Totals::of(&files), locator(&files, LOCATOR_LEN_MAX));
        Self { clip: self.clip.clone(), files, totals, locator, ..*self }
    }

    /// The run with `newest_seq` raised.
    pub(super) fn with_newest(mut self, newest_seq: SeqNo) -> Self {
        self.newest_seq = self.newest_seq.max(newest_seq);
        self
    }

    /// The run with its files' filters and readers as they are now; `None` when nothing has changed.
    pub(super) fn refreshed(&self) -> Option<Self> {
        if self.files.iter().all(RunFile::is_current) {
            return None;
        }
        let files = self.files.iter().map(|f| RunFile::new(Arc::clone(&f.file), f.meta.clone()));
        Some(self.with_files(files.collect()))
    }

    /// An error message when an invariant does not hold.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        Self::check_files(self.id, self.kind, &self.files)
    }

    /// An error message when `files` cannot be those of a run: what comes from disk is checked before it becomes one.
    pub(super) fn check_files(id: RunId, kind: RunKind, files: &[RunFile]) -> Result<(), String> {
        let id = id.0;
        if let Some(file) = files.iter().find(|f| f.meta.smallest > f.meta.largest) {
            return Err(format!("run {id}: file {} ends before it begins", file.file.id));
        }
        if let Some(pair) = files.windows(2).find(|pair| pair[0].meta.largest >= pair[1].meta.smallest) {
            return Err(format!("run {id}: files {} and {} overlap", pair[0].file.id, pair[1].file.id));
        }
        if kind == RunKind::Section && files.iter().any(|part| part.file.id != files[0].file.id) {
            return Err(format!("run {id}: a section lies in one file"));
        }
        Ok(())
    }
}

/// Longest locator, by an upper bound of its length (arbitrary). An index holds less than 256 MiB of separators. A locator has
/// more only if many files begin with a long prefix of the largest key of the file before.
const LOCATOR_LEN_MAX: usize = 64 << 20;

/// An index by which the file of a key is found; `None` if it would be longer than `len_max`.
fn locator(files: &[RunFile], len_max: usize) -> Option<Index> {
    let mut locator = IndexBuilder::new();
    for pair in files.windows(2) {
        locator.boundary(&pair[0].meta.largest, &pair[1].meta.smallest);
        if locator.encoded_len_max() > len_max {
            return None;
        }
    }
    Some(locator.finish())
}

#[cfg(test)]
mod tests {
    use super::locator;
    use crate::tests::trees::tree;

    #[test]
    fn files_are_found_without_a_locator() {
        let tree = tree("1:1b1k10-19+b1k30-39+b1k50-59+b1k70-79");
        let with = &tree.runs[0];
        assert!(locator(&with.files, 30).is_some(), "three separators of one byte");
        assert!(locator(&with.files, 10).is_none());
        let mut without = (**with).clone();
        without.locator = locator(&with.files, 10);
        let found = |key: &str| without.file_for(key.as_bytes()).map(|file| file.meta.file.0);
        assert_eq!(["10", "39", "55", "79"].map(found), [Some(100), Some(101), Some(102), Some(103)]);
        for key in (0..100).map(|key| format!("{key:02}")).chain([String::new(), "100".into()]) {
            let by = |run: &super::Run| {
                let file = run.file_for(key.as_bytes()).map(|file| file.meta.file);
                (file, run.first_file_reaching(key.as_bytes()))
            };
            assert_eq!(by(&without), by(with), "{key:?}");
        }
    }
}
