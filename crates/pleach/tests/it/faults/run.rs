//! One strike: the script runs until the fault has had its effect, and then the promises are checked.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{CrashPolicy, Fault, FaultKind, JOB_PANIC, SimEnv};
use pleach::{Error, ErrorKind};

use super::script::{CHECK_EVERY, Script, fit};
use crate::rig::action::{Action, Op};
use crate::rig::compare;
use crate::rig::driver::Driver;
use crate::rig::happened::Happened;
use crate::rig::timeline::Candidate;

/// Actions after the first failure until there is room again, and after that until the end.
const ACTIONS_ON: usize = 15;

/// Poisoned by a job that panicked.
pub(super) const PANICS: &str = "stores poisoned by a job that panicked";

/// The counter of faults of this kind.
pub(super) fn name_of(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Eio => "calls struck by EIO",
        FaultKind::NoSpace => "calls struck by a full disk",
        FaultKind::NoSpaceFrom => "disks full from a call on",
        FaultKind::ShortWrite => "short writes",
        FaultKind::SyncFails => "failed syncs",
        FaultKind::CrashAfter => "power cuts",
        FaultKind::FailsYetDone => "calls that failed and were done",
        FaultKind::TooManyFiles => "calls without a descriptor",
        FaultKind::ReadEio => "reads struck by EIO",
        FaultKind::OpenTooManyFiles => "opens without a descriptor",
        FaultKind::JobPanics => "jobs that panicked",
        kind => unreachable!("this rig does not know {kind:?}"),
    }
}

/// One fault at one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strike {
    pub(super) at: u64,
    pub(super) kind: FaultKind,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}", self.kind, self.at)
    }
}

impl FromStr for Strike {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, at) = text.split_once('@').ok_or(())?;
        let others = [FaultKind::ReadEio, FaultKind::OpenTooManyFiles, FaultKind::JobPanics];
        let kind =
            super::KINDS.into_iter().chain(others).find(|kind| format!("{kind:?}") == name).ok_or(())?;
        Ok(Self { at: at.parse().map_err(drop)?, kind })
    }
}

/// Runs the script with the fault.
pub(super) fn strike(script: &Script, strike: Strike, happened: &Happened) -> Result<(), String> {
    let env = script.machine();
    env.set_fault(Some(Fault { at_op: strike.at, kind: strike.kind }));
    let mut rng = Rng::with_seed(strike.at);
    let mut driver = match Driver::create(Arc::clone(&env), script.setup) {
        Ok(driver) => driver,
        Err(error) => return unborn(script, strike, &env, &error),
    };
    let mut left = None;
    for (number, action) in script.actions.iter().enumerate() {
        let Some(action) = fit(action, driver.world()) else { continue };
        let result = driver.run(&action);
        if let Err(error) = &result {
            check_error(script, strike, error).map_err(|m| format!("{number} {action:?}: {m}"))?;
        }
        if env.is_powered_off() {
            break;
        }
        let told = |message: String| format!("after {number} {action:?}: {message}");
        if !driver.is_open() {
            env.clear_faults();
            driver.run(&Action::Reopen).map_err(|e| told(format!("cannot open the store again: {e}")))?;
        }
        if driver.db().poisoned().is_some() {
            check_poisoned(script, strike, &mut driver, &mut rng).map_err(told)?;
            break;
        }
        if is_over(strike, &env) || result.is_err() {
            let over = left.get_or_insert(2 * ACTIONS_ON);
            *over -= 1;
            if *over == ACTIONS_ON {
                env.clear_faults();
            } else if *over == 0 {
                break;
            }
        }
        if number % CHECK_EVERY == 0 || result.is_err() {
            // The reads of the record: reads start merges, so others would give the calls other numbers.
            check_running(strike, &driver, &mut Rng::with_seed(number as u64)).map_err(told)?;
        }
    }
    happened.add(name_of(strike.kind), env.faults_struck().min(1));
    happened.add(PANICS, u64::from(panic_told(&driver)));
    check_end(script, strike, &mut driver, &mut rng)?;
    happened.add_history(&driver);
    Ok(())
}

/// Whether the store is poisoned by the planted panic.
fn panic_told(driver: &Driver) -> bool {
    driver.is_open() && driver.db().poisoned().is_some_and(|cause| cause.to_string().contains(JOB_PANIC))
}

/// Whether the fault has struck. It may go on.
fn is_over(strike: Strike, env: &SimEnv) -> bool {
    let count = match strike.kind {
        FaultKind::ReadEio => env.read_count(),
        FaultKind::OpenTooManyFiles => env.open_count(),
        _ => env.op_count(),
    };
    count > strike.at
}

/// The very first open failed: the next one must work, whatever is there, and after a crash too.
fn unborn(script: &Script, strike: Strike, env: &Arc<SimEnv>, error: &Error) -> Result<(), String> {
    if strike.kind != FaultKind::CrashAfter {
        check_error(script, strike, error)?;
        env.clear_faults();
    }
    for policy in [CrashPolicy::Everything, CrashPolicy::DurableOnly, CrashPolicy::ProcessKill] {
        let image = env.crash_image(policy, strike.at);
        let db =
            script.setup.open(&image).map_err(|e| format!("{policy:?}: the store cannot be created: {e}"))?;
        let is_new = db.last_sequence_number() == 0 && db.partitions() == ["default"];
        image.power_off();
        if !is_new {
            return Err(format!("{policy:?}: the new store is not empty"));
        }
    }
    Ok(())
}

/// Whether an error is of a kind that the fault may cause.
fn check_error(script: &Script, strike: Strike, error: &Error) -> Result<(), String> {
    let is_right = match strike.kind {
        _ if error.kind() == ErrorKind::Poisoned => {
            strike.kind == FaultKind::ReadEio || is_fatal(script, strike)
        }
        FaultKind::NoSpace | FaultKind::NoSpaceFrom => {
            error.kind() == ErrorKind::Io && error.is_out_of_space()
        }
        FaultKind::ShortWrite => false,
        _ => error.kind() == ErrorKind::Io && !error.is_out_of_space(),
    };
    if is_right { Ok(()) } else { Err(format!("an error of the wrong kind: {error}")) }
}

/// Whether the store may refuse writes from then on.
fn is_fatal(script: &Script, strike: Strike) -> bool {
    match strike.kind {
        FaultKind::Eio
        | FaultKind::SyncFails
        | FaultKind::CrashAfter
        | FaultKind::ReadEio
        | FaultKind::FailsYetDone
        | FaultKind::JobPanics => true,
        FaultKind::NoSpace => script.is_sync(strike.at),
        _ => false,
    }
}

/// A poisoned store reads and does not write.
fn check_poisoned(script: &Script, strike: Strike, driver: &mut Driver, rng: &mut Rng) -> Result<(), String> {
    if !is_fatal(script, strike) {
        return Err("the store is poisoned".to_owned());
    }
    let op = Op { slot: 0, key: (*b"poisoned").into(), value: None };
    match driver.run(&Action::Write { ops: vec![op], sync: false }) {
        Err(error) if error.kind() == ErrorKind::Poisoned => {
            if strike.kind == FaultKind::JobPanics && !error.to_string().contains(JOB_PANIC) {
                return Err(format!("a job panicked, and a writer got another error: {error}"));
            }
        }
        Err(error) => return Err(format!("a poisoned store refuses a write with the wrong kind: {error}")),
        Ok(()) => return Err("a poisoned store takes a write".to_owned()),
    }
    check_running(strike, driver, rng)
}

/// All acknowledged writes can be read.
fn check_running(strike: Strike, driver: &Driver, rng: &mut Rng) -> Result<(), String> {
    match driver.check(rng) {
        // The read that was struck may be one of these. The next is not.
        Err(message) if strike.kind == FaultKind::ReadEio && message.contains("input/output error") => {
            driver.check(rng)
        }
        result => result,
    }
}

fn check_end(script: &Script, strike: Strike, driver: &mut Driver, rng: &mut Rng) -> Result<(), String> {
    let env = Arc::clone(&driver.env);
    let sync_failed = match strike.kind {
        FaultKind::SyncFails | FaultKind::Eio | FaultKind::FailsYetDone => {
            script.is_sync(strike.at) && is_over(strike, &env)
        }
        _ => false,
    };
    let was_reopened = driver.timeline.was_reopened_after(strike.at);
    if sync_failed && !was_reopened && driver.db().poisoned().is_none() {
        return Err("a sync failed, and the store is not poisoned".to_owned());
    }
    if strike.kind == FaultKind::JobPanics && !was_reopened && !panic_told(driver) {
        return Err("a job panicked, and the store is not poisoned".to_owned());
    }
    let now = env.op_count();
    let policies =
        [CrashPolicy::ProcessKill, CrashPolicy::DurableOnly, CrashPolicy::Random, CrashPolicy::Random];
    for (number, policy) in policies.into_iter().enumerate() {
        let image = env.crash_image(policy, strike.at + number as u64);
        let candidates = driver.timeline.expect(now, policy == CrashPolicy::ProcessKill);
        open_and_find(script, &image, &candidates, rng)
            .map_err(|m| format!("at the end, {policy:?}: {m}"))?;
        image.power_off();
    }
    if env.is_powered_off() {
        return Ok(());
    }
    env.clear_faults();
    check_running(strike, driver, rng).map_err(|m| format!("at the end: {m}"))?;
    // The same machine goes on: what only the system remembers must now come to the medium.
    let candidates = driver.timeline.expect(now, true);
    let closed = driver.run(&Action::Reopen);
    closed.map_err(|e| format!("at the end: cannot close and open: {e}"))?;
    let found = compare::find(driver.db(), &candidates, rng).map_err(|m| format!("opened again: {m}"))?;
    let image = env.crash_image(CrashPolicy::DurableOnly, strike.at);
    open_and_find(script, &image, &[found], rng)
        .map_err(|m| format!("opened again, then DurableOnly: {m}"))?;
    image.power_off();
    Ok(())
}

fn open_and_find(
    script: &Script,
    image: &Arc<SimEnv>,
    candidates: &[Candidate],
    rng: &mut Rng,
) -> Result<(), String> {
    let db = script.setup.open(image).map_err(|e| format!("the store cannot be opened: {e}"))?;
    compare::find(&db, candidates, rng)?;
    db.verify().map(drop).map_err(|e| format!("verify: {e}"))
}
