//! Relocation: space stays near its target, every value that a reader can see is moved, and nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pleach_env::{Clients, CrashPolicy, Env, ErrorKind, Fault, FaultKind, FileId, Job, JobStep, SimEnv};
use pleach_log::parse_segment_name;

use super::choosing::{segments_in, victims_of};
use super::marking::mark;
use super::space::states_of;
use super::{Relocator, Victim};
use crate::file_names::parse_values_name;
use crate::keys::PartitionId;
use crate::values::{HomeKind, LiveSegment};
use crate::{Db, Options, Shape};

const VALUE_LEN: usize = 1000;
const KEYS: u64 = 400;

fn options(env: &Arc<SimEnv>) -> Options {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(8 << 20).separate_at(100);
    options.memtable_bytes(64 << 10).sst_bytes(32 << 10).compaction_threads(1)
}

fn value(key: u64, round: u64) -> Vec<u8> {
    format!("{key:08}-{round:08}-").into_bytes().into_iter().cycle().take(VALUE_LEN).collect()
}

fn name(key: u64) -> String {
    format!("{key:08}")
}

/// A map of what the store is to hold.
type Model = BTreeMap<u64, u64>;

fn put(db: &Db, model: &mut Model, key: u64, round: u64) {
    db.default_partition().put(name(key), value(key, round)).unwrap();
    model.insert(key, round);
}

fn check(db: &Db, model: &Model) {
    for key in 0..KEYS {
        let expected = model.get(&key).map(|round| value(key, *round));
        assert_eq!(db.default_partition().get(name(key)).unwrap().as_deref(), expected.as_deref());
    }
    assert_eq!(db.default_partition().iter().count(), model.len());
    db.verify().unwrap();
}

/// Overwrites keys at random, some of them often, and deletes some.
fn churn(db: &Db, model: &mut Model, rng: &mut fastrand::Rng, writes: u64) {
    for round in 0..writes {
        let key = if rng.bool() { rng.u64(..KEYS) } else { rng.u64(..KEYS / 10) };
        if rng.u8(..20) == 0 {
            db.default_partition().delete(name(key)).unwrap();
            model.remove(&key);
        } else {
            put(db, model, key, round);
        }
    }
}

#[test]
fn space_stays_near_its_target_while_values_are_overwritten() {
    for (target, percent) in [(1.1, 110), (1.3, 130), (2.0, 200)] {
        let env = SimEnv::new(1);
        let db = options(&env).space_target(target).open("/store").unwrap();
        let (mut model, mut rng) = (Model::new(), fastrand::Rng::with_seed(7));
        (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
        for _ in 0..8 {
            churn(&db, &mut model, &mut rng, 2 * KEYS);
            db.settle().unwrap();
            let stats = db.stats();
            let live = (model.len() * VALUE_LEN) as u64;
            let allowed = (percent + 8) * live / 100 + (64 << 10);
            let files = stats.value_file_bytes;
            assert!(files <= allowed, "{files} bytes for {live} at {target}, not {allowed}");
        }
        assert!(db.stats().value_moved_bytes > 0);
        check(&db, &model);
        drop(db);
        check(&options(&env).open("/store").unwrap(), &model);
    }
}

/// The files at the ends of what was deleted hold other values too.
#[test]
fn the_space_of_deletes_comes_back_when_they_rest() {
    for drops in [false, true] {
        let env = SimEnv::new(1);
        let db = options(&env).space_target(4.0).memtable_bytes(256 << 10).open("/store").unwrap();
        let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
        let count = 3000;
        for key in 0..count {
            kept.put(name(key), value(key, 0)).unwrap();
            (if drops { &gone } else { &kept }).put(name(count + key), value(key, 0)).unwrap();
        }
        db.flush().unwrap();
        db.settle().unwrap();
        // The space of overwritten values is left to the target, although three eighths of each file are garbage.
        (0..count).filter(|key| key % 4 > 0).for_each(|key| kept.put(name(key), value(key, 1)).unwrap());
        db.compact().unwrap();
        db.settle().unwrap();
        assert_eq!(db.stats().value_moved_bytes, 0, "no deletes");
        if drops {
            db.drop_partition(gone.clone()).unwrap();
        } else {
            (count..2 * count).for_each(|key| kept.delete(name(key)).unwrap());
            db.flush().unwrap();
        }
        db.settle().unwrap();
        let (files, live) = (db.stats().value_file_bytes, count * VALUE_LEN as u64);
        assert!(files < live * 3 / 2, "{files} bytes for {live}, drops: {drops}");
        assert_eq!(kept.iter().count() as u64, count);
        db.verify().unwrap();
        // Once is enough, although each file has garbage again.
        let moved = db.stats().value_moved_bytes;
        (0..count).filter(|key| key % 8 < 5).for_each(|key| kept.put(name(key), value(key, 2)).unwrap());
        db.compact().unwrap();
        db.settle().unwrap();
        assert_eq!(db.stats().value_moved_bytes, moved, "drops: {drops}");
    }
}

/// Such a pass leaves files that it has chosen and did not need.
#[test]
fn the_space_of_deletes_comes_back_behind_a_pass_for_the_target() {
    let env = SimEnv::new(1);
    let db = options(&env).memtable_bytes(256 << 10).open("/store").unwrap();
    let (count, partition, mut rng) = (6000, db.default_partition(), fastrand::Rng::with_seed(7));
    (0..count).for_each(|key| partition.put(name(key), value(key, 0)).unwrap());
    for round in 0..2 * count {
        let key = rng.u64(..count);
        partition.put(name(key), value(key, round)).unwrap();
    }
    db.settle().unwrap();
    let moved = db.stats().value_moved_bytes;
    assert!(moved > 0);
    (0..count / 2).for_each(|key| partition.delete(name(key)).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    let (stats, live) = (db.stats(), count / 2 * VALUE_LEN as u64);
    let (files, moved) = (stats.value_file_bytes, stats.value_moved_bytes - moved);
    assert!(files < live * 6 / 5, "{files} bytes for {live}; {moved} moved");
    assert_eq!(partition.iter().count() as u64, count / 2);
    db.verify().unwrap();
}

#[test]
fn deletes_are_looked_at_when_the_store_is_quiet() {
    let env = SimEnv::new(1);
    let db = options(&env).space_target(4.0).memtable_bytes(256 << 10).open("/store").unwrap();
    let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
    for key in 0..2000 {
        kept.put(name(key), value(key, 0)).unwrap();
        gone.put(name(key), value(key, 0)).unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let before = db.stats().value_file_bytes;
    let mut relocator = Relocator::new(&db.inner().upkeep);
    assert_eq!(relocator.step(), JobStep::Idle, "nothing was deleted");
    db.drop_partition(gone).unwrap();
    assert!(matches!(relocator.step(), JobStep::IdleFor(_)), "more may follow");
    assert_eq!(db.stats().value_file_bytes, before);
    env.sleep(Duration::from_secs(3));
    while relocator.step() == JobStep::Again {}
    assert_eq!(relocator.step(), JobStep::Idle);
    let after = db.stats().value_file_bytes;
    assert!(after < before * 6 / 10, "{before} bytes before, {after} after");
    assert_eq!(kept.iter().count(), 2000);
}

#[test]
fn a_store_that_is_opened_with_a_lower_target_is_cleaned_at_once() {
    let env = SimEnv::new(1);
    let db = options(&env).space_target(4.0).open("/store").unwrap();
    let (mut model, mut rng) = (Model::new(), fastrand::Rng::with_seed(7));
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    churn(&db, &mut model, &mut rng, 2 * KEYS);
    db.flush().unwrap();
    db.settle().unwrap();
    let before = db.stats().value_file_bytes;
    drop(db);
    let db = options(&env).space_target(1.1).open("/store").unwrap();
    db.settle().unwrap();
    let after = db.stats().value_file_bytes;
    assert!(after < before * 8 / 10, "{before} bytes before, {after} after");
    check(&db, &model);
}

#[test]
fn a_snapshot_reads_old_values_and_their_files_go_with_it() {
    let env = SimEnv::new(1);
    let db = options(&env).open("/store").unwrap();
    let (mut model, mut rng) = (Model::new(), fastrand::Rng::with_seed(7));
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    db.settle().unwrap();
    let (snapshot, before) = (db.snapshot(), model.clone());
    churn(&db, &mut model, &mut rng, 6 * KEYS);
    db.settle().unwrap();
    assert!(db.stats().value_moved_bytes > 0 && db.stats().pinned_bytes > 0);
    for (key, round) in before {
        let found = snapshot.get(&db.default_partition(), name(key)).unwrap();
        assert_eq!(found.as_deref(), Some(&value(key, round)[..]));
    }
    drop(snapshot);
    db.inner().version_set.remove_obsolete();
    assert_eq!(db.stats().pinned_bytes, 0);
    let named = usize::try_from(db.stats().value_files).unwrap();
    let names = env.file_names(Path::new("/store"));
    let of_log = db.inner().version_set.record_files.lock().segments.len();
    let holds_values =
        |name: &&String| parse_values_name(name).is_some() || parse_segment_name(name).is_some();
    let values = names.iter().filter(holds_values).count();
    assert!(values <= named + of_log, "{names:?} for {named} files of values");
    check(&db, &model);
}

/// Deletes hide all values of old files, but no merge has removed the pointers to them.
#[test]
fn files_of_which_nothing_is_left_go_without_a_copy() {
    let env = SimEnv::new(1);
    let db = options(&env).runs_per_stage(64).open("/store").unwrap();
    let mut model = Model::new();
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    db.flush().unwrap();
    let files = db.stats().value_file_bytes;
    for key in 0..KEYS {
        db.default_partition().delete(name(key)).unwrap();
        model.remove(&key);
    }
    put(&db, &mut model, 7, 1);
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.value_file_bytes < files / 10, "{} of {files} bytes", stats.value_file_bytes);
    check(&db, &model);
    drop(db);
    check(&options(&env).open("/store").unwrap(), &model);
}

/// A store that has more garbage than its target allows, and a job that has not cleaned it yet.
fn dirty(env: &Arc<SimEnv>) -> (Db, Model, Relocator) {
    let db = options(env).space_target(4.0).open("/store").unwrap();
    let (mut model, mut rng) = (Model::new(), fastrand::Rng::with_seed(7));
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    churn(&db, &mut model, &mut rng, 2 * KEYS);
    db.flush().unwrap();
    db.settle().unwrap();
    drop(db);
    let db = options(env).space_target(1.1).open("/store").unwrap();
    let relocator = Relocator::new(&db.inner().upkeep);
    (db, model, relocator)
}

/// Steps until values have been moved.
fn step_to_a_move(db: &Db, relocator: &mut Relocator) {
    let moves = db.stats().value_moves;
    let mut steps = 0;
    while db.stats().value_moves == moves {
        assert!(relocator.try_step().unwrap() && steps < 100, "step {steps}");
        steps += 1;
    }
}

/// The edit of a move names a file that a power cut does not take. No other job has synced the directory since.
#[test]
fn moved_values_survive_a_power_cut() {
    let env = SimEnv::new(1);
    let (db, model, mut relocator) = dirty(&env);
    step_to_a_move(&db, &mut relocator);
    let cut = env.crash_image(CrashPolicy::DurableOnly, 1);
    check(&options(&cut).open("/store").unwrap(), &model);
}

/// A file of moved values has those of several segments. It is cleaned only if the live ones of all of them are known: it goes
/// as a whole.
#[test]
fn a_file_of_which_only_some_segments_were_marked_is_not_cleaned() {
    let env = SimEnv::new(1);
    let (db, _, mut relocator) = dirty(&env);
    step_to_a_move(&db, &mut relocator);
    let version = Arc::clone(&db.inner().version_set.state.load().version);
    let moved = |segment: &&LiveSegment| segment.home.kind == HomeKind::Moved;
    let file = version.values.iter().find(moved).unwrap().home.file;
    let segments: BTreeSet<_> =
        version.values.iter().filter(|segment| segment.home.file == file).map(|segment| segment.id).collect();
    assert!(segments.len() > 1, "{segments:?}");
    let states = states_of(&version, |home, _| home.len);
    let state: Vec<_> = states.into_iter().filter(|state| state.file == file).collect();
    let victims = |segments: &BTreeSet<FileId>| {
        let mut marked = mark(&db.inner().upkeep, &version, segments).unwrap();
        victims_of(&version, &state, &mut marked).len()
    };
    assert_eq!(victims(&segments), 1);
    for segment in &segments {
        let others = segments.iter().copied().filter(|other| other != segment).collect();
        assert_eq!(victims(&others), 0, "without {segment}");
        assert_eq!(victims(&BTreeSet::from([*segment])), 0, "only {segment}");
    }
}

/// A pass remembers the places of a limited number of values. A file with more could never be cleaned if only some of its
/// segments were looked at.
#[test]
fn a_file_of_many_values_is_looked_at_as_a_whole() {
    let env = SimEnv::new(1);
    let (db, _, mut relocator) = dirty(&env);
    step_to_a_move(&db, &mut relocator);
    let version = Arc::clone(&db.inner().version_set.state.load().version);
    let mut states = states_of(&version, |home, _| home.len);
    let segments_of = |file: FileId| {
        let of_file = version.values.iter().filter(move |segment| segment.home.file == file);
        of_file.map(|segment| segment.id).collect::<BTreeSet<_>>()
    };
    states.sort_by_key(|state| std::cmp::Reverse(segments_of(state.file).len()));
    let first = segments_of(states[0].file);
    assert!(first.len() > 1 && states.len() > 1, "{first:?}");
    assert_eq!(segments_in(&version, &states, 1), first, "the first file, alone");
    let both: BTreeSet<_> = first.union(&segments_of(states[1].file)).copied().collect();
    let values = |segment: &&LiveSegment| both.contains(&segment.id);
    let values = version.values.iter().filter(values).map(|segment| segment.live.values).sum();
    assert_eq!(segments_in(&version, &states[..2], values), both);
    assert_eq!(segments_in(&version, &states[..2], values - 1), first);
}

/// What a marking has found is used until a tenth of the live bytes has been written. Then much of it is garbage, too.
#[test]
fn a_marking_is_not_used_for_ever() {
    let env = SimEnv::new(1);
    let (db, mut model, mut relocator) = dirty(&env);
    while relocator.victims.is_empty() {
        assert!(relocator.try_step().unwrap());
    }
    let marked_at = relocator.marked_at;
    assert!(relocator.try_step().unwrap());
    assert!(!relocator.victims.is_empty() && relocator.marked_at == marked_at, "it is still used");
    (0..KEYS / 5).for_each(|key| put(&db, &mut model, key, 1_000_000));
    assert!(relocator.try_step().unwrap());
    assert!(relocator.marked_at > marked_at, "values were marked once more");
    check(&db, &model);
}

/// Pointers to overlapping values are forged. What they point to may be much more than the file, and a table of moved values
/// could not lead to them.
#[test]
fn overlapping_values_are_not_moved() {
    let env = SimEnv::new(1);
    let db = options(&env).space_target(4.0).open("/store").unwrap();
    let mut model = Model::new();
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    db.flush().unwrap();
    let upkeep = &db.inner().upkeep;
    let version = Arc::clone(&db.inner().version_set.state.load().version);
    let LiveSegment { id, home, .. } = version.values.iter().next().unwrap();
    let honest = mark(upkeep, &version, &BTreeSet::from([*id])).unwrap().places.remove(id).unwrap();
    let &(offset, len) = honest.iter().min().unwrap();
    for forged in [(offset, len - 1), (offset + 1, len), (offset + len, 100), (offset + len + 3, 1)] {
        let places = [&honest[..], &[forged]].concat();
        let victim = Victim { file: home.file, len: home.len, segments: vec![(*id, places)] };
        let error = upkeep.move_some(&mut VecDeque::from([victim])).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*home.path(&upkeep.ctx.dir))));
        assert_eq!(db.stats().value_moves, 0);
        assert_eq!(db.stats().value_files_damaged, 1);
    }
    check(&db, &model);
}

/// Relocation cannot take away the garbage of files that it cannot read. A wait of the writers would not change that.
#[test]
fn garbage_of_unreadable_files_charges_no_writer() {
    let env = SimEnv::new(1);
    let db = options(&env).space_target(1.3).open("/store").unwrap();
    let mut model = Model::new();
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    db.flush().unwrap();
    db.settle().unwrap();
    let version = Arc::clone(&db.inner().version_set.state.load().version);
    for (home, _) in version.values.homes().into_values() {
        env.add_unreadable(&home.path(Path::new("/store")), 0..home.len);
    }
    drop(version);
    for round in 1..8 {
        (0..KEYS).filter(|key| key % 10 != 0).for_each(|key| put(&db, &mut model, key, round));
        db.settle().unwrap();
        assert!(db.poisoned().is_none(), "{:?}", db.poisoned());
        assert!(value_debt(&db) <= 0.0, "round {round}: {:?}", db.stats());
    }
    let stats = db.stats();
    assert!(stats.value_files_damaged > 1, "{stats:?}");
    assert!(stats.value_file_bytes > KEYS * VALUE_LEN as u64 * 15 / 10, "{stats:?}");
    env.clear_faults();
    check(&db, &model);
}

/// The ratio by which files of values exceed their space.
fn value_debt(db: &Db) -> f64 {
    f64::from_bits(db.inner().ctx.value_debt.load(Ordering::Relaxed))
}

/// Relocation cannot free the garbage of SSTs, so it is no reason to charge writers, or to read all SSTs.
#[test]
fn garbage_of_ssts_charges_no_writer_and_is_not_marked_for() {
    for large in [1u64, 300] {
        let env = SimEnv::new(1);
        let options = options(&env).shape(Shape::Forest).runs_per_stage(4).separate_at(1000);
        let db = options.open("/store").unwrap();
        let (partition, mut rng) = (db.default_partition(), fastrand::Rng::with_seed(7));
        (0..large).for_each(|key| partition.put(format!("large{key}"), [1; 2000]).unwrap());
        let mut write = |count| {
            (0..count).for_each(|_| partition.put(name(rng.u64(..4000)), [7; 100]).unwrap());
            db.flush().unwrap();
        };
        let upkeep = &db.inner().upkeep;
        let ssts = || upkeep.estimated_space(&db.inner().version_set.state.load().version).ssts;
        let mut has_excess = false;
        for round in 0..8 {
            write(4000);
            let space = upkeep.estimated_space(&db.inner().version_set.state.load().version);
            has_excess |= (space.files + space.ssts) * 10 > (space.live + space.live_ssts) * 13 + (4 << 20);
            assert!(value_debt(&db) <= 0.0, "round {round}: {space:?}");
            db.settle().unwrap();
            assert!(value_debt(&db) <= 0.0, "round {round}: {space:?}");
            assert!(!db.inner().writes.pressure.is_on(0.0));
        }
        assert!(has_excess, "the premise");
        let read = || env.read_bytes() - db.stats().compaction_read_bytes;
        let before = read();
        for _ in 0..40 {
            // Garbage that could be freed, but for which it is not worth to read all SSTs.
            partition.put("large0", [2; 2000]).unwrap();
            write(300);
            assert!(value_debt(&db) <= 0.0);
        }
        let (read, ssts) = (read() - before, ssts());
        assert!(read < 8 * ssts, "{large}: {read} bytes were read of {ssts}");
    }
}

/// What the disk has free is for flushes first. Values move as soon as there is room, without another write.
#[test]
fn values_do_not_move_into_the_room_of_flushes() {
    let env = SimEnv::new(1);
    let (db, model, mut relocator) = dirty(&env);
    // Half of it is less than any file has.
    env.set_capacity(env.used_space() + (4 << 10));
    let mut steps = 0;
    while relocator.step() == JobStep::Again {
        steps += 1;
        assert!(steps < 50, "it is put off");
    }
    assert!(relocator.used_until > 0, "values were marked");
    assert_eq!(db.stats().value_moves, 0);
    let read = env.read_bytes();
    (0..5).for_each(|_| assert_eq!(relocator.step(), JobStep::Idle));
    assert_eq!(env.read_bytes(), read, "nothing is marked again");
    assert!(db.poisoned().is_none());
    env.set_capacity(1 << 30);
    while relocator.step() == JobStep::Again {}
    assert!(db.stats().value_moves > 0);
    assert_eq!(db.inner().upkeep.relocation.lock().retry_above, 0, "the target is reached");
    check(&db, &model);
}

/// Between no room at all and much room there is no room at which values never move.
#[test]
fn values_move_into_half_of_what_is_free() {
    for more in [-8 << 10, 0, 8 << 10, 128 << 10] {
        let env = SimEnv::new(1);
        let (db, model, mut relocator) = dirty(&env);
        let kept = db.inner().writes.kept_for_flushes();
        let free = (i64::try_from(kept).unwrap() + more).cast_unsigned();
        env.set_capacity(env.used_space() + free);
        let moved_bytes = |db: &Db| db.stats().value_moved_bytes;
        let mut steps = 0;
        while moved_bytes(&db) == 0 && relocator.step() == JobStep::Again {
            steps += 1;
            assert!(steps < 50, "it is put off");
        }
        assert!(
            moved_bytes(&db) > 0 && moved_bytes(&db) <= (free / 2).max(free.saturating_sub(kept)),
            "{more}"
        );
        check(&db, &model);
    }
}

#[test]
fn a_move_that_finds_the_disk_full_is_put_off() {
    let env = SimEnv::new(1);
    let (db, mut model, mut relocator) = dirty(&env);
    while relocator.victims.is_empty() {
        assert_eq!(relocator.step(), JobStep::Again);
    }
    env.set_fault(Some(Fault { at_op: env.op_count() + 1, kind: FaultKind::NoSpaceFrom }));
    let mut steps = 0;
    while relocator.step() == JobStep::Again {
        steps += 1;
        assert!(steps < 50, "it is put off");
    }
    let read = env.read_bytes();
    (0..5).for_each(|_| assert_eq!(relocator.step(), JobStep::Idle));
    assert_eq!(env.read_bytes(), read, "nothing is marked or copied again");
    env.clear_faults();
    assert!(db.poisoned().is_none());
    churn(&db, &mut model, &mut fastrand::Rng::with_seed(8), KEYS);
    db.settle().unwrap();
    assert!(db.stats().value_moves > 0);
    let upkeep = &db.inner().upkeep;
    assert_eq!(upkeep.relocation.lock().retry_above, 0, "a move that frees something ends what was put off");
    check(&db, &model);
}

/// Writers make garbage as fast as relocation takes it away. Who waits for room gives up once they have written much.
#[test]
fn a_wait_for_room_ends_beside_writers() {
    let env = SimEnv::new(1);
    // No job moves values, and one that never settles is made believe.
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(8 << 20).memtable_bytes(64 << 10);
    let db = options.separate_at(0).open("/store").unwrap();
    let write = |db: &Db| {
        (0..100u32).for_each(|key| db.default_partition().put(key.to_le_bytes(), [1; 100]).unwrap());
        db.flush().unwrap();
    };
    write(&db);
    db.inner().upkeep.relocation.lock().is_busy = true;
    db.inner().version_set.trash.pin(1 << 40);
    let is_done = Arc::new(AtomicBool::new(false));
    let mut clients = Clients::new();
    let (client, done) = (db.clone(), Arc::clone(&is_done));
    clients.add("wait", move || {
        client.inner().upkeep.make_room_for_values(PartitionId(0), 1000, &mut || true).unwrap();
        done.store(true, Ordering::Relaxed);
    });
    let client = db.clone();
    clients.add("write", move || {
        let rounds =
            (0..1000).take_while(|_| !is_done.load(Ordering::Relaxed)).map(|_| write(&client)).count();
        assert!((5..1000).contains(&rounds), "{rounds} rounds");
    });
    env.run_clients(1, clients);
}
