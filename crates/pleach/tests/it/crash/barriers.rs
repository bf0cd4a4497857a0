//! The test of the rigs: each barrier and check is switched off, one at a time, and a rig must find a violation.

use std::sync::Mutex;

use fastrand::Rng;
use pleach::env::failpoint::with_skipped;

use super::cover::Coverage;
use super::damage::{Damaged, damage_one};
use super::sites::{Catcher, sites_of};
use super::{cut_history, vars};
use crate::rig::catch::catch;
use crate::rig::happened::Happened;
use crate::rig::threads::in_parallel;

/// States visited for a site before the test fails because no rig noticed it.
const STATES_MAX: u64 = 60_000;

/// Damaged stores tried per site.
const DAMAGES_MAX: u64 = 100_000;

#[test]
fn every_missing_barrier_is_noticed_by_the_crash_test() {
    all_are_noticed(&sites_of(Catcher::Crash), |seed| {
        let mut cover = Coverage::default();
        let mut history = seed;
        while cover.states < STATES_MAX {
            if let Err(message) = cut_history(history, &mut cover) {
                return Some((cover.states, message));
            }
            history += 1;
        }
        None
    });
}

#[test]
fn every_missing_check_is_noticed_by_the_damage_test() {
    all_are_noticed(&sites_of(Catcher::Damage), |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut store = None;
        for number in 0..DAMAGES_MAX {
            if number % 100 == 0 {
                store = Some(Damaged::new(rng.u64(..), &Happened::default()));
            }
            let store = store.as_ref().expect("made above");
            if let Err(message) = catch(|| damage_one(store, rng.u64(..))) {
                return Some((number + 1, message));
            }
        }
        None
    });
}

/// Panics if there is a site for which `search` finds no violation.
fn all_are_noticed(sites: &[&'static str], search: impl Fn(u64) -> Option<(u64, String)> + Sync) {
    let seed = vars::seed();
    let only = vars::parsed::<String>("PLEACH_SITE");
    let report = Mutex::new(Vec::new());
    in_parallel(sites.len() as u64, |number| {
        let site = sites[usize::try_from(number).expect("few")];
        if only.as_deref().is_some_and(|only| only != site) {
            return Ok(());
        }
        let found = with_skipped(site, || search(seed));
        let (states, message) =
            found.ok_or_else(|| format!("{site}: no rig notices that it is switched off"))?;
        let line: String = message.lines().next().unwrap_or_default().chars().take(300).collect();
        report.lock().unwrap().push(format!("{site:<24} state {states:>6}: {line}"));
        Ok(())
    });
    let mut report = report.into_inner().unwrap();
    report.sort_unstable();
    println!("{}", report.join("\n"));
}
