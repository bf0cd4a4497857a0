//! A history without a crash, kept with the disk of every moment.

use fastrand::Rng;
use pleach::Shape;
use pleach::env::{Capture, CrashPolicy, SimEnv};

use super::cut::Cut;
use super::state::Branch;
use crate::rig::action::Action;
use crate::rig::driver::Driver;
use crate::rig::plan::{Mix, Plan};
use crate::rig::setup::Setup;
use crate::rig::world::World;

/// More calls than any history makes.
const CALLS_MAX: u64 = 1 << 17;

/// States of each call of a short history.
const STATES_PER_CALL: usize = 3;

/// States of a long history.
const STATES_OF_LONG: usize = 120;

/// Actions of a history of failing appends from one sync to the next.
const ACTIONS_A_FAILURE: usize = 3;

/// The kind of a history.
#[derive(Clone, Copy)]
enum Kind {
    /// Cut at every call.
    Short,
    /// Cut here and there.
    Long,
    /// A sync, an append that fails, another that does not, and so on; cut before each sync. Much hangs on how a failed
    /// append is undone, and little of that is seen elsewhere.
    FullDisk(After),
    /// Several clients beside each other again and again, cut anywhere.
    Clients,
    /// Levels of several files, cut mostly while files are merged one by one.
    Levels,
}

/// The actions after an append that failed.
#[derive(Clone, Copy)]
enum After {
    /// A small batch, mostly in the same sector.
    Small,
    /// One that fills a memtable, so that the log goes on in another segment while the failed one is not flushed.
    Large,
}

impl Kind {
    fn random(rng: &mut Rng) -> Self {
        match rng.u8(..12) {
            0..3 => Kind::Short,
            3 | 4 => Kind::FullDisk(After::Small),
            5 => Kind::FullDisk(After::Large),
            6 | 7 => Kind::Clients,
            8 => Kind::Levels,
            _ => Kind::Long,
        }
    }

    /// How many actions it has.
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

    /// A store and a plan for it.
    fn start(self, rng: &mut Rng) -> (Setup, Plan) {
        let mut setup = Setup::random(rng);
        if let Kind::Levels = self {
            setup = Setup { memtable_bytes: 16 << 10, sst_bytes: 4 << 10, runs_per_stage: 2, ..setup };
            setup.shape = Some(Shape::Leveled);
        }
        let mut plan = Plan::new(rng.fork(), &setup);
        match self {
            Kind::Levels => {
                plan.mix = Mix { creates: 2, drops: 2, compactions: 1, settles: 20, keys: 400, ..plan.mix };
            }
            Kind::Clients => plan.mix.togethers = 500,
            _ => {}
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

/// The actions, and the disk before each call.
pub(super) struct History {
    driver: Driver,
    plan: Plan,
    /// With the number of calls before each.
    actions: Vec<(u64, Action)>,
    captures: Vec<Capture>,
    kind: Kind,
}

impl History {
    /// The history that `seed` makes.
    ///
    /// # Panics
    /// When the store fails without any crash.
    pub(super) fn run(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kind = Kind::random(&mut rng);
        let (setup, mut plan) = kind.start(&mut rng);
        let env = SimEnv::new(rng.u64(..));
        env.capture_at(&(0..CALLS_MAX).collect::<Vec<_>>());
        let mut driver = Driver::create(env, setup).expect("a store can be created");
        let mut actions = Vec::new();
        for number in 0..kind.len(&mut rng) {
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

    /// By the number of the call that comes next.
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

    /// Before each sync that follows a failed append and another that did not fail. A sector of the log has then held the
    /// failed record, and half of the crashes mostly leave such states between.
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
