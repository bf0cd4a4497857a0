//! History: a run of random actions without a crash, with a capture of the disk before every call.
//!
//! The crash test runs a history once, and then opens many stores from it: [`History::cuts`] chooses the calls at which the
//! machine crashes, and what the disk keeps is decided when a state is visited ([`State`](super::state::State)). Five kinds of
//! histories lead to different rare states ([`Kind`]).

use fastrand::Rng;
use pleach::env::{Capture, CrashPolicy};

use super::cut::Cut;
use super::state::Branch;
use crate::rig::action::Action;
use crate::rig::driver::Driver;
use crate::rig::plan::Plan;
use crate::rig::setup::{Setup, machine};
use crate::rig::world::World;

/// Upper bound of the calls of a history; arbitrary.
const CALLS_MAX: u64 = 1 << 17;

/// States visited for each call of a short history.
const STATES_PER_CALL: usize = 3;

/// States visited for each history of another kind.
const STATES_OF_LONG: usize = 120;

/// A history of levels whose files were not merged goes on up to this number of actions.
const ACTIONS_UP_TO_A_MERGE: usize = 1000;

/// Actions from one sync to the next in a history of failing appends.
const ACTIONS_A_FAILURE: usize = 3;

/// The kind of a history.
#[derive(Clone, Copy)]
enum Kind {
    /// Few actions; crashes at every call.
    Short,
    /// Many actions; crashes at random calls.
    Long,
    /// A sync, an append that fails, an append that succeeds, and again from the start; crashes before each sync. The other
    /// kinds rarely test how a failed append is undone.
    FullDisk(After),
    /// Mostly several clients at the same time; crashes at random calls.
    Clients,
    /// Levels of several files; most crashes come while single files are merged into the next level.
    Levels,
}

/// The action after a failed append.
#[derive(Clone, Copy)]
enum After {
    /// A small batch, mostly in the same sector of the log.
    Small,
    /// A batch that fills a memtable. The log continues in another segment while the memtable of the failed append awaits its
    /// flush.
    Large,
}

impl Kind {
    /// The kind of the history of `seed`. Any twelve seeds in a row have all kinds: if chance chose, one campaign of some
    /// hundred histories in a few thousand would lack one.
    fn of(seed: u64) -> Self {
        match seed % 12 {
            0..3 => Kind::Short,
            3 | 4 => Kind::FullDisk(After::Small),
            5 => Kind::FullDisk(After::Large),
            6 | 7 => Kind::Clients,
            8 => Kind::Levels,
            _ => Kind::Long,
        }
    }

    /// The number of actions.
    fn len(self, rng: &mut Rng) -> usize {
        match self {
            Kind::Short => rng.usize(5..40),
            Kind::Long => rng.usize(100..400),
            Kind::FullDisk(After::Small) => 40 * ACTIONS_A_FAILURE,
            Kind::FullDisk(After::Large) => 20 * ACTIONS_A_FAILURE,
            Kind::Clients => rng.usize(10..40),
            Kind::Levels => rng.usize(150..350),
        }
    }

    /// The options of the store and the plan of its actions.
    fn start(self, rng: &mut Rng) -> (Setup, Plan) {
        let setup = Setup::random(rng);
        if let Kind::Levels = self {
            return Plan::of_levels(rng, setup);
        }
        let mut plan = Plan::new(rng.fork(), &setup);
        if let Kind::Clients = self {
            plan.mix.togethers = 500;
        }
        (setup, plan)
    }
}

/// Action `number` of a history of failing appends.
fn failing(number: usize, after: After, plan: &mut Plan, world: &World, setup: &Setup) -> Action {
    let mut ops = plan.small_ops(world);
    match (number % ACTIONS_A_FAILURE, after) {
        (0, _) => Action::Write { ops, sync: true },
        (1, _) if plan.rng.u8(..5) == 0 => plan.on_full_disk(world),
        (1, _) => Action::OnFullDisk(Box::new(Action::Write { ops, sync: false }), 0),
        (_, After::Small) => Action::Write { ops, sync: false },
        (_, After::Large) => {
            ops[0].value = Some(plan.value(setup.memtable_bytes));
            Action::Write { ops, sync: true }
        }
    }
}

/// See the module's text.
pub(super) struct History {
    driver: Driver,
    plan: Plan,
    /// Each with the number of calls before it.
    actions: Vec<(u64, Action)>,
    /// The disk before each call, and at the end.
    captures: Vec<Capture>,
    kind: Kind,
}

impl History {
    /// Runs the history of `seed`.
    ///
    /// # Panics
    /// If the store breaks a promise without a crash.
    pub(super) fn run(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kind = Kind::of(seed);
        let (setup, mut plan) = kind.start(&mut rng);
        let env = machine(rng.u64(..));
        env.capture_at(&(0..CALLS_MAX).collect::<Vec<_>>());
        let mut driver = Driver::create(env, setup).expect("a store can be created");
        let mut actions = Vec::new();
        let len = kind.len(&mut rng);
        for number in 0.. {
            let is_short_of_merges =
                matches!(kind, Kind::Levels) && driver.timeline.moments_of_merges().is_empty();
            if number >= len && (number >= ACTIONS_UP_TO_A_MERGE || !is_short_of_merges) {
                break;
            }
            let action = match kind {
                Kind::FullDisk(after) => failing(number, after, &mut plan, driver.world(), &setup),
                _ => plan.next(driver.world()),
            };
            let begun = driver.env.op_count();
            let done = driver.must(&action);
            assert!(done.is_ok(), "{} after {actions:?}", done.unwrap_err());
            actions.push((begun, action));
        }
        let mut captures: Vec<_> = driver.env.captured().into_iter().map(|(_, capture)| capture).collect();
        assert_eq!(captures.len() as u64, driver.env.op_count(), "every moment was captured");
        captures.push(driver.env.capture());
        Self { driver, plan, actions, captures, kind }
    }

    /// The crashes to try.
    pub(super) fn cuts(&self, rng: &mut Rng) -> Vec<Cut> {
        if let Kind::FullDisk(_) = self.kind {
            return self.cuts_after_failures(rng);
        }
        self.moments(rng).into_iter().map(|op| Cut::random(op, rng)).collect()
    }

    /// The calls before which the crashes come.
    fn moments(&self, rng: &mut Rng) -> Vec<u64> {
        let count = self.captures.len() as u64;
        if let Kind::Short = self.kind {
            return (0..count).flat_map(|op| [op; STATES_PER_CALL]).collect();
        }
        let merges = self.driver.timeline.moments_of_merges();
        let moment = |number| match rng.choice(&merges) {
            Some(moment) if matches!(self.kind, Kind::Levels) && number % 4 > 0 => *moment,
            _ => rng.u64(..count),
        };
        (0..STATES_OF_LONG).map(moment).collect()
    }

    /// Three crashes before each sync, that is, after a failed append and one that succeeded. The sector of the log then held
    /// the failed record for a while. Half of the crashes use the policy `Between`, which mostly keeps such intermediate
    /// contents.
    fn cuts_after_failures(&self, rng: &mut Rng) -> Vec<Cut> {
        let begun = self.actions.iter().step_by(ACTIONS_A_FAILURE).map(|(begun, _)| *begun);
        let cut = |op| match Cut::random(op, rng) {
            cut if rng.bool() => Cut { policy: CrashPolicy::Between, ..cut },
            cut => cut,
        };
        begun.flat_map(|begun| [begun; 3]).map(cut).collect()
    }

    pub(super) fn actions(&self) -> &[(u64, Action)] {
        &self.actions
    }

    pub(super) fn branch(&self) -> Branch<'_> {
        Branch {
            setup: self.driver.setup,
            plan: &self.plan,
            timeline: &self.driver.timeline,
            captures: &self.captures,
        }
    }
}
