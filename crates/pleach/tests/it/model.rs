//! The model test: random actions and reads, compared with maps at every step.

use std::sync::{Arc, Mutex};

use fastrand::Rng;
use pleach::{Partition, Snapshot};

use crate::rig::action::Action;
use crate::rig::catch::catch;
use crate::rig::driver::Driver;
use crate::rig::happened::{
    CONVERSIONS, COPIES, CUTS, FULL_DISKS, GROUPS, Happened, KEPT_MANIFESTS, LEARNED, MERGES, MOVES, PACKED,
    SEGMENTS, SNAPSHOTS, STORES, TRAINED_LATER,
};
use crate::rig::plan::Plan;
use crate::rig::query::{Query, Source};
use crate::rig::setup::{Setup, machine};
use crate::rig::shape::Shape;
use crate::rig::threads::in_parallel;
use crate::rig::tuning::with_site;
use crate::rig::vars;
use crate::rig::world::{NAMES, World};

/// Cases by default.
const CASES: u64 = 300;

/// One case in so many merges levels file by file, which other cases hardly do.
const LEVELS_EVERY: u64 = 15;

/// A snapshot, handles of the partitions that were there, and what they held.
type Kept = (Snapshot, Vec<(usize, Partition)>, Arc<World>);

#[test]
fn random_actions_and_reads_agree_with_maps() {
    let (seed, cases) = (vars::seed(), vars::cases(CASES));
    println!("seeds {seed}..{}", seed + cases);
    let (seen, happened) = (Mutex::new(Shape::default()), Happened::default());
    in_parallel(cases, |case| {
        let seed = seed + case;
        let mut trace = Vec::new();
        // A store that is used for long replaces its manifest while it runs. Large values have ways of their own.
        let site = ["tune.short_manifests", "", "tune.large_values", ""][usize::try_from(seed % 4).unwrap()];
        catch(|| with_site(site, || run(seed, &mut trace, &seen, &happened))).map_err(|message| {
            let from = trace.len().saturating_sub(12);
            let last = trace[from..].join("\n  ");
            format!("the model test fails: {message}\nlast steps:\n  {last}\nrepeat: PLEACH_SEED={seed} PLEACH_CASES=1")
        })
    });
    happened.check(
        &[
            GROUPS,
            SNAPSHOTS,
            MERGES,
            CUTS,
            SEGMENTS,
            COPIES,
            MOVES,
            CONVERSIONS,
            PACKED,
            LEARNED,
            TRAINED_LATER,
            STORES,
            FULL_DISKS,
            KEPT_MANIFESTS,
        ],
        cases >= CASES,
    );
    let seen = seen.into_inner().unwrap();
    assert!(cases < CASES || seen.is_complete(), "something never came up: {seen:?}");
}

fn run(seed: u64, trace: &mut Vec<String>, seen: &Mutex<Shape>, happened: &Happened) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let setup = Setup::random(&mut rng);
    let env = machine(rng.u64(..));
    let (setup, mut plan) = if seed.is_multiple_of(LEVELS_EVERY) {
        Plan::of_levels(&mut rng, setup)
    } else {
        let plan = Plan::new(rng.fork(), &setup);
        (setup, plan)
    };
    let mut driver = Driver::create(env, setup).map_err(|e| format!("cannot create the store: {e}"))?;
    let mut kept: Vec<Kept> = Vec::new();
    for step in 0..rng.usize(50..600) {
        let action = plan.next(driver.world());
        trace.push(format!("{step}: {action:?}"));
        if matches!(action, Action::Reopen | Action::OnFullDisk(..)) {
            kept.clear();
        }
        driver.must(&action)?;
        for _ in 0..rng.u8(..3) {
            let query = Query::random(&mut plan, driver.world());
            ask(&query, Source::Newest(driver.db()), driver.world())?;
        }
        keep(&mut kept, &driver, &mut rng);
        if let [.., (snapshot, handles, world)] = &kept[..]
            && rng.bool()
        {
            let query = Query::random(&mut plan, world);
            ask(&query, Source::Snapshot(snapshot, handles), world)
                .map_err(|m| format!("in a snapshot: {m}"))?;
        }
        if rng.u8(..20) == 0 {
            driver.check(&mut rng)?;
            let mut seen = seen.lock().unwrap();
            *seen = seen.or(Shape::of(driver.db()));
        }
    }
    for (snapshot, handles, world) in kept.drain(..) {
        let query = Query::Range {
            slot: 0,
            bounds: (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded),
            limit: usize::MAX,
            coins: 0,
        };
        ask(&query, Source::Snapshot(&snapshot, &handles), &world)
            .map_err(|m| format!("in a snapshot: {m}"))?;
    }
    driver.db().verify().map_err(|e| format!("verify: {e}"))?;
    driver.must(&Action::Reopen)?;
    driver.check(&mut rng)?;
    // After the check, which has read the tables of moved values.
    happened.add_history(&driver);
    Ok(())
}

fn keep(kept: &mut Vec<Kept>, driver: &Driver, rng: &mut Rng) {
    match rng.u8(..40) {
        0 => {
            let slots = driver.world().slots().into_iter();
            let handle = |slot: usize| driver.db().find_partition(NAMES[slot]).expect("the world has it");
            let handles = slots.map(|slot| (slot, handle(slot))).collect();
            kept.push((driver.db().snapshot(), handles, Arc::clone(driver.world())));
        }
        1 if !kept.is_empty() => drop(kept.swap_remove(rng.usize(..kept.len()))),
        _ => {}
    }
}

fn ask(query: &Query, source: Source<'_>, world: &World) -> Result<(), String> {
    let found = query.ask(source).map_err(|e| format!("{query:?}: {e}"))?;
    let expected = query.expected(world);
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(&expected).position(|(f, e)| f != e).unwrap_or(found.len().min(expected.len()));
    Err(format!(
        "{query:?}: {} answers, expected {}; they differ from number {at} on: {:?}, expected {:?}",
        found.len(),
        expected.len(),
        found.get(at),
        expected.get(at)
    ))
}
