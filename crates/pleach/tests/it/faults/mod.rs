//! Faults at every call: one fixed history, struck at each of its calls by each kind of fault.
//!
//! After each fault there is no panic and an error of the right kind, and the running store reads every acknowledged write. After
//! the store is opened again, on the same machine or after a crash, its content is one that the oracle allows. After a full disk
//! the store goes on once there is room. After a failed sync it refuses writes until it is opened again.

mod run;
mod script;

use pleach::env::FaultKind;
use pleach::{LearnedIndex, Shape};

use crate::rig::catch::catch;
use crate::rig::happened::{
    CONVERSIONS, COPIES, CUTS, GROUPS, Happened, KEPT_MANIFESTS, LEARNED, MERGES, MOVES, PACKED, SEGMENTS,
    SNAPSHOTS, TRAINED_LATER,
};
use crate::rig::threads::{alone, clock, in_parallel};
use crate::rig::tuning::with_site;
use crate::rig::vars;
use run::{PANICS, Strike, name_of, strike};
use script::Script;

/// Kinds that strike a mutating call.
const KINDS: [FaultKind; 8] = [
    FaultKind::Eio,
    FaultKind::NoSpace,
    FaultKind::NoSpaceFrom,
    FaultKind::ShortWrite,
    FaultKind::SyncFails,
    FaultKind::CrashAfter,
    FaultKind::FailsYetDone,
    FaultKind::TooManyFiles,
];

/// One in so many strikes of the histories with a `tune.` site.
const TUNED_EVERY: usize = 11;

/// Or fewer, so that there are at most about so many: seeds differ, and strikes beside short manifests take seconds.
const TUNED_MAX: usize = 250;

/// Makes manifests short.
const SHORT_MANIFESTS: &str = "tune.short_manifests";

/// Gives SSTs learned indexes, some of them when the machine is idle.
const LEARNED_INDEXES: &str = "tune.learned_indexes";

/// Separates values, and packs those that repeat.
const SEPARATED_VALUES: &str = "tune.separated_values";

/// The history that `seed`, or one soon behind it, makes with the tuning `site`: where manifests are short, in a store of levels.
fn script(seed: u64, site: &'static str) -> Script {
    let shape = if site == SHORT_MANIFESTS { Shape::Leveled } else { Shape::ForestOverBottom };
    let learned = if site == LEARNED_INDEXES { LearnedIndex::Adaptive } else { LearnedIndex::Never };
    let separate_at = if site == SEPARATED_VALUES { 100 } else { 0 };
    let make = |seed| alone(|| with_site(site, || Script::new(seed, shape, learned, separate_at)));
    let mut histories = (seed..).map(make);
    histories.find_map(|script| script).expect("another seed makes one")
}

/// Every strike at every call of the script.
fn strikes(script: &Script) -> Vec<Strike> {
    let calls = (0..script.calls()).flat_map(|at| KINDS.map(|kind| Strike { at, kind }));
    let reads = (0..script.reads()).map(|at| Strike { at, kind: FaultKind::ReadEio });
    let opens = (0..script.opens()).map(|at| Strike { at, kind: FaultKind::OpenTooManyFiles });
    let panics = script.calls_of_jobs().iter().map(|at| Strike { at: *at, kind: FaultKind::JobPanics });
    calls.chain(reads).chain(opens).chain(panics).collect()
}

#[test]
fn a_fault_at_any_call_breaks_no_promise() {
    let seed = vars::seed();
    if let Some(only) = vars::parsed::<Strike>("PLEACH_STRIKE") {
        // A leaked name is a name for good, as failpoints want it.
        let site = vars::parsed::<String>("PLEACH_SITE").unwrap_or_default().leak();
        let script = script(seed, site);
        script.print();
        let result = alone(|| with_site(site, || catch(|| strike(&script, only, &Happened::default()))));
        return assert!(result.is_ok(), "{}", result.unwrap_err());
    }
    let script = script(seed, "");
    let mut strikes = strikes(&script);
    let all = strikes.len();
    // 1 = every strike; 10 = each tenth, another one for each seed.
    let every = usize::try_from(vars::number("PLEACH_FAULTS_EVERY", 1)).expect("small");
    let skip = usize::try_from(seed).unwrap_or(0) % every;
    strikes = strikes.into_iter().skip(skip).step_by(every).collect();
    let (elapsed, happened) = (clock(), Happened::default());
    in_parallel(strikes.len() as u64, |number| {
        let strike_now = strikes[usize::try_from(number).expect("few")];
        catch(|| strike(&script, strike_now, &happened)).map_err(|message| {
            format!("{strike_now:?}: {message}\nrepeat: PLEACH_SEED={seed} PLEACH_STRIKE={strike_now}")
        })
    });
    println!(
        "seed {seed}: {} of {all} strikes at {} calls, {} of them in jobs, {} reads and {} opens, {:.1} s",
        strikes.len(),
        script.calls(),
        script.calls_of_jobs().len(),
        script.reads(),
        script.opens(),
        elapsed().as_secs_f32()
    );
    let kinds =
        KINDS.into_iter().chain([FaultKind::ReadEio, FaultKind::OpenTooManyFiles, FaultKind::JobPanics]);
    let needed: Vec<_> = kinds.map(name_of).chain([GROUPS, SNAPSHOTS, PANICS, CUTS]).collect();
    happened.check(&needed, every <= 5);
}

/// A store that is used for long replaces its manifest while it runs; here, every few edits.
#[test]
fn a_fault_while_manifests_are_replaced_breaks_no_promise() {
    some_strikes(SHORT_MANIFESTS).check(&[GROUPS, SNAPSHOTS, MERGES, KEPT_MANIFESTS], true);
}

#[test]
fn a_fault_while_large_values_are_written_breaks_no_promise() {
    some_strikes("tune.large_values").check(&[GROUPS, SNAPSHOTS], true);
}

#[test]
fn a_fault_beside_learned_indexes_breaks_no_promise() {
    some_strikes(LEARNED_INDEXES).check(&[GROUPS, SNAPSHOTS, LEARNED, TRAINED_LATER], true);
}

#[test]
fn a_fault_beside_separated_values_breaks_no_promise() {
    some_strikes(SEPARATED_VALUES)
        .check(&[GROUPS, SNAPSHOTS, SEGMENTS, COPIES, MOVES, CONVERSIONS, PACKED], true);
}

/// One strike in [`TUNED_EVERY`], or fewer, with the tuning `site`; what happened.
fn some_strikes(site: &'static str) -> Happened {
    let (seed, elapsed, happened) = (vars::seed(), clock(), Happened::default());
    let script = script(seed, site);
    let all = strikes(&script);
    // An odd number: there are eight kinds at a call, and an even one would leave out most of them.
    let every = TUNED_EVERY.max(all.len() / TUNED_MAX) | 1;
    let skip = usize::try_from(seed).unwrap_or(0) % every;
    let some: Vec<_> = all.into_iter().skip(skip).step_by(every).collect();
    in_parallel(some.len() as u64, |number| {
        let strike_now = some[usize::try_from(number).expect("few")];
        with_site(site, || {
            catch(|| strike(&script, strike_now, &happened)).map_err(|message| {
                format!("{strike_now:?}: {message}\nrepeat: PLEACH_SITE={site} PLEACH_SEED={seed} PLEACH_STRIKE={strike_now}")
            })
        })
    });
    println!(
        "seed {seed}: {} strikes with {site}, one in {every}, {:.1} s",
        some.len(),
        elapsed().as_secs_f32()
    );
    happened
}
