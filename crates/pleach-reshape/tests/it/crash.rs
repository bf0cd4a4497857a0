//! Enumerated crashes: at any step of a history, with any prefix of the store's unsynced commits, and any state of the map's
//! simulated disk, the store that is opened holds what that prefix held.
//!
//! A *moment* is taken before each call that changes the rows' store or the map's disk. A *state* is a moment, a number of
//! commits from those that were durable to all, and a crash of the disk. In some states the map is lost, or it is from
//! another moment of the same life: an older map is good or refused, and so is one that is ahead of its rows. Each state is
//! opened, compared, and lived on; some of these lives are cut again, mostly inside the open. Some reclusters stop in the
//! middle, because a commit fails; then the life goes on with rows in two generations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use pleach::env::{Capture, CrashPolicy, SimEnv};
use pleach_reshape::store::model::{Call, ModelStore};
use pleach_reshape::{Options, Reshaped, Stats};

use crate::rig::{
    Contents, DIR, Hook, any_place, any_update, assert_contents, key, open, options, recluster, seed, value,
    variable, write, write_in_order,
};

/// States in the ordinary run of the tests.
const STATES: u64 = 3000;
/// States that one history is good for.
const STATES_OF_A_HISTORY: u64 = 100;
/// Keys of a history: few, so that most writes meet a row.
const KEYS: u64 = 40;

/// What was going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Open,
    Write,
    WriteInOrder,
    Checkpoint,
    Recluster,
    ReclusterRange,
    Drain,
    Clean,
    Import,
    Sync,
    Close,
}

struct Moment {
    action: Action,
    commits: usize,
    durable: usize,
    disk: Capture,
}

/// One open of a store and what was done with it.
struct Life {
    rows: ModelStore,
    /// Commits after a change, and what the store held then; in order.
    timeline: Vec<(usize, Contents)>,
    moments: Vec<Moment>,
    /// Whether its map has always been its own, so that it is never ahead of the rows.
    has_own_map: bool,
}

impl Life {
    fn held_after(&self, commits: usize) -> &Contents {
        let known = self.timeline.iter().rev().find(|(after, _)| *after <= commits);
        &known.expect("the life began with something").1
    }
}

/// Takes moments while a store lives.
struct Recorder {
    rows: ModelStore,
    action: Mutex<Action>,
    moments: Mutex<Vec<Moment>>,
    hook: Mutex<Option<Hook>>,
}

impl Recorder {
    fn watch(rows: &ModelStore, env: &Arc<SimEnv>) -> Arc<Self> {
        let (action, moments) = (Mutex::new(Action::Open), Mutex::default());
        let recorder = Arc::new(Self { rows: rows.clone(), action, moments, hook: Mutex::default() });
        let (own, disk) = (Arc::downgrade(&recorder), Arc::downgrade(env));
        let take = Arc::new(move || {
            if let (Some(own), Some(disk)) = (own.upgrade(), disk.upgrade()) {
                own.take(&disk);
            }
        });
        let on_op = Arc::clone(&take);
        env.on_op(Box::new(move |_, _| on_op()));
        let on_call: Hook = Arc::new(move |call| {
            if !matches!(call, Call::Get | Call::Committed) {
                take();
            }
        });
        rows.on_call(Some(Arc::clone(&on_call)));
        *recorder.hook.lock().unwrap() = Some(on_call);
        recorder
    }

    fn take(&self, disk: &SimEnv) {
        let (commits, durable) = (self.rows.commits(), self.rows.durable_commits());
        let moment = Moment { action: *self.action.lock().unwrap(), commits, durable, disk: disk.capture() };
        self.moments.lock().unwrap().push(moment);
    }
}

/// Opens a store, which must hold `start`, and does random things with it.
fn live(
    rows: &ModelStore,
    env: &Arc<SimEnv>,
    options: &Options,
    start: &Contents,
    actions: usize,
    rng: &mut fastrand::Rng,
    context: &str,
) -> (Life, (Option<String>, Stats)) {
    let recorder = Recorder::watch(rows, env);
    let store = open(rows, &options.clone().env(Arc::<SimEnv>::clone(env)));
    let opened = (store.open_report().rebuilt.clone(), store.stats());
    assert!(
        !env.file_names(Path::new(DIR)).contains(&"MOVES".to_owned()),
        "{context}: a file of sorted rows"
    );
    assert_contents(&store, start, context);
    let mut contents = start.clone();
    let mut timeline = vec![(0, start.clone())];
    let mut is_poisoned = false;
    for _ in 0..actions {
        if !act(&store, rows, &recorder, &mut contents, &mut timeline, rng) {
            is_poisoned = true;
            break;
        }
    }
    assert_contents(&store, &contents, context);
    if !is_poisoned && rng.bool() {
        *recorder.action.lock().unwrap() = Action::Close;
        store.close().unwrap();
    }
    rows.on_call(None);
    let moments = std::mem::take(&mut *recorder.moments.lock().unwrap());
    (Life { rows: rows.clone(), timeline, moments, has_own_map: true }, opened)
}

/// One random action; whether the store still takes writes.
fn act(
    store: &Reshaped,
    rows: &ModelStore,
    recorder: &Recorder,
    contents: &mut Contents,
    timeline: &mut Vec<(usize, Contents)>,
    rng: &mut fastrand::Rng,
) -> bool {
    let now = |action| *recorder.action.lock().unwrap() = action;
    match rng.u8(..48) {
        46.. => {
            now(Action::ReclusterRange);
            let (lower, upper) = (key(rng, KEYS), key(rng, KEYS));
            store.recluster(lower..upper).unwrap();
        }
        42.. => {
            now(Action::Drain);
            store.drain().unwrap();
        }
        0..4 => {
            now(Action::Checkpoint);
            store.checkpoint().unwrap();
        }
        4 => {
            now(Action::Recluster);
            let fails_at = (rng.u8(..3) > 0).then(|| rng.usize(..12));
            let hook = recorder.hook.lock().unwrap().clone();
            return recluster(store, rows, fails_at, hook);
        }
        5 | 6 => {
            now(Action::Clean);
            store.clean().unwrap();
        }
        7 => {
            now(Action::Import);
            let pairs: Vec<_> = (0..rng.usize(..12)).map(|_| (key(rng, KEYS), value(rng))).collect();
            // One transaction a pair, so that each prefix of the pairs is a prefix of the commits.
            for pair in pairs {
                contents.insert(pair.0.clone(), pair.1.clone());
                store.import_by(1, [Ok(pair)]).unwrap();
                timeline.push((rows.commits(), contents.clone()));
            }
        }
        8 => {
            now(Action::Sync);
            store.sync().unwrap();
        }
        9 | 10 => {
            now(Action::WriteInOrder);
            store.checkpoint().unwrap();
            write_in_order(store, contents, rng);
            timeline.push((rows.commits(), contents.clone()));
            store.checkpoint().unwrap();
        }
        _ => {
            now(Action::Write);
            write(store, contents, KEYS, rng);
            timeline.push((rows.commits(), contents.clone()));
        }
    }
    true
}

#[derive(Default)]
struct Totals {
    states: u64,
    rebuilt: u64,
    ahead: u64,
    lost_maps: u64,
    other_maps: u64,
    second: u64,
    unsynced: u64,
    draining: u64,
    renewed: u64,
    with_runs: u64,
    with_runs_of_writers: u64,
    actions: BTreeMap<Action, u64>,
}

/// Opens states of a life, until `until` are visited.
fn visit(
    life: &Life,
    options: &Options,
    until: u64,
    depth: u32,
    rng: &mut fastrand::Rng,
    totals: &mut Totals,
    context: &str,
) {
    while totals.states < until && !life.moments.is_empty() {
        let moment = &life.moments[rng.usize(..life.moments.len())];
        let commits = match rng.u8(..4) {
            0 => moment.durable,
            1 => moment.commits,
            _ => rng.usize(moment.durable..=moment.commits),
        };
        let policy = CrashPolicy::ALL[rng.usize(..CrashPolicy::ALL.len())];
        let disk_seed = rng.u64(..);
        let map = rng.u8(..16);
        let env = match map {
            0 | 1 => SimEnv::new(disk_seed),
            2..4 => life.moments[rng.usize(..life.moments.len())].disk.crash_image(policy, disk_seed),
            _ => moment.disk.crash_image(policy, disk_seed),
        };
        let context = format!(
            "{context}, {:?}, {commits} commits of {}..={}, {policy:?}, map {map}",
            moment.action, moment.durable, moment.commits
        );
        let rows = life.rows.crash(commits);
        let start = life.held_after(commits);
        let actions = rng.usize(..12);
        let options = &match rng.u8(..3) {
            0 => options.clone().update(any_update(rng)).map(any_place(rng)),
            _ => options.clone(),
        };
        let (mut next, (rebuilt, stats)) = live(&rows, &env, options, start, actions, rng, &context);
        totals.states += 1;
        next.has_own_map = life.has_own_map && !(2..4).contains(&map);
        let is_ahead = rebuilt.as_ref().is_some_and(|why| why.contains("ahead"));
        assert!(!(is_ahead && next.has_own_map), "{context}: the map was ahead of the rows");
        totals.ahead += u64::from(is_ahead);
        totals.rebuilt += u64::from(rebuilt.is_some());
        totals.lost_maps += u64::from(map < 2);
        totals.other_maps += u64::from(map == 2 || map == 3);
        totals.second += u64::from(depth > 0);
        totals.unsynced += u64::from(commits < moment.commits);
        totals.draining += u64::from(stats.is_draining);
        totals.renewed += u64::from(stats.generation > 0);
        totals.with_runs += u64::from(stats.has_runs);
        totals.with_runs_of_writers += u64::from(stats.has_runs_of_writers);
        *totals.actions.entry(moment.action).or_default() += 1;
        if depth < 2 && rng.u8(..6) == 0 {
            let until = (totals.states + 3).min(until);
            visit(&next, options, until, depth + 1, rng, totals, &context);
        }
    }
}

#[test]
fn a_crash_leaves_what_a_prefix_of_the_commits_held() {
    let states = variable("PLEACH_CRASH_STATES", STATES);
    let first = seed();
    let mut totals = Totals::default();
    for case in 0..states.div_ceil(STATES_OF_A_HISTORY) {
        let seed = first + case;
        let context = format!("PLEACH_SEED={seed} PLEACH_CRASH_STATES=1");
        let mut rng = fastrand::Rng::with_seed(seed);
        let env = SimEnv::new(seed);
        let mut options = options(&env, &mut rng);
        if rng.bool() {
            // 63 ids a stripe for 40 keys.
            options = options.sequence_bits(6);
        }
        let rows = ModelStore::new(rng.bool());
        let actions = rng.usize(40..160);
        let (life, _) = live(&rows, &env, &options, &Contents::new(), actions, &mut rng, &context);
        let until = (totals.states + STATES_OF_A_HISTORY).min(states);
        visit(&life, &options, until, 0, &mut rng, &mut totals, &context);
    }
    let Totals {
        states,
        rebuilt,
        ahead,
        lost_maps,
        other_maps,
        second,
        unsynced,
        draining,
        renewed,
        with_runs,
        with_runs_of_writers,
        actions,
    } = totals;
    println!(
        "{states} states, {unsynced} with lost commits, {rebuilt} maps rebuilt, {ahead} ahead, {lost_maps} lost"
    );
    println!(
        "{other_maps} maps of another moment, {second} second crashes, {renewed} with new generations, {draining} draining"
    );
    println!("{with_runs} with runs in the map, {with_runs_of_writers} of writers' rows; {actions:?}");
    if states >= STATES {
        assert!(
            rebuilt > lost_maps / 2
                && other_maps > 0
                && second > 0
                && unsynced > 0
                && draining > 0
                && renewed > 0
                && with_runs > 0
                && with_runs_of_writers > 0
                && ahead > 0
        );
        assert_eq!(actions.len(), 11, "{actions:?}");
    }
}
