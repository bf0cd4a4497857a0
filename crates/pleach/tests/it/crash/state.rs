//! State: the store that a crash leaves is opened, compared with the oracle, used, and opened again.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::ErrorKind;
use pleach::env::{Capture, SimEnv, failpoint};

use super::cover::Coverage;
use super::cut::Cut;
use crate::rig::action::Action;
use crate::rig::compare;
use crate::rig::driver::{Driver, UNPACKED};
use crate::rig::plan::Plan;
use crate::rig::setup::{DIR, Setup};
use crate::rig::timeline::{Candidate, Timeline};

/// Upper bound of the calls of a recovery and the few actions after it; arbitrary.
const CALLS_MAX: u64 = 1 << 12;

/// One in so many states is cut again, and one in so many of these a third time.
const DEEPER_EVERY: u8 = 10;
const DEPTH_MAX: usize = 3;

/// One in so many states is opened for reading only first.
const READ_ONLY_EVERY: u8 = 8;

/// A run of a store that may be cut at any call.
#[derive(Clone, Copy)]
pub(super) struct Branch<'a> {
    pub(super) setup: Setup,
    pub(super) plan: &'a Plan,
    pub(super) timeline: &'a Timeline,
    /// The disk before each call, and at the end.
    pub(super) captures: &'a [Capture],
}

/// Whether to cut the recovered store again.
#[derive(Clone, Copy)]
pub(super) enum Deeper<'a> {
    /// At random.
    Maybe,
    Exactly(&'a [Cut]),
}

/// Cuts the branch and checks every promise. Appends the cuts that it makes to `path`.
pub(super) fn visit(
    branch: Branch<'_>,
    cut: Cut,
    deeper: Deeper<'_>,
    path: &mut Vec<Cut>,
    cover: &mut Coverage,
) -> Result<(), String> {
    path.push(cut);
    let _of_others = failpoint::take_report(UNPACKED);
    let mut rng = Rng::with_seed(cut.seed);
    let at = usize::try_from(cut.op).expect("histories are short");
    let env = branch.captures[at].crash_image(cut.policy, cut.seed);
    let goes_deeper = match deeper {
        Deeper::Maybe => path.len() < DEPTH_MAX && rng.u8(..DEEPER_EVERY) == 0,
        Deeper::Exactly(cuts) => !cuts.is_empty(),
    };
    if goes_deeper {
        env.capture_at(&(0..CALLS_MAX).collect::<Vec<_>>());
    }
    let candidates = branch.timeline.expect(cut.op, cut.kills_process_only());
    let read = read_only(branch, cut, &env, &candidates, &mut rng);
    let read = read.map_err(|e| format!("opened for reading: {e}"))?;
    cover.read_only += u64::from(read.is_some());
    let (mut driver, found) = recover(branch, cut, env, &candidates, &mut rng)?;
    if read.is_some_and(|read| read.seq != found.seq) {
        return Err(format!(
            "opened for reading, the store was at another point than at sequence number {}",
            found.seq
        ));
    }
    cover.stores += u64::from(branch.captures[at].is_in_store());
    cover.note(branch.timeline, cut, &candidates, &found, driver.db(), path.len());
    let mut plan = branch.plan.branch(cut.seed);
    live_on(&mut driver, &mut plan, &mut rng)?;
    if !goes_deeper {
        return Ok(());
    }
    let mut captures: Vec<_> = driver.env.captured().into_iter().map(|(_, capture)| capture).collect();
    captures.push(driver.env.capture());
    let next = Branch { setup: driver.setup, plan: &plan, timeline: &driver.timeline, captures: &captures };
    match deeper {
        Deeper::Exactly(cuts) => visit(next, cuts[0], Deeper::Exactly(&cuts[1..]), path, cover),
        Deeper::Maybe => {
            // Three of four second cuts are inside the recovery.
            let end = if rng.u8(..4) > 0 { driver.timeline.opened() } else { captures.len() as u64 };
            visit(next, Cut::random(rng.u64(..end.max(1)), &mut rng), deeper, path, cover)
        }
    }
}

/// Opens the store and finds the candidate that it holds.
fn recover(
    branch: Branch<'_>,
    cut: Cut,
    env: Arc<SimEnv>,
    candidates: &[Candidate],
    rng: &mut Rng,
) -> Result<(Driver, Candidate), String> {
    let opened = branch.setup.open(&env);
    let db = opened.map_err(|e| format!("the store cannot be opened: {e}"))?;
    let opened_at = env.op_count();
    let found = compare::find(&db, candidates, rng);
    // Before the open returns, nothing new is promised. A second power cut cannot lose bytes that the first one left on the
    // medium. A kill of the process left them in the system's memory only, so a power cut then may lose all that was not
    // durable before.
    let before = |found: &Candidate| {
        let rest = candidates.iter().filter(|c| c.is_within(found) && !c.is_same(found)).cloned();
        let durable = branch.timeline.expect(cut.op, false);
        let durable = durable.into_iter().filter(|c| c.is_within(found));
        let killed = vec![found.clone()];
        if cut.kills_process_only() {
            [durable.chain(rest).collect(), killed]
        } else {
            [killed.clone(), killed]
        }
    };
    let start = found.as_ref().map_or_else(|_| candidates[0].clone(), Clone::clone);
    let before = before(&start);
    let timeline = Timeline::new(&start, opened_at, before);
    let driver = Driver::resume(env, branch.setup, db, timeline);
    Ok((driver, found?))
}

/// Opens one state in so many for reading only first, and makes the same checks. Not a byte may change.
fn read_only(
    branch: Branch<'_>,
    cut: Cut,
    env: &Arc<SimEnv>,
    candidates: &[Candidate],
    rng: &mut Rng,
) -> Result<Option<Candidate>, String> {
    if rng.u8(..READ_ONLY_EVERY) > 0 {
        return Ok(None);
    }
    let before = files(env);
    env.set_read_only(true);
    let db = match branch.setup.options(env).read_only(true).open(DIR) {
        Err(error) if error.kind() == ErrorKind::NotFound && cut.op < branch.timeline.opened() => {
            env.set_read_only(false);
            return Ok(None);
        }
        opened => opened.map_err(|e| format!("the store cannot be opened: {e}"))?,
    };
    let found = compare::find(&db, candidates, rng)?;
    db.verify().map_err(|e| format!("verify: {e}"))?;
    db.close().map_err(|e| format!("close: {e}"))?;
    env.set_read_only(false);
    if files(env) == before { Ok(Some(found)) } else { Err("the directory has changed".to_owned()) }
}

/// All files of the store.
fn files(env: &SimEnv) -> Vec<(String, Option<Vec<u8>>)> {
    let dir = Path::new(DIR);
    env.file_names(dir).into_iter().map(|name| (name.clone(), env.read_file(&dir.join(name)))).collect()
}

/// Verifies the store, writes to it, and opens it again.
fn live_on(driver: &mut Driver, plan: &mut Plan, rng: &mut Rng) -> Result<(), String> {
    driver.db().verify().map_err(|e| format!("after recovery: verify: {e}"))?;
    for _ in 0..rng.u8(..12) {
        let action = plan.next(driver.world());
        driver.must(&action).map_err(|m| format!("after recovery: {m}"))?;
    }
    driver.must(&Action::Reopen).map_err(|m| format!("after recovery: {m}"))?;
    driver.check(rng).map_err(|m| format!("after recovery, some actions and another open: {m}"))
}
