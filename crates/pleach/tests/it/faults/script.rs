//! The history that is struck by faults.

use std::sync::{Arc, Mutex};

use fastrand::Rng;
use pleach::env::SimEnv;
use pleach::{LearnedIndex, Shape};

use crate::rig::action::{Action, Op};
use crate::rig::driver::Driver;
use crate::rig::happened::{CONVERSIONS, COPIES, GROUPS, LEARNED, MOVES, PACKED, TRAINED_LATER};
use crate::rig::plan::{Mix, Plan};
use crate::rig::setup::{Setup, machine};
use crate::rig::world::World;

/// Actions of the history.
const ACTIONS: usize = 200;

/// The running store is compared with the oracle after every so many actions.
pub(super) const CHECK_EVERY: usize = 20;

/// The actions, and their calls when nothing fails.
pub(super) struct Script {
    pub(super) setup: Setup,
    pub(super) actions: Vec<Action>,
    seed: u64,
    /// Names of the mutating calls.
    names: Vec<&'static str>,
    /// Numbers of those that background jobs make.
    of_jobs: Vec<u64>,
    reads: u64,
    opens: u64,
}

impl Script {
    /// The history that `seed` makes in a store of this shape. With learned indexes SSTs are larger, so that they have the
    /// two blocks which a model needs. The clients that run together must make a commit of several batches, and learned
    /// indexes must be trained while the machine is idle too, and separated values be copied, moved and put in order. `None` if
    /// not, as with one seed in ten: take the next one.
    pub(super) fn new(seed: u64, shape: Shape, learned: LearnedIndex, separate_at: usize) -> Option<Self> {
        let setup = Setup {
            memtable_bytes: 16 << 10,
            sst_bytes: if learned == LearnedIndex::Never { 4 << 10 } else { 16 << 10 },
            shape: Some(shape),
            compaction_threads: 1,
            runs_per_stage: 2,
            clean_every: 1,
            filter_bits: 10,
            compression: Some(separate_at > 0),
            direct_reads: false,
            learned: Some(learned),
            separate_at: Some(separate_at),
        };
        let (actions, names, of_jobs) = Default::default();
        let mut script = Self { setup, actions, seed, names, of_jobs, reads: 0, opens: 0 };
        let happened = script.record();
        let has = |wanted| happened.iter().any(|(what, count)| *what == wanted && *count > 0);
        let trains = learned == LearnedIndex::Never || has(LEARNED) && has(TRAINED_LATER);
        let moves = separate_at == 0 || [COPIES, MOVES, CONVERSIONS, PACKED].into_iter().all(has);
        (has(GROUPS) && trains && moves).then_some(script)
    }

    /// The machine on which it is run.
    pub(super) fn machine(&self) -> Arc<SimEnv> {
        machine(self.seed)
    }

    pub(super) fn calls(&self) -> u64 {
        self.names.len() as u64
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    pub(super) fn calls_of_jobs(&self) -> &[u64] {
        &self.of_jobs
    }

    pub(super) fn opens(&self) -> u64 {
        self.opens
    }

    /// Whether the call of this number is a barrier.
    pub(super) fn is_sync(&self, call: u64) -> bool {
        self.names[usize::try_from(call).expect("few")].starts_with("sync")
    }

    pub(super) fn print(&self) {
        for (number, action) in self.actions.iter().enumerate() {
            println!("{number:>4} {action:?}");
        }
    }

    /// Runs the history; what came up in it.
    fn record(&mut self) -> [(&'static str, u64); 14] {
        let env = self.machine();
        let calls: Arc<Mutex<Vec<(&'static str, bool)>>> = Arc::default();
        let (noted, machine) = (Arc::clone(&calls), Arc::downgrade(&env));
        env.on_op(Box::new(move |_, name| {
            let is_of_job = machine.upgrade().is_some_and(|env| env.is_in_job());
            noted.lock().unwrap().push((name, is_of_job));
        }));
        let mut plan = Plan::new(Rng::with_seed(self.seed), &self.setup);
        plan.mix = Mix {
            syncs: 20,
            creates: 30,
            drops: 15,
            flushes: 30,
            compactions: 10,
            settles: 5,
            steps: 150,
            reopens: 10,
            full_disks: 0,
            togethers: 0,
            snapshots: 20,
            synced: 15,
            keys: 60,
        };
        let shape = self.setup.shape;
        let mut driver = Driver::create(Arc::clone(&env), self.setup).expect("a store can be created");
        // Any seed must lead to what the rigs count: some actions have fixed places.
        for number in 0..ACTIONS {
            let action = match number {
                40 | 140 => Action::Keep,
                50 => Action::Create(1),
                60 | 130 | 170 => Action::Together(plan.together(driver.world())),
                94..100 if shape == Some(Shape::Leveled) => fill(number),
                100 => Action::Settle,
                120 => Action::Reopen,
                150 => Action::Compact,
                154 => Action::Convert,
                82 | 115 | 165 | 185 => plan.compact_range(driver.world()),
                160 if driver.world().has(1) => Action::Drop(1),
                _ => plan.next(driver.world()),
            };
            driver.must(&action).expect("nothing fails yet");
            self.actions.push(action);
            if number % CHECK_EVERY == 0 {
                driver.check(&mut Rng::with_seed(number as u64)).expect("nothing fails yet");
            }
        }
        let calls = calls.lock().unwrap();
        self.names = calls.iter().map(|(name, _)| *name).collect();
        self.of_jobs =
            (0..).zip(&*calls).filter(|(_, (_, is_of_job))| *is_of_job).map(|(at, _)| at).collect();
        self.reads = env.read_count();
        self.opens = env.open_count();
        driver.happened()
    }
}

/// A write of more than a memtable. A few of them make a level so large that its files are merged one by one.
fn fill(number: usize) -> Action {
    let mut rng = Rng::with_seed(number as u64);
    let mut value = || std::iter::repeat_with(|| rng.u8(..)).take(4 << 10).collect::<Vec<_>>();
    let op = |at: usize| Op {
        slot: 0,
        key: format!("fill {number} {at}").into_bytes().into(),
        value: Some(value().into()),
    };
    Action::Write { ops: (0..5).map(op).collect(), sync: false }
}

/// The action as far as it makes sense in `world`, where something before it may have failed.
pub(super) fn fit(action: &Action, world: &World) -> Option<Action> {
    let fitting = |ops: &[Op]| ops.iter().filter(|op| world.has(op.slot)).cloned().collect::<Vec<_>>();
    Some(match action {
        Action::Write { ops, sync } => {
            let ops = fitting(ops);
            (!ops.is_empty()).then_some(Action::Write { ops, sync: *sync })?
        }
        Action::Drop(slot) | Action::CompactPartition(slot) | Action::CompactRange(slot, _)
            if !world.has(*slot) =>
        {
            return None;
        }
        action => action.clone(),
    })
}
