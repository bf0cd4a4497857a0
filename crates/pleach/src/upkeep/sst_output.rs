//! An SST that a flush or a compaction writes, and opens for readers when it is finished.
//!
//! It counts the entries of each run for the manifest, and estimates how many of them are overwrites: entries that shadow one
//! of an older run. The filters of the older runs are asked for a sample of the entries.

use std::sync::Arc;

use pleach_env::{FileId, Result};
use pleach_table::{IndexChoice, Sst, SstBuilder, SstOptions, ValueKind};

use super::Upkeep;
use super::trainer::TrainingWhileWriting;
use crate::file_names::sst_path;
use crate::filter_policy;
use crate::shape::STAGE_FIRST;
use crate::stats::add;
use crate::training::{self, LearnedIndex, Purpose, Verdict};
use crate::values::{SegmentUses, ValuePointer, ValueRefs};
use crate::version::edit::{RunFileMeta, RunId};
use crate::version::{OlderRuns, Origin, SstFile, SubTree};

/// The SST. Until it is finished, a crash leaves a file that no manifest names; the next open removes it.
pub(crate) struct SstOutput<'i> {
    upkeep: &'i Upkeep,
    id: FileId,
    builder: SstBuilder,
    tally: Tally,
    /// While it lives, nothing is trained while reading.
    training: Option<TrainingWhileWriting<'i>>,
}

/// An entry to be written.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) user_key: &'a [u8],
    /// The user key, or in a shared file the partition key.
    pub(crate) stored_key: &'a [u8],
    pub(crate) kind: ValueKind,
    pub(crate) value: &'a [u8],
    /// Of a tombstone: seconds since 1970 at which it, or an older one of its file, was flushed.
    pub(crate) since: u64,
}

/// Counts of the entries of one run in a file.
#[derive(Default)]
struct Tally {
    entries: u64,
    bytes: u64,
    tombstones: u64,
    tombstones_since: u64,
    overwrites: Overwrites,
    /// What value pointers refer to.
    values: SegmentUses,
}

/// An estimate of the overwrites, from a sample.
#[derive(Clone, Copy, Default)]
struct Overwrites {
    sampled: u64,
    /// Samples for which the filters of older runs say yes.
    seen: u64,
    /// Samples for which they would say yes if no older run held a key: the sum of their false-positive rates.
    seen_in_error: f64,
}

/// One entry in this many is sampled. That costs about a nanosecond for each entry.
const SAMPLED_EVERY: u64 = 64;

impl Overwrites {
    fn sample(&mut self, (is_seen, error_rate): (bool, f64)) {
        self.sampled += 1;
        self.seen += u64::from(is_seen);
        self.seen_in_error += error_rate;
    }

    /// The estimate for `entries`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, between 0 and `entries`"
    )]
    fn of(self, entries: u64) -> u64 {
        // Filters say yes for all overwrites, and in error for some of the rest: seen = share * sampled + (1 - share) * error.
        let (sampled, seen) = (self.sampled as f64, self.seen as f64);
        let share = (seen - self.seen_in_error) / (sampled - self.seen_in_error).max(sampled / 100.0);
        ((share.clamp(0.0, 1.0) * entries as f64).round() as u64).min(entries)
    }
}

impl Tally {
    fn add(&mut self, entry: &NewEntry<'_>, older: &OlderRuns, hash: u64) {
        if self.entries.is_multiple_of(SAMPLED_EVERY) {
            self.overwrites.sample(older.seem_to_hold(entry.user_key, hash));
        }
        self.entries += 1;
        self.bytes += (entry.stored_key.len() + entry.value.len()) as u64;
        if entry.kind == ValueKind::Tombstone {
            let is_first = self.tombstones == 0;
            self.tombstones_since =
                if is_first { entry.since } else { self.tombstones_since.min(entry.since) };
            self.tombstones += 1;
        }
        if entry.kind == ValueKind::ValuePointer
            && let Some(pointer) = ValuePointer::decode(entry.value)
        {
            self.values.entry(pointer.segment).or_default().add(pointer.bytes());
        }
    }

    fn meta(&self, file: FileId, smallest: &[u8], largest: &[u8], bytes: u64) -> RunFileMeta {
        RunFileMeta {
            file,
            smallest: smallest.into(),
            largest: largest.into(),
            entries: self.entries,
            bytes,
            tombstones: self.tombstones,
            tombstones_since: self.tombstones_since,
            overwrites: self.overwrites.of(self.entries),
            values: ValueRefs::new(&self.values),
        }
    }
}

impl Upkeep {
    /// Bits per key for the filters of a new run of about `entries`, beside runs of `others` entries and below `upper_stages`
    /// stages.
    pub(crate) fn filter_bits(
        &self,
        entries: u64,
        others: impl IntoIterator<Item = u64>,
        upper_stages: u8,
    ) -> f32 {
        self.filter_bits_without(0, entries, others, upper_stages)
    }

    /// Bits per key for the filters of the run of `stage` into which the runs `merged` are merged.
    pub(crate) fn filter_bits_of_merged(&self, tree: &SubTree, merged: &[RunId], stage: u8) -> f32 {
        let (merged, others): (Vec<_>, Vec<_>) = tree.runs.iter().partition(|run| merged.contains(&run.id));
        let entries = merged.iter().map(|run| run.totals.entries).fold(0, u64::saturating_add);
        let garbage = merged.iter().map(|run| run.totals.garbage).fold(0, u64::saturating_add);
        let others = others.iter().map(|run| run.totals.entries);
        self.filter_bits_without(garbage, entries, others, stage.saturating_sub(STAGE_FIRST))
    }

    /// The same in a store from which about `garbage` entries go.
    fn filter_bits_without(
        &self,
        garbage: u64,
        entries: u64,
        others: impl IntoIterator<Item = u64>,
        upper_stages: u8,
    ) -> f32 {
        let options = &self.ctx.options;
        let (index_bytes, all_entries) = {
            let version_set = self.version_set.lock();
            (version_set.files.table_bytes().1, version_set.files.entries())
        };
        let budget = options.filter_bytes_max(options.cache_bytes(u64::MAX) as u64, index_bytes);
        let rest = all_entries.saturating_sub(garbage);
        let average = filter_policy::affordable_bits(options.filter_bits_per_key, budget, rest);
        filter_policy::bits_per_key(average, options.stage_fill(), entries, others, upper_stages)
    }

    /// Whether an SST that is begun now gets a model, by [`crate::training`].
    fn trains_while_writing(&self, purpose: Purpose) -> bool {
        match self.ctx.options.when_learned() {
            LearnedIndex::Never => false,
            LearnedIndex::Always => true,
            LearnedIndex::Adaptive => {
                let limits = self.ctx.options.training_limits();
                let trains = training::trains_while_writing(limits, purpose, self.writes.recent_writers());
                add(&self.ctx.counters.index_many_writers, u64::from(!trains));
                trains
            }
        }
    }

    /// Starts a new SST.
    pub(crate) fn new_sst_output(&self, origin: Origin, purpose: Purpose) -> Result<SstOutput<'_>> {
        let training = self
            .trains_while_writing(purpose)
            .then(|| TrainingWhileWriting::begin(&self.trained_while_writing));
        let id = self.version_set.new_file_id();
        let options = SstOptions {
            codec: self.ctx.options.codec,
            filter_bits_per_key: self.ctx.options.filter_bits_per_key,
            large_value_len: self.ctx.options.thresholds.large_value_len,
            index: match training {
                Some(_) => self.ctx.options.learned_choice(),
                None => IndexChoice::Separators,
            },
            columns: true,
        };
        let mut builder = SstBuilder::create(&self.ctx.env, &sst_path(&self.ctx.dir, id), id, options)?;
        builder.set_note(&origin.encode());
        Ok(SstOutput { upkeep: self, id, builder, tally: Tally::default(), training })
    }

    /// Opens a finished SST for readers.
    pub(crate) fn open_sst(&self, file: &SstFile) -> Result<()> {
        let path = sst_path(&self.ctx.dir, file.id);
        let cache = Arc::clone(&self.cache);
        let mut sst = Sst::open(
            &self.ctx.env,
            &path,
            file.id,
            Some(&file.summary),
            cache,
            self.ctx.options.direct_reads,
        )?;
        sst.share_encoder(&self.encoders);
        file.opened(sst, true);
        Ok(())
    }

    /// Removes the file of an SST. Best effort: the next open removes what is left.
    pub(crate) fn remove_sst(&self, id: FileId) {
        let _left_for_the_next_open = self.ctx.env.remove_file(&sst_path(&self.ctx.dir, id));
    }
}

impl SstOutput<'_> {
    /// About the file's length if it were finished now.
    pub(crate) fn len(&self) -> u64 {
        self.builder.estimated_len()
    }

    /// Whether the file should end: it is as long as it is to be, or its index as long as one may be.
    pub(crate) fn is_full(&self, sst_bytes: u64) -> bool {
        self.len() >= sst_bytes || self.builder.is_index_full()
    }

    /// Adds an entry.
    #[inline]
    pub(crate) fn add(&mut self, entry: &NewEntry<'_>, older: &OlderRuns) -> Result<()> {
        let hash = older.hash(entry.user_key);
        self.tally.add(entry, older, hash);
        self.builder.add(entry.stored_key, entry.kind, entry.value, hash)
    }

    /// Ends a section from `smallest` to `largest`: the entries added since the last call; `None` if there are none.
    pub(crate) fn end_section(&mut self, smallest: &[u8], largest: &[u8]) -> Option<RunFileMeta> {
        let tally = std::mem::take(&mut self.tally);
        (tally.entries > 0).then(|| tally.meta(self.id, smallest, largest, tally.bytes))
    }

    /// Number of entries added.
    pub(crate) fn entries(&self) -> u64 {
        self.builder.entries()
    }

    /// Makes the file durable, except for its name, and opens it. `filter_bits` comes from [`Upkeep::filter_bits`]. The second
    /// part of the result describes the entries that are in no ended section, as a file of a run.
    pub(crate) fn finish(self, filter_bits: f32) -> Result<(Arc<SstFile>, RunFileMeta)> {
        let Self { upkeep, id, mut builder, tally, training } = self;
        let (limits, counters) = (upkeep.ctx.options.training_limits(), &upkeep.ctx.counters);
        if filter_bits > 0.0 {
            builder.set_filter_bits_per_key(filter_bits);
        }
        let is_in_time = |time| {
            let verdict = training::judge(limits, time, None);
            counters.note_training(time, verdict);
            verdict == Verdict::Used
        };
        let opened = builder.finish_with_obstacle(is_in_time).and_then(|(summary, obstacle)| {
            match obstacle {
                Some(obstacle) => counters.note_obstacle(obstacle),
                None => add(&counters.trained_while_writing, u64::from(training.is_some())),
            }
            let meta = tally.meta(id, &summary.smallest, &summary.largest, summary.file_len);
            let file = Arc::new(SstFile::new(id, summary, Arc::clone(&upkeep.version_set.trash)));
            upkeep.open_sst(&file)?;
            Ok((file, meta))
        });
        opened.inspect_err(|_| upkeep.remove_sst(id))
    }

    /// Removes the unfinished file.
    pub(crate) fn abandon(self) {
        self.builder.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_positives_are_no_overwrites() {
        let estimate = |yes: u64, no: u64, error_rate| {
            let mut overwrites = Overwrites::default();
            (0..yes).for_each(|_| overwrites.sample((true, error_rate)));
            (0..no).for_each(|_| overwrites.sample((false, error_rate)));
            overwrites.of(64 * (yes + no))
        };
        assert_eq!(estimate(0, 0, 0.0), 0);
        assert_eq!(estimate(1, 0, 0.01), 64);
        assert_eq!(estimate(100, 0, 0.9), 6400, "all of them");
        assert_eq!(estimate(40, 60, 0.4), 0);
        assert_eq!(estimate(70, 30, 0.4), 3200, "half of them");
        assert_eq!(estimate(3, 97, 0.4), 0);
        assert_eq!(estimate(3, 0, 1.0), 0, "the filters say yes to everything");
    }
}
