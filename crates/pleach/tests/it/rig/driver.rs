//! A store in a simulated machine, with what it ought to hold.

use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Fault, FaultKind, SimEnv};
use pleach::{Db, Durability, Error, ErrorKind};

use super::action::{Action, Op};
use super::compare;
use super::setup::Setup;
use super::timeline::Timeline;
use super::world::{NAMES, World};

/// The store and its oracle.
pub(crate) struct Driver {
    pub(crate) env: Arc<SimEnv>,
    pub(crate) setup: Setup,
    /// Absent after an open that failed.
    db: Option<Db>,
    pub(crate) timeline: Timeline,
}

/// What an action does to the world, apart from being done.
struct Effect {
    world: World,
    seq: u64,
    is_drop: bool,
}

impl Driver {
    /// Creates a store on `env`.
    pub(crate) fn create(env: Arc<SimEnv>, setup: Setup) -> pleach::Result<Self> {
        let db = setup.open(&env)?;
        let timeline = Timeline::of_new_store(env.op_count());
        Ok(Self { env, setup, db: Some(db), timeline })
    }

    /// Goes on with a store that is open.
    pub(crate) fn resume(env: Arc<SimEnv>, setup: Setup, db: Db, timeline: Timeline) -> Self {
        Self { env, setup, db: Some(db), timeline }
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

    /// Does the action and takes note of what it promises.
    pub(crate) fn run(&mut self, action: &Action) -> pleach::Result<()> {
        let effect = self.effect(action);
        // Asking for a partition that is there promises nothing.
        let is_durable = is_durable(action) && (effect.is_some() || !action.is_create());
        let begun = self.env.op_count();
        let result = self.perform(action);
        let ended = self.env.op_count();
        if result.is_ok() && matches!(action, Action::Reopen) {
            let (seq, names) = (self.db().last_sequence_number(), self.db().partitions());
            self.timeline.adopt(seq, &names, ended);
        }
        if let Some(Effect { world, seq, is_drop }) = effect {
            let acknowledged = result.is_ok().then_some(ended);
            self.timeline.add(world, seq, begun, acknowledged, is_drop);
        }
        if result.is_ok() && is_durable {
            self.timeline.mark_durable(ended);
            // Flushes and compactions may find nothing to do.
            if matches!(action, Action::Sync | Action::Create(_) | Action::Drop(_) | Action::Reopen) {
                self.timeline.settle_failures(ended);
            }
        }
        result
    }

    /// As [`Driver::run`], where only a full disk that the action itself asks for may make it fail.
    pub(crate) fn must(&mut self, action: &Action) -> Result<(), String> {
        let result = self.run(action);
        if matches!(action, Action::OnFullDisk(..)) && self.db().poisoned().is_some() {
            // A sync that finds the disk full leaves nothing to be trusted, as every failed sync.
            return self.must(&Action::Reopen);
        }
        match result {
            Ok(()) => Ok(()),
            Err(e) if matches!(action, Action::OnFullDisk(..)) && is_of_full_disk(&e) => Ok(()),
            Err(e) => Err(format!("{action:?} failed: {e}")),
        }
    }

    fn effect(&self, action: &Action) -> Option<Effect> {
        let mut world = World::clone(self.world());
        let (mut seq, mut is_drop) = (self.timeline.seq(), false);
        match action {
            Action::OnFullDisk(action, _) => return self.effect(action),
            Action::Write { ops, .. } => {
                world.write(ops);
                seq += ops.len() as u64;
            }
            Action::Create(slot) if !world.has(*slot) => world.create(*slot),
            Action::Drop(slot) => {
                world.drop_partition(*slot);
                is_drop = true;
            }
            _ => return None,
        }
        Some(Effect { world, seq, is_drop })
    }

    fn perform(&mut self, action: &Action) -> pleach::Result<()> {
        match action {
            Action::OnFullDisk(action, calls) => {
                let at_op = self.env.op_count() + calls;
                self.env.add_fault(Fault { at_op, kind: FaultKind::NoSpace });
                let result = self.perform(action);
                self.env.clear_faults();
                return result;
            }
            Action::Reopen => return self.reopen(),
            Action::Step(count) => {
                for _ in 0..*count {
                    self.env.step_job();
                }
                return Ok(());
            }
            _ => {}
        }
        let db =
            self.db.as_ref().ok_or_else(|| Error::new(ErrorKind::Closed, "the rig has no open store"))?;
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
            Action::Settle => db.settle(),
            Action::OnFullDisk(..) | Action::Reopen | Action::Step(_) => unreachable!("done above"),
        }
    }

    fn reopen(&mut self) -> pleach::Result<()> {
        if let Some(db) = self.db.take() {
            let was_poisoned = db.poisoned().is_some();
            match db.close() {
                // It tells once more what has been told.
                Err(error) if was_poisoned && error.kind() == ErrorKind::Poisoned => {}
                result => result?,
            }
        }
        self.db = Some(self.setup.open(&self.env)?);
        Ok(())
    }

    /// Compares the running store with the oracle.
    pub(crate) fn check(&self, rng: &mut Rng) -> Result<(), String> {
        let (db, seq) = (self.db(), self.timeline.seq());
        if db.last_sequence_number() != seq {
            return Err(format!("expected sequence number {seq}, found {}", db.last_sequence_number()));
        }
        compare::check(db, self.world(), self.world(), rng)
    }
}

impl Drop for Driver {
    /// The store goes without touching its disk.
    fn drop(&mut self) {
        self.env.power_off();
    }
}

/// A sync that finds the disk full poisons the store, and whoever waits is told that.
fn is_of_full_disk(error: &Error) -> bool {
    error.is_out_of_space() || error.kind() == ErrorKind::Poisoned
}

fn is_durable(action: &Action) -> bool {
    match action {
        Action::Write { sync, .. } => *sync,
        Action::OnFullDisk(action, _) => is_durable(action),
        Action::Step(_) => false,
        // Flushes and compactions write everything to files first.
        _ => true,
    }
}

/// Single operations take the short way of the interface, as users do.
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
