//! Driver: a store in a simulated machine, with its expected content.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use pleach::env::{Fault, FaultKind, SimEnv, failpoint};
use pleach::{Db, Durability, Error, ErrorKind, Partition, Snapshot};

use super::action::{Action, Op};
use super::compare;
use super::happened::{
    CONVERSIONS, COPIES, CUTS, FULL_DISKS, GROUPS, KEPT_MANIFESTS, LEARNED, MERGES, MOVES, PACKED, SEGMENTS,
    SNAPSHOTS, STORES, TRAINED_LATER,
};
use super::query::{Query, Source};
use super::setup::Setup;
use super::timeline::{Timeline, When};
use super::together::Together;
use super::world::{NAMES, World};

/// The report of a packed value that was read.
pub(crate) const UNPACKED: &str = "value.unpacked";

/// The store and its oracle.
pub(crate) struct Driver {
    pub(crate) env: Arc<SimEnv>,
    pub(crate) setup: Setup,
    /// `None` after a failed open.
    db: Option<Db>,
    pub(crate) timeline: Timeline,
    /// Kept snapshots, oldest first.
    kept: VecDeque<Kept>,
    /// The promise that the last action broke.
    violation: Option<String>,
    /// Name of the call that found the disk full last.
    struck: Arc<Mutex<Option<&'static str>>>,
    full_disks: u64,
    manifests_kept: u64,
    /// Whether separated values were put in order.
    has_converted: bool,
    trained_later: u64,
    /// Range compactions that have left parts of files.
    cuts: u64,
}

/// A snapshot, handles of its partitions, and their contents.
type Kept = (Snapshot, Vec<(usize, Partition)>, Arc<World>);

impl Driver {
    /// Creates a store on `env`.
    pub(crate) fn create(env: Arc<SimEnv>, setup: Setup) -> pleach::Result<Self> {
        let _of_others = failpoint::take_report(UNPACKED);
        let db = setup.open(&env)?;
        let timeline = Timeline::of_new_store(env.op_count());
        Ok(Self::resume(env, setup, db, timeline))
    }

    /// Continues with an open store.
    pub(crate) fn resume(env: Arc<SimEnv>, setup: Setup, db: Db, timeline: Timeline) -> Self {
        let (kept, violation, struck, full_disks, manifests_kept, trained_later, cuts) = Default::default();
        let (db, has_converted) = (Some(db), false);
        Self {
            env,
            setup,
            db,
            timeline,
            kept,
            violation,
            struck,
            full_disks,
            manifests_kept,
            has_converted,
            trained_later,
            cuts,
        }
    }

    pub(crate) fn db(&self) -> &Db {
        self.db.as_ref().expect("the last open succeeded")
    }

    pub(crate) fn is_open(&self) -> bool {
        self.db.is_some()
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        self.timeline.world()
    }

    /// Runs the action and records its promises in the timeline.
    pub(crate) fn run(&mut self, action: &Action) -> pleach::Result<()> {
        let (begun, seen_seq) = (self.env.op_count(), self.timeline.seq());
        for name in REPORTS {
            let _of_others = failpoint::take_report(name);
        }
        let merged = self.files_merged();
        let result = self.perform(action);
        let when = When { begun, ended: self.env.op_count(), done: result.is_ok() };
        if merged != self.files_merged() {
            self.timeline.note_merge(when);
        }
        if failpoint::take_report("log.pieces").is_some() {
            self.timeline.note_pieces(when);
        }
        self.manifests_kept += u64::from(failpoint::take_report("manifest.kept").is_some());
        self.trained_later += failpoint::take_report("index.trained").unwrap_or(0);
        self.cuts += u64::from(failpoint::take_report("compaction.cut").is_some());
        let converts = matches!(action.itself(), Action::Convert | Action::Together(_));
        let has_converted = |db: &Db| db.stats().value_converted_bytes > 0;
        self.has_converted |= converts && self.db.as_ref().is_some_and(has_converted);
        self.account(action.itself(), when, seen_seq);
        result
    }

    /// Counts so far, for [`Happened`](super::happened::Happened).
    pub(crate) fn happened(&self) -> [(&'static str, u64); 14] {
        let [groups, snapshots, merges] = self.timeline.happened();
        let stats = self.db.as_ref().map(Db::stats);
        [
            (GROUPS, groups),
            (SNAPSHOTS, snapshots),
            (MERGES, merges),
            (CUTS, self.cuts),
            (TRAINED_LATER, self.trained_later),
            (SEGMENTS, stats.as_ref().map_or(0, |s| s.value_files)),
            (COPIES, stats.as_ref().map_or(0, |s| u64::from(s.value_copied_bytes > 0))),
            (MOVES, stats.as_ref().map_or(0, |s| u64::from(s.value_moved_bytes + s.value_table_bytes > 0))),
            (CONVERSIONS, u64::from(self.has_converted)),
            (PACKED, u64::from(failpoint::take_report(UNPACKED).is_some())),
            (LEARNED, self.db.as_ref().map_or(0, |db| db.stats().ssts_learned)),
            (STORES, self.env.store_count()),
            (FULL_DISKS, self.full_disks),
            (KEPT_MANIFESTS, self.manifests_kept),
        ]
    }

    /// Compactions of single files since the store was opened.
    fn files_merged(&self) -> u64 {
        self.db.as_ref().map_or(0, |db| db.stats().partial_compactions)
    }

    fn account(&mut self, action: &Action, when: When, seen_seq: u64) {
        let timeline = &mut self.timeline;
        let first_seq = failpoint::take_report("commit.first_seq").unwrap_or(0);
        let is_over = match action {
            Action::Write { ops, .. } => {
                let names = timeline.names();
                let ops: Vec<_> = ops.iter().map(|op| (names[&op.slot], op.clone())).collect();
                if first_seq > 0 {
                    self.violation = timeline.add_batch(&ops, first_seq, when).err();
                } else if when.done {
                    self.violation = Some("a batch was acknowledged and did not go to the log".to_owned());
                }
                false
            }
            Action::Create(slot) if !timeline.names().contains_key(slot) => {
                let life = timeline.new_life();
                timeline.add_change(*slot, Some(life), seen_seq, when);
                true
            }
            Action::Drop(slot) => {
                timeline.add_change(*slot, None, seen_seq, when);
                true
            }
            Action::Reopen if when.done => {
                let db = self.db.as_ref().expect("just opened");
                timeline.adopt(db.last_sequence_number(), &db.partitions(), when.ended);
                true
            }
            // The creation of a present partition promises nothing.
            Action::Create(_) => return,
            // A flush or compaction may have nothing to do.
            action => matches!(action, Action::Sync),
        };
        if when.done && is_durable(action) {
            self.timeline.mark_durable(when.ended, self.timeline.seq());
            if is_over {
                self.timeline.settle_failures(when);
            }
        }
    }

    /// As [`Driver::run`]. The action may fail only if it asks for a full disk.
    pub(crate) fn must(&mut self, action: &Action) -> Result<(), String> {
        let result = self.run(action);
        if let Some(violation) = self.violation.take() {
            return Err(format!("{action:?}: {violation}"));
        }
        let on_full_disk = matches!(action, Action::OnFullDisk(..));
        if on_full_disk && let Some(cause) = self.db().poisoned() {
            // Only a failed sync may poison the store.
            let struck = self.struck.lock().unwrap().unwrap_or("no call");
            if !struck.starts_with("sync") {
                return Err(format!(
                    "{action:?}: {struck} met a full disk, and the store is poisoned: {cause}"
                ));
            }
            return self.must(&Action::Reopen);
        }
        match result {
            Ok(()) => Ok(()),
            Err(e) if on_full_disk && e.is_out_of_space() => Ok(()),
            Err(e) => Err(format!("{action:?} failed: {e}")),
        }
    }

    fn perform(&mut self, action: &Action) -> pleach::Result<()> {
        match action {
            Action::OnFullDisk(action, calls) => {
                let at_op = self.env.op_count() + calls;
                self.env.add_fault(Fault { at_op, kind: FaultKind::NoSpace });
                self.note_call(at_op);
                let result = self.perform(action);
                self.env.clear_faults();
                self.full_disks += u64::from(self.struck.lock().unwrap().is_some());
                return result;
            }
            Action::Reopen => return self.reopen(),
            Action::Together(together) => return self.run_together(together),
            Action::Keep => {
                self.keep();
                return Ok(());
            }
            Action::Release => return self.release(),
            Action::Step(count) => {
                for _ in 0..*count {
                    self.env.step_job();
                }
                return Ok(());
            }
            _ => {}
        }
        let db = self.db.as_ref().ok_or_else(no_store)?;
        let partition =
            |slot: usize| db.find_partition(NAMES[slot]).expect("actions name partitions that are there");
        match action {
            Action::Write { ops, sync } => write(db, ops, *sync),
            Action::Sync => db.sync(),
            Action::Create(slot) => db.partition(NAMES[*slot]).map(drop),
            Action::Drop(slot) => db.drop_partition(partition(*slot)),
            Action::Flush => db.flush(),
            Action::Compact => db.compact(),
            Action::CompactPartition(slot) => partition(*slot).compact(),
            Action::CompactRange(slot, [lower, upper]) => {
                partition(*slot).compact_range::<&[u8]>(&lower[..]..&upper[..])
            }
            Action::Convert => db.convert().map(drop),
            Action::Settle => db.settle(),
            _ => unreachable!("done above"),
        }
    }

    /// Records the name of the call with this number.
    fn note_call(&self, at_op: u64) {
        let struck = Arc::clone(&self.struck);
        *struck.lock().unwrap() = None;
        self.env.on_op(Box::new(move |number, name| {
            if number == at_op {
                *struck.lock().unwrap() = Some(name);
            }
        }));
    }

    fn run_together(&mut self, together: &Together) -> pleach::Result<()> {
        let db = self.db.clone().ok_or_else(no_store)?;
        let outcome = together.run(&self.env, &db, &mut self.timeline);
        self.violation = self.violation.take().or(outcome.violation);
        outcome.errors.into_iter().next().map_or(Ok(()), Err)
    }

    fn keep(&mut self) {
        let Some(db) = &self.db else { return };
        let handle = |slot: usize| Some((slot, db.find_partition(NAMES[slot])?));
        let handles = self.world().slots().into_iter().filter_map(handle).collect();
        self.kept.push_back((db.snapshot(), handles, Arc::clone(self.world())));
        self.timeline.kept_since(self.kept.len(), self.env.op_count());
    }

    fn release(&mut self) -> pleach::Result<()> {
        let Some((snapshot, handles, world)) = self.kept.pop_front() else { return Ok(()) };
        self.timeline.kept_since(self.kept.len(), self.env.op_count());
        for (slot, _) in &handles {
            let query = Query::all_of(*slot);
            let answer = query.ask(Source::Snapshot(&snapshot, &handles))?;
            if answer != query.expected(&world) {
                self.violation = Some(format!("a snapshot of {} has changed", NAMES[*slot]));
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> pleach::Result<()> {
        self.kept.clear();
        self.timeline.kept_since(0, self.env.op_count());
        if let Some(db) = self.db.take() {
            let was_poisoned = db.poisoned().is_some();
            match db.close() {
                // The close of a poisoned store repeats the error that poisoned it.
                Err(error) if was_poisoned && error.kind() == ErrorKind::Poisoned => {}
                result => result?,
            }
        }
        self.db = Some(self.setup.open(&self.env)?);
        Ok(())
    }

    /// Compares the running store with the oracle.
    pub(crate) fn check(&self, rng: &mut Rng) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        let (db, seq) = (self.db(), self.timeline.seq());
        if db.last_sequence_number() != seq {
            return Err(format!("expected sequence number {seq}, found {}", db.last_sequence_number()));
        }
        compare::check(db, self.world(), self.world(), rng)
    }
}

impl Drop for Driver {
    /// Drops the store without a change of the disk.
    fn drop(&mut self) {
        self.env.power_off();
    }
}

/// Names of the numbers that the engine reports to the rigs.
const REPORTS: [&str; 5] =
    ["commit.first_seq", "commit.group", "partition.order", "partition.last_seq", "log.pieces"];

fn no_store() -> Error {
    Error::new(ErrorKind::Closed, "the rig has no open store")
}

fn is_durable(action: &Action) -> bool {
    match action {
        Action::Write { sync, .. } => *sync,
        Action::OnFullDisk(action, _) => is_durable(action),
        // A range compaction flushes only what it needs.
        Action::Step(_) | Action::Together(_) | Action::Keep | Action::Release | Action::CompactRange(..) => {
            false
        }
        // Flushes and compactions write everything to files first.
        _ => true,
    }
}

/// Writes a single operation without a batch, as users do.
fn write(db: &Db, ops: &[Op], sync: bool) -> pleach::Result<()> {
    let durability = if sync { Durability::Sync } else { Durability::Buffered };
    let partition =
        |op: &Op| db.find_partition(NAMES[op.slot]).expect("writes go to partitions that are there");
    if let [op] = ops {
        return match &op.value {
            Some(value) => partition(op).put_with(&op.key, value, durability),
            None => partition(op).delete_with(&op.key, durability),
        };
    }
    let mut batch = db.batch();
    for op in ops {
        match &op.value {
            Some(value) => batch.put(&partition(op), &op.key, value),
            None => batch.delete(&partition(op), &op.key),
        }
    }
    batch.commit(durability)
}
