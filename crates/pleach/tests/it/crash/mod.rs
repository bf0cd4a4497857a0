//! The crash test: histories in a simulated machine, cut at any call, and the disks that the cut may leave.
//!
//! A [`state::State`] is one crash: a history, the number of the call before which it is cut, and the policy and seed by which
//! the disk keeps or loses pending writes. The store opened from it must hold exactly the first n batches and partition
//! changes, and n must include the last durable one. Then the store must verify, take writes and open again. Some states are
//! cut a second and a third time, inside the recovery or after it.

mod barriers;
mod cover;
mod cut;
mod damage;
mod history;
mod sites;
mod state;
mod stories;

use fastrand::Rng;

use crate::rig::catch::catch;
use crate::rig::threads::{clock, in_parallel};
use crate::rig::tuning::with_site;
use crate::rig::vars;
use cover::{Coverage, Totals};
use cut::Replay;
use history::History;
use state::{Deeper, visit};

/// States by default.
const STATES: u64 = 20_000;

#[test]
fn a_crash_leaves_a_prefix_of_the_history() {
    if let Some(replay) = vars::parsed::<Replay>("PLEACH_REPLAY") {
        // Failpoints need names that live forever.
        let site = vars::parsed::<String>("PLEACH_SITE").unwrap_or_default().leak();
        return with_site(site, || show(&replay));
    }
    let states = vars::number("PLEACH_CRASH_STATES", STATES);
    let totals = campaign("", states);
    if states >= STATES {
        totals.check_complete();
    }
}

/// A store that runs for long replaces its manifest. Here it does so every few edits.
#[test]
fn a_crash_while_manifests_are_replaced_leaves_a_prefix() {
    campaign("tune.short_manifests", vars::number("PLEACH_CRASH_STATES", STATES) / 5);
}

/// If memory is short, filters are evicted and loaded while the store runs.
#[test]
fn a_crash_while_filters_are_dropped_leaves_a_prefix() {
    campaign("tune.short_filters", vars::number("PLEACH_CRASH_STATES", STATES) / 10);
}

/// Large values are written to the log in pieces and have regions and blocks of their own. Here all values from 500 bytes on are
/// large.
#[test]
fn a_crash_with_large_values_leaves_a_prefix() {
    let states = vars::number("PLEACH_CRASH_STATES", STATES);
    let totals = campaign("tune.large_values", states / 5);
    if states >= STATES {
        totals.check_large_values();
    }
}

/// Visits states until there are enough of them, with this tuning.
fn campaign(site: &'static str, states: u64) -> Totals {
    let seed = vars::seed();
    println!("histories from seed {seed} on, {states} states {site}");
    let totals = Totals::default();
    let elapsed = clock();
    // More histories than are needed: the work ends when enough states have been visited.
    in_parallel(states, |number| {
        if totals.states() >= states {
            return Ok(());
        }
        let mut cover = Coverage::default();
        let result = with_site(site, || cut_history(seed + number, &mut cover));
        totals.add(&cover);
        result.map_err(
            |message| if site.is_empty() { message } else { format!("{message}\nwith PLEACH_SITE={site}") },
        )
    });
    println!("{}", totals.report(elapsed()));
    totals
}

/// Repeats one state and prints its actions.
fn show(replay: &Replay) {
    for (calls, action) in History::run(replay.history).actions() {
        println!("{calls:>6} {action:?}");
    }
    let mut cover = Coverage::default();
    let result = catch(|| replay_one(replay, &mut cover));
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

/// Visits states of the history of `seed`.
fn cut_history(seed: u64, cover: &mut Coverage) -> Result<(), String> {
    let history = catch(|| Ok(History::run(seed)))
        .map_err(|m| format!("{m}\nwithout any crash; repeat: PLEACH_SEED={seed} PLEACH_CRASH_STATES=1"))?;
    let mut rng = Rng::with_seed(seed);
    cover.histories += 1;
    for cut in history.cuts(&mut rng) {
        let mut replay = Replay { history: seed, cuts: Vec::new() };
        let mut visited = Coverage::default();
        catch(|| visit(history.branch(), cut, Deeper::Maybe, &mut replay.cuts, &mut visited))
            .map_err(|message| violation(&message, &replay))?;
        cover.add(&visited);
    }
    Ok(())
}

fn replay_one(replay: &Replay, cover: &mut Coverage) -> Result<(), String> {
    let history = History::run(replay.history);
    let (first, rest) = replay.cuts.split_first().expect("a replay names at least one cut");
    let mut cuts = Vec::new();
    visit(history.branch(), *first, Deeper::Exactly(rest), &mut cuts, cover)
}

fn violation(message: &str, replay: &Replay) -> String {
    let kinds: Vec<_> = replay.cuts.iter().map(|cut| format!("{cut:?}")).collect();
    format!(
        "after {} crash(es) {}: {message}\nrepeat: PLEACH_REPLAY={replay} cargo test -p pleach --test it a_crash_leaves",
        kinds.len(),
        kinds.join(", then ")
    )
}
