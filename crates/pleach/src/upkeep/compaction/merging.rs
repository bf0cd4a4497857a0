//! The merge inside a compaction: reads the entries of the inputs in key order and writes them as SSTs.
//!
//! An input SST that no other input overlaps is moved, not copied: the edit makes it part of the output. So a load in key
//! order is written once, whatever the shape.

use std::sync::Arc;

use pleach_env::Result;
use pleach_table::ValueKind;

use super::conversion::ConversionOutput;
use super::outputs::OutputFile;
use super::pace::ChargedOutput;
use crate::keys::PartitionId;
use crate::scan::{Direction, Merge, PassedValues, RunReads, SeekTo, SourceCursor};
use crate::stats::add;
use crate::training::Purpose;
use crate::upkeep::{NewEntry, SstOutput, Upkeep};
use crate::values::ValuePointer;
use crate::version::edit::{RunFileMeta, RunId};
use crate::version::{OlderRuns, Origin, Run, SubTree};

/// The merge. It reads nothing before the first call of [`Merging::next_file`]: jobs may wait long for their first step.
pub(super) struct Merging {
    merge: Merge,
    is_open: bool,
    /// The note of the outputs.
    origin: Origin,
    drops_tombstones: bool,
    /// Bits per key of the outputs' filters.
    filter_bits: f32,
    /// Size at which an output is complete.
    sst_bytes: u64,
    /// Last key merged, if there is one.
    last_key: Vec<u8>,
    has_last_key: bool,
    /// If values are copied in the order of keys.
    conversion: Option<ConversionOutput>,
}

/// A step that reads this many SST lengths without writing output commits its progress and ends.
const READ_WITHOUT_OUTPUT: u64 = 2;

/// A step that has begun an output completes it after it has read this many SST lengths, however small the output is. This is
/// more than [`READ_WITHOUT_OUTPUT`], so that a merge that drops most entries writes few small SSTs.
const READ_MAX: u64 = 16;

/// Bytes of entries after which a step ends when the store is being closed.
const READ_AT_CLOSE: u64 = 1 << 20;

impl Merging {
    /// A merge of `inputs`, newest first, for `stage`, from the first visible key on. `merged` are the runs of `tree` that the
    /// compaction replaces.
    pub(super) fn new(
        upkeep: &Upkeep,
        partition: PartitionId,
        tree: &SubTree,
        inputs: Vec<Arc<Run>>,
        merged: &[RunId],
        stage: u8,
        drops_tombstones: bool,
    ) -> Self {
        let newest_seq = inputs.iter().map(|run| run.newest_seq).max().unwrap_or(0);
        let inputs = inputs.into_iter().filter(|run| !run.files.is_empty());
        let sources = inputs.map(|run| SourceCursor::over_run(partition, run, RunReads::Stream)).collect();
        let mut merge = Merge::new(sources, Direction::Up);
        merge.count_passed_values();
        Self {
            merge,
            is_open: false,
            origin: Origin { partition: Some(partition), stage, newest_seq },
            drops_tombstones,
            filter_bits: upkeep.filter_bits_of_merged(tree, merged, stage),
            sst_bytes: upkeep.ctx.options.compacted_sst_bytes(tree.sum(|run| run.totals.bytes)),
            last_key: Vec::new(),
            has_last_key: false,
            conversion: None,
        }
    }

    /// Makes it copy separated values in the order of keys. An earlier try has `left` bytes of them for want of room.
    pub(super) fn convert(&mut self, upkeep: &Upkeep, partition: PartitionId, left: u64) {
        let copies_all = upkeep.ctx.options.always_converts();
        self.conversion = Some(ConversionOutput::new(partition, left, copies_all));
    }

    /// If values are copied: bytes of those that were left because there was no room.
    pub(super) fn values_left(&self) -> Option<u64> {
        self.conversion.as_ref().map(ConversionOutput::left)
    }

    /// The same, of what a version has.
    pub(super) fn values_left_before(&self) -> Option<u64> {
        self.conversion.as_ref().map(ConversionOutput::left_before)
    }

    /// To be called when a version has the output.
    pub(super) fn note_committed(&mut self, upkeep: &Upkeep) {
        if let Some(conversion) = &mut self.conversion {
            conversion.note_committed(upkeep);
        }
    }

    /// Whether all is merged.
    pub(super) fn is_done(&self) -> bool {
        self.is_open && self.merge.current().is_none()
    }

    /// What the value pointers refer to that were merged since the last call, by the file of the pointer.
    pub(super) fn take_passed_values(&mut self) -> PassedValues {
        self.merge.take_passed_values()
    }

    /// Last key merged; `None` before the first.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.has_last_key.then_some(&*self.last_key)
    }

    /// Closes the files that `tree` no longer has.
    pub(super) fn follow(&mut self, tree: &SubTree) {
        self.merge.follow(tree);
    }

    /// Makes the next file of the output: writes a new one, or moves one of an input. `None` if no entry was written before
    /// the inputs or the reads of the step ended. `older` are the runs below the inputs.
    pub(super) fn next_file(&mut self, upkeep: &Upkeep, older: &OlderRuns) -> Result<Option<OutputFile>> {
        if !self.is_open {
            self.merge.seek(SeekTo::Start)?;
            self.is_open = true;
        }
        if let Some(mut moved) = self.movable_file(upkeep) {
            if self.drops_tombstones {
                moved.overwrites = 0; // There is nothing older for it to shadow.
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(&moved.largest);
            self.has_last_key = true;
            self.merge.skip_file()?;
            add(&upkeep.ctx.counters.moved_bytes, moved.bytes);
            return Ok(Some(OutputFile::Moved(moved)));
        }
        let mut output: Option<SstOutput<'_>> = None;
        let merged = self.fill(upkeep, older, &mut output);
        match (merged, output) {
            (Ok(_), None) => Ok(None),
            (Ok(charged), Some(output)) => self.finish(upkeep, output, charged).map(Some),
            (Err(error), output) => {
                if let Some(output) = output {
                    output.abandon();
                }
                if let Some(conversion) = &mut self.conversion {
                    conversion.abandon();
                }
                Err(error)
            }
        }
    }

    /// Ends an output, and the file of its values.
    fn finish(
        &mut self,
        upkeep: &Upkeep,
        output: SstOutput<'_>,
        mut charged: ChargedOutput,
    ) -> Result<OutputFile> {
        let conversion = self.conversion.as_mut();
        let values = match conversion.map_or(Ok(None), |conversion| conversion.finish_file(upkeep)) {
            Ok(values) => values,
            Err(error) => {
                output.abandon();
                return Err(error);
            }
        };
        let (file, meta) = output.finish(self.filter_bits).inspect_err(|_| {
            if let Some(values) = &values {
                values.mark_obsolete();
            }
        })?;
        upkeep.keep_pace(charged.rest(file.summary.file_len));
        add(&upkeep.ctx.counters.compaction_written_bytes, file.summary.file_len);
        Ok(OutputFile::Written { file, meta, values })
    }

    /// The file that can be moved now: the merge is at its beginning, and no other input has a key in its range.
    fn movable_file(&self, upkeep: &Upkeep) -> Option<RunFileMeta> {
        let file = self.merge.current()?.whole_file_ahead()?;
        // Otherwise small files would stay small for ever.
        let is_large = file.meta.bytes >= upkeep.ctx.options.flushed_sst_bytes();
        let is_clean = !self.drops_tombstones || file.meta.tombstones == 0;
        let is_converted = self.conversion.is_none() || file.meta.values.is_empty();
        let is_alone = || self.merge.others_are_behind(&file.meta.largest);
        (is_large && is_clean && is_converted && is_alone()).then(|| file.meta.clone())
    }

    /// Writes entries until the output is complete; returns the part of it that the pacer was charged for.
    fn fill<'i>(
        &mut self,
        upkeep: &'i Upkeep,
        older: &OlderRuns,
        output: &mut Option<SstOutput<'i>>,
    ) -> Result<ChargedOutput> {
        let sst_bytes = self.sst_bytes;
        let shadowed_before = self.merge.shadowed_bytes();
        let (mut read_bytes, mut charged) = (0, ChargedOutput::default());
        while let Some(source) = self.merge.current() {
            let read = read_bytes + self.merge.shadowed_bytes() - shadowed_before;
            let read_max = if output.is_some() { READ_MAX } else { READ_WITHOUT_OUTPUT };
            if read >= sst_bytes.saturating_mul(read_max)
                || (read >= READ_AT_CLOSE && upkeep.ctx.status.is_closed())
            {
                break;
            }
            if let Some(sst) = output {
                if let Some(bytes) = charged.piece(sst.len()) {
                    upkeep.keep_pace(bytes);
                }
                let conversion = self.conversion.as_ref();
                let is_full = sst.is_full(sst_bytes) || conversion.is_some_and(|c| c.ends_sst(sst_bytes));
                // End the output early if a file can be moved next, but write no small SSTs.
                let is_cut = || {
                    sst.len() >= upkeep.ctx.options.flushed_sst_bytes() && self.movable_file(upkeep).is_some()
                };
                if is_full || (source.whole_file_ahead().is_some() && is_cut()) {
                    break;
                }
            }
            let key = source.key().expect("the current source is on an entry");
            if self.has_last_key && key <= self.last_key.as_slice() {
                return Err(source.damaged(&upkeep.ctx.dir, "expected keys in ascending order"));
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.has_last_key = true;
            let (kind, value) = (source.kind(), source.value_bytes());
            if kind == ValueKind::ValuePointer && ValuePointer::decode(value).is_none() {
                return Err(source.damaged(&upkeep.ctx.dir, "expected a value pointer, found other bytes"));
            }
            read_bytes += (key.len() + value.len()) as u64;
            let is_tombstone = kind == ValueKind::Tombstone;
            let shadows_nothing = is_tombstone && (self.drops_tombstones || !older.may_hold(&self.last_key));
            if !shadows_nothing {
                let sst = match output {
                    Some(sst) => sst,
                    None => output.insert(upkeep.new_sst_output(self.origin, Purpose::Compaction)?),
                };
                let since =
                    if is_tombstone { source.file_meta().map_or(0, |m| m.tombstones_since) } else { 0 };
                let (user_key, stored_key) = (&*self.last_key, &*self.last_key);
                match &mut self.conversion {
                    None => sst.add(&NewEntry { user_key, stored_key, kind, value, since }, older)?,
                    Some(conversion) => {
                        conversion.push(user_key, kind, value, since);
                        if conversion.is_full() {
                            conversion.write(upkeep, sst, older)?;
                        }
                    }
                }
            }
            self.merge.advance()?;
        }
        if let (Some(conversion), Some(sst)) = (&mut self.conversion, output)
            && conversion.is_waiting()
        {
            conversion.write(upkeep, sst, older)?;
        }
        let read = read_bytes + self.merge.shadowed_bytes() - shadowed_before;
        add(&upkeep.ctx.counters.compaction_read_bytes, read);
        Ok(charged)
    }
}
