//! An SST being written by a flush or a compaction, and opened for readers when it is done.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{FileId, Result};
use pleach_table::{Sst, SstBuilder, SstOptions, ValueKind, key_hash};

use super::inner::Inner;
use crate::filters;
use crate::flush::STAGE_FIRST;
use crate::keys::PartitionId;
use crate::options::Options;
use crate::version::edit::RunId;
use crate::version::{SstFile, SubTree};

/// Path of SST `id` in `dir`.
pub(crate) fn sst_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id}.sst"))
}

/// The number in an SST's file name.
pub(crate) fn parse_sst_name(name: &str) -> Option<FileId> {
    let digits = name.strip_suffix(".sst")?;
    let id = FileId(digits.parse().ok()?);
    (format!("{id}") == digits).then_some(id)
}

/// The SST. Until it is finished, a crash leaves a file that no manifest names; the next open removes it.
pub(crate) struct SstOutput<'i> {
    inner: &'i Inner,
    id: FileId,
    builder: SstBuilder,
}

impl Inner {
    /// Bits per key for the filters of a new run of about `entries` in `stage`, which takes the place of the runs
    /// `replaced`.
    pub(crate) fn filter_bits(&self, tree: &SubTree, replaced: &[RunId], stage: u8, entries: u64) -> f32 {
        let others = tree.runs.iter().filter(|run| !replaced.contains(&run.id)).map(|run| run.entries());
        let first_stage = tree.runs.first().map_or(STAGE_FIRST, |run| run.stage.min(STAGE_FIRST));
        let Options { filter_bits_per_key, runs_per_stage, .. } = self.options;
        let upper_stages = stage.saturating_sub(first_stage);
        filters::bits_per_key(filter_bits_per_key, entries, others, upper_stages, runs_per_stage)
    }

    /// Starts a new SST.
    pub(crate) fn new_sst_output(&self) -> Result<SstOutput<'_>> {
        let id = self.new_file_id();
        let options =
            SstOptions { codec: self.options.codec, filter_bits_per_key: self.options.filter_bits_per_key };
        let builder = SstBuilder::create(&self.env, &sst_path(&self.dir, id), id, options)?;
        Ok(SstOutput { inner: self, id, builder })
    }

    /// Opens a finished SST for readers.
    pub(crate) fn open_sst(&self, file: &SstFile) -> Result<()> {
        let path = sst_path(&self.dir, file.id);
        let cache = Arc::clone(&self.cache);
        let sst =
            Sst::open(&self.env, &path, file.id, Some(&file.summary), cache, self.options.direct_reads)?;
        file.opened(Arc::new(sst));
        Ok(())
    }
}

impl SstOutput<'_> {
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// About the file's length if it were finished now.
    pub(crate) fn len(&self) -> u64 {
        self.builder.estimated_len()
    }

    /// Adds an entry. `stored_key` is the user key, or in a shared file the partition key.
    #[inline]
    pub(crate) fn add(
        &mut self,
        partition: PartitionId,
        user_key: &[u8],
        stored_key: &[u8],
        kind: ValueKind,
        value: &[u8],
    ) -> Result<()> {
        self.builder.add(stored_key, kind, value, key_hash(partition.0, user_key))
    }

    /// Number of entries added.
    pub(crate) fn entries(&self) -> u64 {
        self.builder.entries()
    }

    /// Makes the file durable, except for its name, and opens it. `filter_bits` is what [`Inner::filter_bits`] says.
    pub(crate) fn finish(mut self, filter_bits: f32) -> Result<Arc<SstFile>> {
        let (inner, id) = (self.inner, self.id);
        if filter_bits > 0.0 {
            self.builder.set_filter_bits_per_key(filter_bits);
        }
        let opened = self.builder.finish().and_then(|summary| {
            let file = Arc::new(SstFile::new(id, summary, Arc::clone(&inner.trash)));
            inner.open_sst(&file)?;
            Ok(file)
        });
        opened.inspect_err(|_| inner.remove_sst(id))
    }

    /// Gives up and removes the file.
    pub(crate) fn abandon(self) {
        self.builder.abandon();
    }
}

impl Inner {
    /// Best effort: the next open removes what is left.
    pub(crate) fn remove_sst(&self, id: FileId) {
        let _left_for_the_next_open = self.env.remove_file(&sst_path(&self.dir, id));
    }
}
