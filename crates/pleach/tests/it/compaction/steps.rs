//! Steps: a compaction that is cut at every call continues from its last edit and repeats no committed work.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use pleach::Db;
use pleach::env::{CrashPolicy, SimEnv};

use super::{Model, SETUP, check, put_random, ssts};

/// A store just before a compaction, and what the uninterrupted compaction writes.
struct Story {
    model: Model,
    /// SSTs that were there before, with their lengths.
    inputs: BTreeMap<u64, u64>,
    written: u64,
}

/// Facts that the crashes of a test share.
#[derive(Default)]
struct Tally {
    crashes: u32,
    /// Crashes after which outputs were there already, and inputs gone.
    with_outputs: u32,
    with_inputs_gone: u32,
    /// Bytes written again, at most and in all.
    again_max: u64,
    again: u64,
}

/// A new store of many overlapping runs, made durable and not yet compacted.
fn store(env: &Arc<SimEnv>) -> (Db, Model) {
    let db = SETUP.open(env).unwrap();
    let mut model = Model::new();
    put_random(&db, &mut model, &mut Rng::with_seed(7), (1200, 3000));
    db.flush().unwrap();
    (db, model)
}

fn compaction_written(db: &Db) -> u64 {
    db.stats().compaction_written_bytes
}

/// Opens what a crash left, checks it, and finishes the compaction; counts what is written again. Captures `second` calls
/// of that life, counted from its start, and hands on the machine.
fn go_on(image: &Arc<SimEnv>, story: &Story, tally: &mut Tally, name: &str) {
    let db = SETUP.open(image).unwrap_or_else(|e| panic!("{name}: {e}"));
    let there = ssts(image);
    let outputs: u64 =
        there.iter().filter(|(id, _)| !story.inputs.contains_key(id)).map(|(_, len)| len).sum();
    tally.crashes += 1;
    tally.with_outputs += u32::from(outputs > 0);
    tally.with_inputs_gone += u32::from(story.inputs.keys().any(|id| !there.contains_key(id)));
    check(&db, &story.model, name);
    db.compact().unwrap();
    check(&db, &story.model, name);
    let again = (outputs + compaction_written(&db)).saturating_sub(story.written);
    tally.again_max = tally.again_max.max(again);
    tally.again += again;
    assert!(db.stats().runs == 1, "{name}: {:?}", db.stats());
    db.verify().unwrap();
}

/// The calls of the compaction, and its story.
fn rehearse() -> (std::ops::Range<u64>, Story) {
    let env = SimEnv::new(3);
    let (db, model) = store(&env);
    let (inputs, from) = (ssts(&env), env.op_count());
    db.compact().unwrap();
    let story = Story { model, inputs, written: compaction_written(&db) };
    assert!(story.written > 100 << 10, "a compaction of many steps: {}", story.written);
    (from..env.op_count(), story)
}

const POLICIES: [CrashPolicy; 4] =
    [CrashPolicy::DurableOnly, CrashPolicy::Everything, CrashPolicy::Random, CrashPolicy::ProcessKill];

#[test]
fn a_compaction_goes_on_where_a_crash_left_it() {
    let (calls, story) = rehearse();
    let env = SimEnv::new(3);
    let (db, _) = store(&env);
    env.capture_at(&calls.clone().collect::<Vec<_>>());
    db.compact().unwrap();
    let (mut first, mut second) = (Tally::default(), Tally::default());
    for (call, capture) in env.captured() {
        for policy in POLICIES {
            let name = format!("call {call} of {calls:?}, {policy:?}");
            let image = capture.crash_image(policy, call);
            // Every life is cut as well, at a call that differs from crash to crash.
            image.capture_at(&[image.op_count() + 1 + call * 7 % 150]);
            go_on(&image, &story, &mut first, &name);
            for (again, capture) in image.captured() {
                let image = capture.crash_image(policy, again);
                go_on(&image, &story, &mut second, &format!("{name}, then call {again}"));
            }
        }
    }
    for (tally, lives) in [(&first, 1), (&second, 2)] {
        println!(
            "{} crashes in life {lives} of a compaction that writes {} bytes: {} with outputs, {} with inputs gone; \
             written again {} bytes on average, {} at most",
            tally.crashes,
            story.written,
            tally.with_outputs,
            tally.with_inputs_gone,
            tally.again / u64::from(tally.crashes.max(1)),
            tally.again_max,
        );
        assert!(tally.with_outputs > tally.crashes / 4, "most crashes come amid the work");
        assert!(tally.with_inputs_gone > tally.crashes / 4, "inputs are cleaned early");
        // A resumed merge starts a new SST at the clip, which may cut the last ones differently.
        assert!(tally.again_max < story.written / 20, "finished steps are not done again");
    }
}

/// Without the clip, or without the outputs in the edit, the test above would see everything written again: here the
/// whole compaction is one step.
#[test]
fn a_compaction_of_one_step_starts_again() {
    let (calls, story) = rehearse();
    let env = SimEnv::new(3);
    let (db, _) = store(&env);
    env.capture_at(&[calls.start + 2]);
    db.compact().unwrap();
    let mut tally = Tally::default();
    let (call, capture) = env.captured().remove(0);
    let image = capture.crash_image(CrashPolicy::DurableOnly, call);
    go_on(&image, &story, &mut tally, "at the start");
    assert_eq!((tally.with_outputs, tally.with_inputs_gone), (0, 0));
}
