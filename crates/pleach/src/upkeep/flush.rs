//! Flush: the oldest immutable memtable becomes files, sliced by partition.
//!
//! The memtable is ordered by partition, so a flush reads it once, slice by slice. A large slice becomes a run with SSTs of its
//! own. Small slices become sections of one shared file, so that a flush of many partitions costs one file and one sync.
//!
//! # Invariants
//! 1. *Order of durability*: separated values, the files' data, all names, then the edit that names them and moves the log's
//!    floor.
//! 2. *Oldest first*: memtables are flushed in the order in which they became immutable, by one thread at a time.
//! 3. *Age order*: a run goes directly to stage 1 only if stage 0 holds nothing of its partition: otherwise readers would ask
//!    the older entries of stage 0 first.
//!
//! # Origin
//! `TridentKV`, section 3.3. Departure: the paper keeps the rest of a partition in memory until a block is full; here it
//! becomes a durable section at once, so that it does not pin the log.

mod separated;

use std::sync::Arc;

use pleach_env::Result;
use pleach_log::SeqNo;
use pleach_table::ValueKind;

use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, split_partition_key};
use crate::memtable::{DELETES_WORTH_FLUSH, Memtable, MemtableCursor};
use crate::shape::{STAGE_FIRST, STAGE_SECTIONS};
use crate::state::{LoggedMemtable, State};
use crate::stats::add;
use crate::trace;
use crate::training::Purpose;
use crate::upkeep::{NewEntry, SstOutput, Upkeep};
use crate::version::edit::{Edit, EditItem, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{OlderRuns, Origin, SstFile, Version};
use separated::SeparatedValues;

/// The flush of one memtable, and its output so far.
struct Flush<'i> {
    upkeep: &'i Upkeep,
    version: Arc<Version>,
    edit: Edit,
    written: Vec<Arc<SstFile>>,
    /// The unfinished SST of a large slice.
    own: Option<SstOutput<'i>>,
    shared: Option<SharedFile<'i>>,
    values: SeparatedValues<'i>,
    /// Now, in seconds since 1970.
    now: u64,
    /// The last sequence number in the memtable.
    newest_seq: SeqNo,
}

/// The file that small slices share.
struct SharedFile<'i> {
    output: SstOutput<'i>,
    /// The sections, with the bits per key that each should have in the file's filter.
    sections: Vec<(PartitionId, RunMeta, f32)>,
}

impl<'i> SharedFile<'i> {
    fn new(upkeep: &'i Upkeep, newest_seq: SeqNo) -> Result<Self> {
        let origin = Origin { partition: None, stage: STAGE_SECTIONS, newest_seq };
        Ok(Self { output: upkeep.new_sst_output(origin, Purpose::Flush)?, sections: Vec::new() })
    }

    /// Bits per key of the file's one filter: the mean over its entries.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a mean, to choose by")]
    fn filter_bits(&self) -> f32 {
        let (mut entries, mut bits) = (0.0, 0.0);
        for (_, run, bits_per_key) in &self.sections {
            let section_entries: f64 = run.files.iter().map(|file| file.entries as f64).sum();
            entries += section_entries;
            bits += section_entries * f64::from(*bits_per_key);
        }
        (bits / f64::max(entries, 1.0)) as f32
    }
}

impl Upkeep {
    /// Flushes the oldest immutable memtable; `false` when there is none.
    pub(crate) fn flush_oldest(&self) -> Result<bool> {
        let state = self.version_set.state.load_full();
        let Some(oldest) = state.immutable.last() else { return Ok(false) };
        let span = trace::flush(oldest.memtable.used_bytes(), oldest.memtable.last_seq());
        let mut flush = Flush {
            upkeep: self,
            version: Arc::clone(&state.version),
            edit: Edit::default(),
            written: Vec::new(),
            own: None,
            shared: None,
            values: SeparatedValues::plan(self, &state.version, &oldest.memtable),
            now: self.ctx.env.wall_clock().as_secs(),
            newest_seq: oldest.memtable.last_seq(),
        };
        // The name of the floor's segment may be new too.
        let written = flush.write(&oldest.memtable).and_then(|()| self.ctx.sync_dir("flush.dir_sync"));
        if let Err(error) = written {
            flush.abandon();
            return Err(error);
        }
        let Flush { edit, written, values, .. } = flush;
        span.made(written.len(), written.iter().map(|file| file.summary.file_len).sum());
        self.install_flush(&state, oldest, edit, written, values)?;
        Ok(true)
    }

    /// Makes the flush durable and lets readers see its files instead of the memtable.
    ///
    /// Requires: files and names are synced.
    fn install_flush(
        &self,
        state: &State,
        oldest: &Arc<LoggedMemtable>,
        mut edit: Edit,
        written: Vec<Arc<SstFile>>,
        values: SeparatedValues<'_>,
    ) -> Result<()> {
        let bytes = written.iter().map(|file| file.summary.file_len).sum();
        let segments = values.segments();
        // From the edit on, versions own them.
        self.version_set.record_files.lock().give_up(&segments);
        let floor = state.immutable.iter().rev().nth(1).unwrap_or(&state.active).first_segment;
        edit.push(EditItem::FlushedSeq(oldest.memtable.last_seq()));
        edit.push(EditItem::LogFloor(floor));
        let committed = self.version_set.commit_edit(edit, written, |state, version| State {
            immutable: state.immutable.iter().filter(|m| !Arc::ptr_eq(m, oldest)).cloned().collect(),
            ..state.with_version(version)
        });
        if let Err(error) = committed {
            self.version_set.record_files.lock().take_back(&segments);
            // In a poisoned store the edit may be durable.
            if self.ctx.status.poison().is_none() {
                values.abandon();
            }
            return Err(error);
        }
        values.free_reserved();
        if oldest.memtable.deletes() >= DELETES_WORTH_FLUSH && !state.version.values.is_empty() {
            self.note_deletes();
        }
        let mut flushed = self.flushed_memtables.lock();
        flushed.retain(|memtable| memtable.strong_count() > 0);
        flushed.push(Arc::downgrade(&oldest.memtable));
        drop(flushed);
        add(&self.ctx.counters.flushes, 1);
        add(&self.ctx.counters.flush_bytes, bytes);
        Ok(())
    }
}

impl<'i> Flush<'i> {
    fn write(&mut self, memtable: &Arc<Memtable>) -> Result<()> {
        let mut cursor = memtable.cursor(u64::MAX);
        cursor.seek_first();
        while cursor.is_valid() {
            self.write_slice(memtable, &mut cursor)?;
        }
        if let Some(shared) = self.shared.take() {
            self.finish_shared(shared)?;
        }
        self.values.sync()?;
        self.values.name_in(&mut self.edit);
        Ok(())
    }

    /// The bytes of the pointer to the value under `cursor`; none if it is not to be separated.
    fn pointer(&mut self, cursor: &MemtableCursor) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if cursor.kind() == ValueKind::ValuePointer {
            self.values.pointer(cursor)?.encode(&mut bytes);
        }
        Ok(bytes)
    }

    /// Writes the slice of the partition that `cursor` is on, and moves the cursor behind it.
    fn write_slice(&mut self, memtable: &Arc<Memtable>, cursor: &mut MemtableCursor) -> Result<()> {
        let partition = partition_of(cursor);
        let Some(tree) = self.version.tree(partition).cloned() else {
            // Dropped: its entries are skipped.
            while on_partition(cursor, partition) {
                cursor.next();
            }
            return Ok(());
        };
        let older = OlderRuns::than_memtable(partition, &tree);
        let (mut bytes, own_bytes_min) = (0, self.upkeep.ctx.options.section_bytes_max());
        let is_large = lens_from(memtable, partition, &partition.prefix()).any(|len| {
            bytes += len;
            bytes >= own_bytes_min
        });
        if is_large {
            let stage = if tree.runs.first().is_some_and(|r| r.stage == STAGE_SECTIONS) {
                STAGE_SECTIONS
            } else {
                STAGE_FIRST
            };
            self.write_own_run(memtable, stage, &older, cursor)
        } else {
            self.write_section(partition, &older, cursor)
        }
    }

    /// Writes a large slice as a run.
    fn write_own_run(
        &mut self,
        memtable: &Arc<Memtable>,
        stage: u8,
        older: &OlderRuns,
        cursor: &mut MemtableCursor,
    ) -> Result<()> {
        let partition = older.partition();
        let origin = Origin { partition: Some(partition), stage, newest_seq: self.newest_seq };
        let mut files = Vec::new();
        let first_key = &cursor.key()[PARTITION_PREFIX_LEN..];
        let sst_bytes = if older.all_end_before(first_key) {
            // All keys are above those of older runs, so no merge will rewrite the SSTs.
            self.upkeep.ctx.options.sst_bytes
        } else {
            self.upkeep.ctx.options.flushed_sst_bytes()
        };
        let filter_bits = |entries| self.upkeep.filter_bits(entries, older.sizes(), 0);
        let mut run_bits = None;
        while on_partition(cursor, partition) {
            if !shadows_nothing(older, cursor) {
                let pointer = self.pointer(cursor)?;
                if let Some(full) = self.own.take_if(|own| own.is_full(sst_bytes)) {
                    let rest = || lens_from(memtable, partition, cursor.key()).count() as u64;
                    let entries = || full.entries() + rest();
                    let bits = *run_bits.get_or_insert_with(|| filter_bits(entries()));
                    files.push(self.finish_own(full, bits)?);
                }
                let sst = match &mut self.own {
                    Some(sst) => sst,
                    None => self.own.insert(self.upkeep.new_sst_output(origin, Purpose::Flush)?),
                };
                let user_key = &cursor.key()[PARTITION_PREFIX_LEN..];
                sst.add(&new_entry(cursor, user_key, &pointer, self.now), older)?;
            }
            cursor.next();
        }
        if let Some(last) = self.own.take() {
            let bits = run_bits.unwrap_or_else(|| filter_bits(last.entries()));
            files.push(self.finish_own(last, bits)?);
        }
        if !files.is_empty() {
            let (kind, newest_seq) = (RunKind::Ssts, self.newest_seq);
            let run = RunMeta { id: RunId::NEXT, stage, kind, clip: None, newest_seq, files };
            self.edit.push(EditItem::AddRun { partition, run });
        }
        Ok(())
    }

    fn finish_own(&mut self, output: SstOutput<'i>, filter_bits: f32) -> Result<RunFileMeta> {
        let (file, meta) = output.finish(filter_bits)?;
        self.name_file(file);
        Ok(meta)
    }

    /// Writes a small slice as a section of the shared file.
    fn write_section(
        &mut self,
        partition: PartitionId,
        older: &OlderRuns,
        cursor: &mut MemtableCursor,
    ) -> Result<()> {
        if let Some(full) = self.shared.take_if(|shared| shared.output.is_full(u64::MAX)) {
            self.finish_shared(full)?;
        }
        let mut shared = match self.shared.take() {
            Some(shared) => shared,
            None => SharedFile::new(self.upkeep, self.newest_seq)?,
        };
        let written = self.write_section_to(&mut shared, partition, older, cursor);
        self.shared = Some(shared);
        written
    }

    fn write_section_to(
        &mut self,
        shared: &mut SharedFile<'i>,
        partition: PartitionId,
        older: &OlderRuns,
        cursor: &mut MemtableCursor,
    ) -> Result<()> {
        let (mut smallest, mut largest) = (None, Vec::new());
        while on_partition(cursor, partition) {
            if !shadows_nothing(older, cursor) {
                let pointer = self.pointer(cursor)?;
                shared.output.add(&new_entry(cursor, cursor.key(), &pointer, self.now), older)?;
                largest.clear();
                largest.extend_from_slice(&cursor.key()[PARTITION_PREFIX_LEN..]);
                if smallest.is_none() {
                    smallest = Some(largest.clone());
                }
            }
            cursor.next();
        }
        if let Some(section) = shared.output.end_section(&smallest.unwrap_or_default(), &largest) {
            let filter_bits = self.upkeep.filter_bits(section.entries, older.sizes(), 0);
            let run = RunMeta {
                id: RunId::NEXT,
                stage: STAGE_SECTIONS,
                kind: RunKind::Section,
                clip: None,
                newest_seq: self.newest_seq,
                files: vec![section],
            };
            shared.sections.push((partition, run, filter_bits));
        }
        Ok(())
    }

    fn finish_shared(&mut self, shared: SharedFile<'i>) -> Result<()> {
        if shared.sections.is_empty() {
            shared.output.abandon();
            return Ok(());
        }
        let filter_bits = shared.filter_bits();
        let (file, _sections_have_ended) = shared.output.finish(filter_bits)?;
        self.name_file(file);
        for (partition, run, _) in shared.sections {
            self.edit.push(EditItem::AddRun { partition, run });
        }
        Ok(())
    }

    /// Names a finished file in the edit, before the runs that use it.
    fn name_file(&mut self, file: Arc<SstFile>) {
        self.edit.push(EditItem::AddFile { file: file.id, summary: file.summary.clone() });
        self.written.push(file);
    }

    /// Removes the files of a failed flush. It does so at once: as obsolete files they would count as freed space and let the
    /// flush be tried again.
    fn abandon(self) {
        self.own.into_iter().chain(self.shared.map(|shared| shared.output)).for_each(SstOutput::abandon);
        self.values.abandon();
        for file in self.written {
            let id = file.id;
            drop(file);
            self.upkeep.remove_sst(id);
        }
    }
}

/// Whether the cursor is on a tombstone that shadows nothing.
fn shadows_nothing(older: &OlderRuns, cursor: &MemtableCursor) -> bool {
    cursor.kind() == ValueKind::Tombstone && !older.may_hold(&cursor.key()[PARTITION_PREFIX_LEN..])
}

/// The entry under `cursor`, with `pointer` instead of a value that is to be separated.
fn new_entry<'c>(
    cursor: &'c MemtableCursor,
    stored_key: &'c [u8],
    pointer: &'c [u8],
    now: u64,
) -> NewEntry<'c> {
    NewEntry {
        user_key: &cursor.key()[PARTITION_PREFIX_LEN..],
        stored_key,
        kind: cursor.kind(),
        value: if pointer.is_empty() { cursor.value() } else { pointer },
        since: now,
    }
}

fn partition_of(cursor: &MemtableCursor) -> PartitionId {
    split_partition_key(cursor.key()).expect("memtables hold partition keys").0
}

fn on_partition(cursor: &MemtableCursor, partition: PartitionId) -> bool {
    cursor.is_valid() && partition_of(cursor) == partition
}

/// About the bytes of a value pointer.
const POINTER_LEN: usize = 10;

/// Lengths of the entries of `partition` in the memtable from `key`, a partition key, on.
fn lens_from(memtable: &Arc<Memtable>, partition: PartitionId, key: &[u8]) -> impl Iterator<Item = usize> {
    let mut cursor = memtable.cursor(u64::MAX);
    cursor.seek(key);
    std::iter::from_fn(move || {
        on_partition(&cursor, partition).then(|| {
            let is_separated = cursor.kind() == ValueKind::ValuePointer;
            let len = cursor.key().len() + if is_separated { POINTER_LEN } else { cursor.value().len() };
            cursor.next();
            len
        })
    })
}
