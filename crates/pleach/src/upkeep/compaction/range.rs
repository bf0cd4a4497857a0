//! Range compactions: what the runs hold of a key range goes into the oldest run.
//!
//! The job takes the pieces of all files inside the range, and merges them like whole runs. It does not write what is outside of
//! the range: a file that reaches beyond it stays, and its run keeps the parts outside ([`crate::version`], parts). The exception
//! is the oldest run: there a small rest of a file is written too, so that its files do not become ever smaller.
//!
//! A long job commits its progress as it goes on. Then everything up to the last key merged is done, and the job continues with
//! the rest of the range. The version does not record the job, so a crash ends it there.
//!
//! # Invariants
//! 1. *One edit* takes the pieces out of their runs and puts the outputs in, so that each key is visible once.
//! 2. *Whole column*: all runs that have keys of the range give their pieces at once. So the output may be older than runs
//!    between them, which have no key of the range. Later flushes are newer than all of them.
//! 3. *No run twice*: as for partial jobs. A job whose output is a new run keeps others off all runs that are as old as its
//!    inputs.
//! 4. *The range only shrinks*: runs without a key in it are not asked, so no key of another run from outside may move.
//! 5. *Age order*: the output has writes as new as those of the newest input. Runs are sorted by their newest sequence number, an
//!    upper bound. So the edit raises that of each run older than the newest input.

use std::collections::BTreeSet;
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, FileId, Result, failpoint};
use pleach_table::{CursorMode, SstCursor, Toward};

use super::job::{CompactionJob, Kind};
use super::merging::Merging;
use super::outputs::Outputs;
use crate::keys::{KeyEnds, KeyRange, PARTITION_PREFIX_LEN, PartitionId, partition_key, successor};
use crate::picker::RangePlan;
use crate::scan::PassedValues;
use crate::upkeep::Upkeep;
use crate::values::{SegmentUses, ValueRefs};
use crate::version::edit::{Edit, EditItem, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{Run, RunFile, SstFile, SubTree};

/// A rest of a file of the oldest run is written again if it is less than one part in this many of the file (arbitrary).
const REST_MIN_SHARE: u64 = 8;

/// What a job on a key range knows besides its merge.
pub(super) struct RangeJob {
    /// The request that it fulfils.
    pub(super) request: u64,
    /// Its range begins behind what is done.
    plan: RangePlan,
    /// The pieces that the merge takes; `None` until it is made.
    pieces: Option<Vec<Piece>>,
}

/// What the merge takes of a part of a file.
struct Piece {
    run: RunId,
    /// The part as the run has it.
    part: RunFileMeta,
    /// The keys that are taken. `None` if the oldest run has no key in the range: then its part is only cut, to
    /// make room for the outputs.
    taken: Option<KeyEnds>,
    /// What is left of the part.
    left: Option<RunFileMeta>,
    right: Option<RunFileMeta>,
}

impl RangeJob {
    /// Whether its outputs are put into a run that exists.
    pub(super) fn extends_a_run(&self) -> bool {
        self.plan.output.is_some()
    }

    pub(super) fn claimed(&self) -> &[RunId] {
        &self.plan.claimed
    }
}

impl CompactionJob {
    /// Starts a planned merge of a range; `None` when the partition was dropped meanwhile. It reads nothing yet.
    pub(super) fn start_range(
        upkeep: &Upkeep,
        partition: PartitionId,
        plan: RangePlan,
        request: u64,
    ) -> Option<Self> {
        let state = upkeep.version_set.state.load();
        let tree = state.version.tree(partition)?;
        let mut inputs = plan.inputs.clone();
        inputs.extend(plan.output.filter(|output| !inputs.contains(output)));
        let stage = plan.output_stage;
        Some(Self {
            partition,
            output_stage: stage,
            merging: Merging::new(upkeep, partition, tree, Vec::new(), &inputs, stage, true),
            inputs,
            kind: Kind::Range(RangeJob { request, plan, pieces: None }),
            outputs: Outputs::default(),
            has_progress: true,
        })
    }

    /// Makes the merge of a range, if there is none. Returns false if there is nothing to merge.
    pub(super) fn prepare_range(&mut self, upkeep: &Upkeep) -> Result<bool> {
        let Kind::Range(job) = &mut self.kind else { return Ok(true) };
        if job.pieces.is_some() {
            return Ok(true);
        }
        let state = upkeep.version_set.state.load_full();
        let Some(tree) = state.version.tree(self.partition) else { return Ok(false) };
        let pieces = job.pieces(tree, self.partition)?;
        let taken = || pieces.iter().filter(|piece| piece.taken.is_some());
        let runs: BTreeSet<_> = taken().map(|piece| piece.run).collect();
        if runs.len() <= 1 && taken().all(|piece| piece.part.tombstones == 0) {
            let output = job.plan.output;
            self.remove_empty(upkeep, output)?;
            return Ok(false);
        }
        let inputs = job.plan.inputs.iter().filter_map(|id| tree.run(*id));
        let inputs = inputs.map(|run| inside(run, &pieces, self.partition)).collect();
        job.pieces = Some(pieces);
        let (merged, stage) = (&self.inputs, self.output_stage);
        self.merging = Merging::new(upkeep, self.partition, tree, inputs, merged, stage, true);
        Ok(true)
    }

    /// Removes the run that was to take outputs, if earlier commits have left nothing of it and nothing more comes.
    fn remove_empty(&self, upkeep: &Upkeep, output: Option<RunId>) -> Result<()> {
        let partition = self.partition;
        let make = || {
            let state = upkeep.version_set.state.load();
            let run = output.and_then(|output| state.version.tree(partition)?.run(output));
            Ok(run.filter(|run| run.files.is_empty()).map(|run| {
                let mut edit = Edit::default();
                edit.push(EditItem::RemoveRun { partition, run: run.id });
                (edit, Vec::new())
            }))
        };
        upkeep.version_set.commit_made(make).map(|_| ())
    }

    /// The edit that commits what was merged of a range, and the new files that it names.
    pub(super) fn range_edit(
        &mut self,
        upkeep: &Upkeep,
        tree: &SubTree,
        is_done: bool,
    ) -> Result<(Edit, Vec<Arc<SstFile>>)> {
        let Kind::Range(job) = &mut self.kind else { unreachable!("the job is one on a range") };
        let mut edit = Edit::default();
        let (files, outputs) = self.outputs.name_in(&mut edit);
        // If nothing was merged yet, everything is left.
        let last_key = self.merging.last_key();
        let rest = (!is_done).then(|| last_key.map_or_else(|| job.plan.range.lower.clone(), successor));
        let passed = self.merging.take_passed_values();
        let damaged = |message| Error::new(ErrorKind::Corruption, message).at_path(&upkeep.ctx.dir);
        let pushed = job.push_changes(&mut edit, (self.partition, tree), outputs, rest.as_deref(), &passed);
        match pushed.and_then(|pushed| pushed.map_err(damaged)) {
            Ok(()) => Ok((edit, files)),
            Err(error) => {
                // The job has given them away, and no edit names them.
                for file in &files {
                    file.mark_obsolete();
                }
                Err(error)
            }
        }
    }

    /// Goes on with the rest of a range, of which everything up to the last key merged is committed.
    pub(super) fn follow_range(&mut self) {
        let last_key = self.merging.last_key().map(successor);
        if let Kind::Range(job) = &mut self.kind {
            // A small rest of the oldest run below the range may be all that was merged. Between it and the range, runs that give
            // nothing may have keys, so the range never grows.
            let lower = &mut job.plan.range.lower;
            if let Some(last_key) = last_key.filter(|last_key| **last_key > **lower) {
                *lower = last_key;
            }
            job.pieces = None;
        }
    }
}

impl RangeJob {
    /// The pieces to merge. Those of the oldest run are taken only between the ends of the others.
    fn pieces(&self, tree: &SubTree, partition: PartitionId) -> Result<Vec<Piece>> {
        let RangePlan { range, inputs, output, .. } = &self.plan;
        let runs = || inputs.iter().filter_map(|id| tree.run(*id));
        let mut pieces = Vec::new();
        for run in runs().filter(|run| Some(run.id) != *output) {
            take_pieces(&mut pieces, run, partition, range, false)?;
        }
        let mut of_oldest = Vec::new();
        if let Some(run) = runs().find(|run| Some(run.id) == *output) {
            // Of a run that is merged already, only tombstones are reason enough.
            take_pieces(&mut of_oldest, run, partition, range, false)?;
            of_oldest.retain(|piece: &Piece| piece.part.tombstones > 0);
            let ends = || pieces.iter().chain(&of_oldest).filter_map(|piece| piece.taken.as_ref());
            let lower = ends().map(|(smallest, _)| smallest).min().cloned();
            let upper = ends().map(|(_, largest)| largest).max().map(|largest| successor(largest));
            of_oldest.clear();
            if let Some(lower) = lower {
                take_pieces(&mut of_oldest, run, partition, &KeyRange { lower, upper }, true)?;
            }
        }
        pieces.append(&mut of_oldest);
        Ok(pieces)
    }

    /// Takes what was merged out of the runs, and adds the outputs. The merge has come to the end, or to `rest`. An error
    /// message if the values that were `passed` are not those that the manifest states.
    fn push_changes(
        &self,
        edit: &mut Edit,
        (partition, tree): (PartitionId, &SubTree),
        mut outputs: Vec<RunFileMeta>,
        rest: Option<&[u8]>,
        passed: &PassedValues,
    ) -> Result<std::result::Result<(), String>> {
        let pieces = self.pieces.as_deref().unwrap_or_default();
        let newest = tree.runs.iter().position(|run| self.plan.inputs.contains(&run.id)).unwrap_or(0);
        let inputs = tree.runs.iter().filter(|run| self.plan.inputs.contains(&run.id));
        let newest_seq = inputs.map(|run| run.newest_seq).max().unwrap_or(0);
        for run in &tree.runs[newest..] {
            // Also a part of the oldest run of which nothing was taken yet may have to make room for outputs.
            let is_begun = |piece: &&Piece| {
                let begin = match &piece.taken {
                    Some((first, _)) if Some(run.id) != self.plan.output => first,
                    _ => &piece.part.smallest,
                };
                rest.is_none_or(|rest| **begin < *rest)
            };
            let begun: Vec<_> = pieces.iter().filter(|piece| piece.run == run.id).filter(is_begun).collect();
            let files: BTreeSet<FileId> = begun.iter().map(|piece| piece.part.file).collect();
            let mut added = Vec::new();
            for &file in &files {
                let first = added.len();
                for part in run.parts_of(file) {
                    match begun.iter().find(|piece| piece.part.smallest == part.meta.smallest) {
                        None => added.push(part.meta.clone()),
                        Some(piece) => {
                            added.extend(piece.left.clone());
                            added.extend(piece.rest(run, part, partition, rest)?);
                        }
                    }
                }
                let Some(stated) = run.parts_of(file).next().map(|part| &part.meta.values) else { continue };
                let none = SegmentUses::new();
                let left = match stated.without(passed.get(&file).unwrap_or(&none)) {
                    Ok(left) => left,
                    Err(message) => return Ok(Err(message)),
                };
                added[first..].iter_mut().for_each(|part| part.values = ValueRefs::default());
                if let Some(first) = added.get_mut(first) {
                    first.values = left;
                }
            }
            if !added.is_empty() {
                failpoint::report("compaction.cut", 1);
            }
            let is_output = Some(run.id) == self.plan.output;
            if is_output {
                added.append(&mut outputs);
            }
            let stays_empty =
                added.is_empty() && run.files.iter().all(|part| files.contains(&part.meta.file));
            // The output stays to the end: later commits may put files into it.
            if stays_empty && if is_output { rest.is_none() } else { !files.is_empty() } {
                edit.push(EditItem::RemoveRun { partition, run: run.id });
                continue;
            }
            if !files.is_empty() {
                let files = files.into_iter().collect();
                edit.push(EditItem::RemoveRunFiles { partition, run: run.id, files });
            }
            if !added.is_empty() || run.newest_seq < newest_seq {
                added.sort_by(|a, b| a.smallest.cmp(&b.smallest));
                edit.push(EditItem::ExtendRun { partition, run: run.id, newest_seq, files: added });
            }
        }
        if !outputs.is_empty() {
            // Numbered at the commit. The job has claimed all runs that are as old as its inputs, so no other job puts one there.
            let (id, stage, kind) = (RunId::NEXT, self.plan.output_stage, RunKind::Ssts);
            let run = RunMeta { id, stage, kind, clip: None, newest_seq, files: outputs };
            edit.push(EditItem::AddRun { partition, run });
        }
        Ok(Ok(()))
    }
}

impl Piece {
    /// What is left of the part behind what was merged, which ends before `rest`.
    fn rest(
        &self,
        run: &Run,
        part: &RunFile,
        partition: PartitionId,
        rest: Option<&[u8]>,
    ) -> Result<Option<RunFileMeta>> {
        let (Some(rest), Some((first, last))) = (rest, &self.taken) else { return Ok(self.right.clone()) };
        // What was taken may begin behind what was merged.
        let rest = rest.max(&**first);
        match Some(rest).filter(|rest| **rest <= **last) {
            None => Ok(self.right.clone()),
            Some(rest) => {
                let first = edge(run, part, partition, (rest, Toward::NotBelow))?;
                Ok(first.map(|first| run.part_meta(part, partition, (&first, &part.meta.largest))))
            }
        }
    }
}

/// Adds the pieces of `run` that lie in `range`. If it is the `oldest` one, small rests of files are taken too.
fn take_pieces(
    pieces: &mut Vec<Piece>,
    run: &Run,
    partition: PartitionId,
    range: &KeyRange,
    oldest: bool,
) -> Result<()> {
    for part in &run.files[run.first_file_reaching(&range.lower)..] {
        let RunFileMeta { smallest, largest, .. } = &part.meta;
        if range.ends_before(smallest) {
            break;
        }
        let mut first = smallest.clone();
        if *first < *range.lower {
            let Some(found) = edge(run, part, partition, (&range.lower, Toward::NotBelow))? else { continue };
            first = found;
        }
        let mut last = largest.clone();
        if let Some(upper) = range.upper.as_deref().filter(|upper| **upper <= *last) {
            let Some(found) = edge(run, part, partition, (upper, Toward::Below))? else { continue };
            last = found;
        }
        let (mut taken, mut left, mut right) = (None, None, None);
        if first <= last {
            if first > *smallest {
                left = edge(run, part, partition, (&first, Toward::Below))?;
            }
            if last < *largest {
                right = edge(run, part, partition, (&successor(&last), Toward::NotBelow))?;
            }
            taken = Some((first, last));
        } else if oldest {
            // No key of the part is in the range: one is the last below it, the other one the first above it.
            (left, right) = (Some(last), Some(first));
        } else {
            continue;
        }
        let mut left = left.map(|left| run.part_meta(part, partition, (smallest, &left)));
        let mut right = right.map(|right| run.part_meta(part, partition, (&right, largest)));
        // A part of a shared file is measured by its entries, part of another one by its bytes in the file.
        let summary = &part.file.summary;
        let whole = if run.kind == RunKind::Section { summary.raw_bytes } else { summary.file_len };
        let is_small = |rest: &mut RunFileMeta| oldest && rest.bytes < whole / REST_MIN_SHARE;
        for small in [left.take_if(is_small), right.take_if(is_small)].into_iter().flatten() {
            taken = Some(match taken {
                None => (small.smallest, small.largest),
                Some((first, last)) => (first.min(small.smallest), last.max(small.largest)),
            });
        }
        pieces.push(Piece { run: run.id, part: part.meta.clone(), taken, left, right });
    }
    Ok(())
}

/// The pieces of `run` as a run of its own.
fn inside(run: &Run, pieces: &[Piece], partition: PartitionId) -> Arc<Run> {
    let piece_of = |part: &RunFile| {
        let is_of = |piece: &&Piece| piece.run == run.id && piece.part.smallest == part.meta.smallest;
        let Piece { taken, left, right, .. } = pieces.iter().find(is_of)?;
        let (smallest, largest) = taken.as_ref()?;
        let is_all = left.is_none() && right.is_none();
        Some(if is_all {
            part.clone()
        } else {
            part.with_part(run.part_meta(part, partition, (smallest, largest)))
        })
    };
    Arc::new(run.with_files(run.files.iter().filter_map(piece_of).collect()))
}

/// The first key of a part that is not below a key, or the last one below it. Reads at most two blocks, through the cache.
fn edge(
    run: &Run,
    part: &RunFile,
    partition: PartitionId,
    (user_key, toward): (&[u8], Toward),
) -> Result<Option<Box<[u8]>>> {
    let stored = match run.kind {
        RunKind::Ssts => user_key.into(),
        RunKind::Section => partition_key(partition, user_key),
    };
    let mut cursor = SstCursor::new(Arc::clone(part.sst()), CursorMode::Cached);
    match toward {
        Toward::NotBelow => cursor.seek(&stored),
        Toward::Below => cursor.seek_before(&stored),
    }?;
    if !cursor.valid() {
        return Ok(None);
    }
    let found = match run.kind {
        RunKind::Ssts => cursor.key(),
        RunKind::Section => cursor.key().get(PARTITION_PREFIX_LEN..).unwrap_or_default(),
    };
    let is_inside = *part.meta.smallest <= *found && *found <= *part.meta.largest;
    Ok(is_inside.then(|| found.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use pleach_env::SimEnv;

    use super::*;
    use crate::picker::{RangeWork, Situation, WholePlan, pick_range};
    use crate::trace;
    use crate::{Db, Options};

    const DEFAULT: PartitionId = PartitionId(0);

    fn open() -> Db {
        let options = Options::new().env(SimEnv::new(1)).memory(64 << 20).runs_per_stage(20);
        options.sst_bytes(16 << 10).open("/store").unwrap()
    }

    fn write(db: &Db, keys: std::ops::Range<u32>, letters: &[char]) {
        for letter in letters {
            keys.clone()
                .for_each(|i| db.default_partition().put(format!("{letter}{i:04}"), [7; 50]).unwrap());
        }
        db.flush().unwrap();
    }

    fn range(lower: &[u8], upper: &[u8]) -> KeyRange {
        KeyRange { lower: lower.into(), upper: Some(upper.into()) }
    }

    fn runs(db: &Db) -> Vec<RunId> {
        let state = db.inner().upkeep.version_set.state.load_full();
        state.version.tree(DEFAULT).unwrap().runs.iter().map(|run| run.id).collect()
    }

    fn pick(db: &Db, range: &KeyRange, busy: &[RunId]) -> RangeWork {
        let upkeep = &db.inner().upkeep;
        let state = upkeep.version_set.state.load_full();
        let situation = Situation { tree: state.version.tree(DEFAULT).unwrap(), busy, now: 0 };
        pick_range(&upkeep.ctx.options.policy(true), situation, range)
    }

    /// A merge of runs between the inputs of a range is about to enter the version while the range's commit makes them older.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the other thread comes to a lock meanwhile")]
    fn a_merge_that_starts_beside_a_commit_has_the_age_of_its_inputs() {
        let db = open();
        write(&db, 0..500, &['a', 'z']);
        db.compact().unwrap();
        write(&db, 0..10, &['z']);
        write(&db, 10..20, &['z']);
        write(&db, 0..10, &['a']);
        let upkeep = &db.inner().upkeep;
        let (ids, (_, output)) = (runs(&db), upkeep.version_set.plan_basis());
        assert_eq!(ids.len(), 4);
        let RangeWork::Due(plan) = pick(&db, &range(b"a", b"b"), &[]) else { panic!("there is a range") };
        assert_eq!((&plan.inputs[..], &plan.claimed[..]), (&[ids[0], ids[3]][..], &[ids[0], ids[3]][..]));
        let mut job = CompactionJob::start_range(upkeep, DEFAULT, plan, 1).unwrap();
        assert!(job.prepare_range(upkeep).unwrap());
        while !job.merging.is_done() {
            let older = job.older_runs(upkeep).unwrap();
            job.write_file(upkeep, &older, &trace::compaction(DEFAULT, job.output_stage, 2)).unwrap();
        }
        job.outputs.sync_names(upkeep).unwrap();
        let inputs = vec![ids[1], ids[2]];
        let between = WholePlan { inputs, output_stage: 1, drops_tombstones: false, converts: false };
        thread::scope(|scope| {
            let (begin, begins) = channel();
            let starts = scope.spawn(move || {
                begins.recv().unwrap();
                CompactionJob::start(upkeep, DEFAULT, between, output).map(|job| job.is_some())
            });
            let make = || {
                begin.send(()).unwrap();
                thread::sleep(Duration::from_millis(30));
                job.edit(upkeep, true)
            };
            assert!(upkeep.version_set.commit_made(make).unwrap());
            assert!(starts.join().unwrap().unwrap());
        });
        upkeep.version_set.state.load().version.check_invariants().unwrap();
        db.default_partition().put("b", "1").unwrap();
    }

    #[test]
    fn a_range_whose_output_is_a_new_run_keeps_merges_of_older_runs_off() {
        let db = open();
        let other = db.partition("other").unwrap();
        for letters in [['z', 'y'], ['a', 'b'], ['a', 'c']] {
            other.put(letters[0].to_string(), "1").unwrap();
            write(&db, 0..2, &letters);
        }
        let ids = runs(&db);
        assert_eq!(ids.len(), 3);
        let RangeWork::Due(plan) = pick(&db, &range(b"a", b"b"), &[]) else { panic!("there is a range") };
        assert_eq!((plan.output, &plan.inputs[..], &plan.claimed), (None, &ids[..2], &ids));
        assert_eq!(pick(&db, &range(b"a", b"b"), &ids[2..]), RangeWork::Waits);
    }
}
