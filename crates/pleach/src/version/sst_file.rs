//! SST files: shared by the versions that refer to them, and removed after the last reference is dropped.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pleach_env::FileId;
use pleach_env::sync::Mutex;
use pleach_table::{Filter, IndexKind, Sst, SstSummary, false_positive_rate, probes_for};

use crate::filter_policy::FilterUse;
use crate::trash::{Obsolete, Trash};

/// How often training while reading is tried if it takes too long. Arbitrary.
const TRAININGS_MAX: u8 = 3;

/// An SST that some version refers to. Shared by versions, and through them by readers and snapshots.
pub(crate) struct SstFile {
    pub(crate) id: FileId,
    pub(crate) summary: SstSummary,
    /// The reader; `None` before the file is open. Leaf lock.
    sst: Mutex<Option<Arc<Sst>>>,
    /// How often training while reading may still be tried. Relaxed: if it is late, a training is repeated, or comes later.
    trainings_left: AtomicU8,
    filter: Mutex<KeptFilter>,
    /// See [`SstFile::filter_error_rate`].
    filter_error_rate: OnceLock<f64>,
    /// See [`FilterUse::negative_lookups`]. Halved now and then, so that the present counts more than the past.
    negative_lookups: AtomicU64,
    /// Set once the durable version no longer names the file.
    obsolete: AtomicBool,
    trash: Arc<Trash>,
}

/// A file's filter in memory.
#[derive(Default)]
struct KeptFilter {
    /// `None` if there is no memory for it, or the file has none.
    filter: Option<Arc<Filter>>,
    /// See [`FilterUse::is_new`].
    is_new: bool,
    /// Whether a reload has failed; it is not tried again.
    is_lost: bool,
}

impl SstFile {
    /// A file that an edit names and that is not open yet.
    pub(crate) fn new(id: FileId, summary: SstSummary, trash: Arc<Trash>) -> Self {
        Self {
            id,
            summary,
            sst: Mutex::default(),
            trainings_left: AtomicU8::new(TRAININGS_MAX),
            filter: Mutex::default(),
            filter_error_rate: OnceLock::new(),
            negative_lookups: AtomicU64::new(0),
            obsolete: AtomicBool::new(false),
            trash,
        }
    }

    /// Gives the file its reader, once. `keeps_filter`: whether its filter stays in memory.
    pub(crate) fn opened(&self, mut sst: Sst, keeps_filter: bool) {
        let filter = sst.take_filter().filter(|_| keeps_filter).map(Arc::new);
        *self.filter.lock() = KeptFilter { is_new: true, is_lost: false, filter };
        self.sst.lock().get_or_insert_with(|| Arc::new(sst));
    }

    /// Replaces the reader by `sst`, which [`Sst::learn_index`] made of it. Versions that hold the old one keep using it.
    pub(crate) fn replace_sst(&self, sst: Sst) {
        *self.sst.lock() = Some(Arc::new(sst));
    }

    /// The filter, if it is in memory. Lookups do not call this: each version holds its files' filters.
    pub(crate) fn filter(&self) -> Option<Arc<Filter>> {
        self.filter.lock().filter.clone()
    }

    /// Whether `filter`, or its absence, is the present state.
    fn has_filter(&self, filter: Option<&Arc<Filter>>) -> bool {
        self.filter.lock().filter.as_ref().map(Arc::as_ptr) == filter.map(Arc::as_ptr)
    }

    /// Bytes of the filter in memory, and whether it is missing though the file has one.
    pub(crate) fn filter_memory(&self) -> (u64, bool) {
        let kept = self.filter.lock();
        let bytes = kept.filter.as_ref().map_or(0, |filter| filter.memory() as u64);
        (bytes, bytes == 0 && self.summary.filter_bits > 0)
    }

    /// The use and price of the filter. A filter that the file lacks, or that cannot be read, has no price and counts as kept.
    pub(crate) fn filter_use(&self) -> FilterUse {
        let kept = self.filter.lock();
        let exists = self.summary.filter_bits > 0 && !kept.is_lost;
        FilterUse {
            bytes: if exists { self.filter_bytes() } else { 0 },
            negative_lookups: self.negative_lookups.load(Ordering::Relaxed),
            is_kept: kept.filter.is_some() || !exists,
            is_new: kept.is_new,
        }
    }

    /// About the filter's false-positive rate.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an estimate")]
    pub(crate) fn filter_error_rate(&self) -> f64 {
        *self.filter_error_rate.get_or_init(|| {
            let bits_per_key = self.summary.filter_bits as f64 / self.summary.entries.max(1) as f64;
            // Below one bit per key the formula is slow, and nearly every probe passes.
            let bits_per_key = bits_per_key.min(64.0) as f32;
            if bits_per_key < 1.0 { 1.0 } else { false_positive_rate(bits_per_key, probes_for(bits_per_key)) }
        })
    }

    /// Bytes that the filter takes in memory.
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.summary.filter_bits / 8
    }

    /// Bytes of memory that index and frame words take. Before the file is open this is an estimate: the index as it is
    /// stored.
    pub(crate) fn index_bytes(&self) -> u64 {
        let SstSummary { tail_len, filter_bits, data_blocks, .. } = self.summary;
        let index = match &*self.sst.lock() {
            Some(sst) => sst.index_memory() as u64,
            None => u64::from(tail_len).saturating_sub(filter_bits / 8),
        };
        index + 4 * u64::from(data_blocks)
    }

    /// Evicts the filter. Versions that hold it keep using it.
    pub(crate) fn evict_filter(&self) {
        self.filter.lock().filter = None;
    }

    /// Reads the filter into memory. If that fails the file has no filter: answers stay right, and `Db::verify` reports the
    /// damage.
    pub(crate) fn load_filter(&self) {
        let loaded = self.sst().load_filter();
        let mut kept = self.filter.lock();
        match loaded {
            Ok(Some(filter)) => kept.filter = Some(Arc::new(filter)),
            // A hostile summary may give a size for a filter that the file does not have.
            Ok(None) | Err(_) => kept.is_lost = true,
        }
    }

    /// Counts a sampled lookup that did not find its key in the file.
    pub(crate) fn note_negative_lookup(&self) {
        self.negative_lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// Halves the count of negative lookups.
    pub(crate) fn decay_negative_lookups(&self) {
        let counted = self.negative_lookups.load(Ordering::Relaxed);
        self.negative_lookups.fetch_sub(counted.div_ceil(2), Ordering::Relaxed);
        self.filter.lock().is_new = false;
    }

    /// The reader, if the file has been opened. Lookups do not call this: each version holds its files' readers.
    pub(crate) fn opened_sst(&self) -> Option<Arc<Sst>> {
        self.sst.lock().clone()
    }

    /// The reader. Requires: the file has been opened; recovery and executors open files before a version shows them.
    pub(crate) fn sst(&self) -> Arc<Sst> {
        self.opened_sst().expect("files are opened before a version shows them")
    }

    /// Whether it has separators and training while reading is still to be tried.
    pub(crate) fn is_trainable(&self) -> bool {
        self.trainings_left.load(Ordering::Relaxed) > 0
            && self
                .opened_sst()
                .is_some_and(|sst| sst.index_kind() == IndexKind::Separators && sst.blocks() > 1)
    }

    /// Notes that training while reading was tried. It is tried again only if it `took_too_long`.
    pub(crate) fn note_training(&self, took_too_long: bool) {
        let left = self.trainings_left.load(Ordering::Relaxed);
        self.trainings_left.store(if took_too_long { left.saturating_sub(1) } else { 0 }, Ordering::Relaxed);
    }

    /// Whether `sst` is the present reader.
    fn has_sst(&self, sst: Option<&Arc<Sst>>) -> bool {
        self.sst.lock().as_ref().map(Arc::as_ptr) == sst.map(Arc::as_ptr)
    }

    /// Whether filter and reader are the present ones.
    pub(crate) fn is_current(&self, filter: Option<&Arc<Filter>>, sst: Option<&Arc<Sst>>) -> bool {
        self.has_filter(filter) && self.has_sst(sst)
    }

    /// Marks the file as obsolete: it is removed when its last reference is dropped.
    ///
    /// Requires: the edit that removed the last reference is durable.
    pub(crate) fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.trash.pin(self.summary.file_len);
        }
    }
}

impl Drop for SstFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.trash.put(Obsolete::Sst(self.id), self.summary.file_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pleach_env::{Env, SimEnv};
    use pleach_table::{Codec, FrameCache, SstBuilder, SstOptions, ValueKind};

    use super::*;

    #[test]
    fn a_filter_that_is_not_there_is_loaded_once() {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let (path, id) = (Path::new("/1.sst"), FileId(1));
        let options = SstOptions { codec: Codec::None, filter_bits_per_key: 0.0, ..SstOptions::default() };
        let mut builder = SstBuilder::create(&env, path, id, options).unwrap();
        builder.add(b"key", ValueKind::Put, b"value", 0).unwrap();
        let summary = SstSummary { filter_bits: 512, ..builder.finish().unwrap() };
        let sst = Sst::open(&env, path, id, None, FrameCache::new(1 << 20), false).unwrap();
        let file = SstFile::new(id, summary, Arc::default());
        file.opened(sst, true);
        assert!(!file.filter_use().is_kept);
        file.load_filter();
        assert!(file.filter_use().is_kept, "the file has none");
    }

    #[test]
    fn an_open_index_counts_as_it_is() {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let (path, id) = (Path::new("/1.sst"), FileId(1));
        let mut builder = SstBuilder::create(&env, path, id, SstOptions::default()).unwrap();
        for i in 0..2000u32 {
            builder.add(format!("{i:08}").as_bytes(), ValueKind::Put, &[0; 100], u64::from(i)).unwrap();
        }
        let summary = builder.finish().unwrap();
        let sst = Sst::open(&env, path, id, Some(&summary), FrameCache::new(1 << 20), false).unwrap();
        let memory = (sst.memory() - sst.filter_memory()) as u64;
        let file = SstFile::new(id, summary, Arc::default());
        assert!(file.index_bytes() < memory, "the stored index is smaller");
        file.opened(sst, true);
        assert_eq!(file.index_bytes(), memory);
    }
}
