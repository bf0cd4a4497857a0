//! A history without a crash, kept with the disk of every moment.

use fastrand::Rng;
use pleach::env::{Capture, SimEnv};

use super::state::Branch;
use crate::rig::action::Action;
use crate::rig::driver::Driver;
use crate::rig::plan::Plan;
use crate::rig::setup::Setup;

/// More calls than any history makes.
const CALLS_MAX: u64 = 1 << 17;

/// What was done, and the disk before each call.
pub(super) struct History {
    driver: Driver,
    plan: Plan,
    /// With the number of calls before each.
    actions: Vec<(u64, Action)>,
    captures: Vec<Capture>,
    is_short: bool,
}

impl History {
    /// The history that `seed` makes.
    ///
    /// # Panics
    /// When the store fails without any crash.
    pub(super) fn run(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let setup = Setup::random(&mut rng);
        let env = SimEnv::new(rng.u64(..));
        env.capture_at(&(0..CALLS_MAX).collect::<Vec<_>>());
        let mut plan = Plan::new(rng.fork(), &setup);
        let is_short = rng.u8(..4) == 0;
        let mut driver = Driver::create(env, setup).expect("a store can be created");
        let mut actions = Vec::new();
        for _ in 0..if is_short { rng.usize(5..40) } else { rng.usize(100..400) } {
            let action = plan.next(driver.world());
            let begun = driver.env.op_count();
            let done = driver.must(&action);
            assert!(done.is_ok(), "{} after {actions:?}", done.unwrap_err());
            actions.push((begun, action));
        }
        let mut captures: Vec<_> = driver.env.captured().into_iter().map(|(_, capture)| capture).collect();
        assert_eq!(captures.len() as u64, driver.env.op_count(), "every moment was captured");
        captures.push(driver.env.capture());
        Self { driver, plan, actions, captures, is_short }
    }

    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// Whether all its moments are to be tried.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
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
