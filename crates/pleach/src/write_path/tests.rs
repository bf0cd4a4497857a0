//! Tests of groups: what a leader does for the requests of others. They drive the leader with a group made by hand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pleach_env::{CrashPolicy, Fault, FaultKind, SimEnv};
use pleach_log::Durability;

use super::*;
use crate::{Db, Options, Partition};

fn open(env: &Arc<SimEnv>) -> Db {
    Options::new().env(Arc::clone(env) as _).open("store").unwrap()
}

fn put(partition: &Partition, key: &str, value: &str, durability: Durability) -> WriteRequest {
    let mut operations = Operations::default();
    operations
        .push(partition.id(), key.as_bytes(), Some(value.as_bytes()), crate::options::ValueSizes::ALL_SMALL)
        .unwrap();
    WriteRequest::new(operations, TouchedPartitions::one(&partition.live), durability)
}

/// Commits the requests as one group.
fn lead(db: &Db, mut group: Vec<WriteRequest>) -> Vec<Result<()>> {
    db.inner().writes.lead(&mut group);
    group.into_iter().map(|request| request.result.expect("the leader answers all")).collect()
}

/// Commits a group in which only request number `syncs` asks for a sync. Returns whether the whole group is durable.
fn is_durable_when_one_asks(syncs: usize) -> bool {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    let durability = |i| if i == syncs { Durability::Sync } else { Durability::Buffered };
    let results = lead(&db, (0..3).map(|i| put(&partition, &format!("k{i}"), "v", durability(i))).collect());
    assert!(results.iter().all(Result::is_ok));
    let writer = db.inner().writes.lock();
    writer.log.durable_seq() == writer.log.last_seq()
}

#[test]
fn a_group_is_synced_if_any_of_its_requests_asks() {
    assert!((0..3).all(is_durable_when_one_asks));
    assert!(!is_durable_when_one_asks(9), "no request asked");
}

/// The value of a key that a group has put three times: at once, in a snapshot of the middle, and after a reopening.
fn values_after_group() -> [Option<Vec<u8>>; 3] {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    let puts = ["first", "second", "third"].map(|value| put(&partition, "key", value, Durability::Buffered));
    let first_seq = db.inner().writes.lock().next_seq;
    assert!(lead(&db, puts.into()).iter().all(Result::is_ok));
    let state = db.inner().version_set.state.load_full();
    let value_at = |seq| {
        let id = partition.id();
        let tree = state.version.tree(id).unwrap();
        let found = crate::lookup::get_blocking(
            &db.inner().ctx,
            &state,
            (id, tree),
            b"key",
            seq,
            &crate::ReadOptions::new(),
        )
        .unwrap();
        found.map(|value| value.to_vec())
    };
    let (latest, middle) = (value_at(first_seq + 2), value_at(first_seq + 1));
    drop(state);
    db.close().unwrap();
    let recovered = open(&env).default_partition().get("key").unwrap();
    [latest, middle, recovered.map(Vec::from)]
}

#[test]
fn a_group_is_inserted_in_the_order_of_the_log() {
    let expected = ["third", "second", "third"].map(|value| Some(value.as_bytes().to_vec()));
    assert_eq!(values_after_group(), expected);
}

#[test]
fn one_refused_request_leaves_the_others_of_its_group() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
    let group = vec![
        put(&kept, "a", "1", Durability::Buffered),
        put(&gone, "b", "2", Durability::Sync),
        put(&kept, "c", "3", Durability::Buffered),
    ];
    db.drop_partition(gone).unwrap();
    let results = lead(&db, group);
    assert_eq!(results[1].as_ref().map_err(Error::kind), Err(ErrorKind::Closed));
    assert!(results[0].is_ok() && results[2].is_ok());
    assert_eq!(kept.iter().count(), 2);
}

/// A store with one durable put, and then two in a group that was refused: the quota broke off its write behind the first. No
/// write goes on, not even one in place.
fn store_with_half_a_group(env: &Arc<SimEnv>) -> Db {
    let start = |env: &Arc<SimEnv>| {
        let db = open(env);
        db.default_partition().put_with("before", "1", Durability::Sync).unwrap();
        db
    };
    let group =
        |db: &Db| ["first", "second"].map(|key| put(&db.default_partition(), key, "2", Durability::Buffered));
    let twin = start(&SimEnv::new(1));
    let log_end = |db: &Db| db.inner().writes.lock().log.offset();
    let before = log_end(&twin);
    assert!(lead(&twin, group(&twin).into_iter().take(1).collect())[0].is_ok());
    let first_len = log_end(&twin) - before;

    let db = start(env);
    env.set_write_quota(Some(first_len));
    let results = lead(&db, group(&db).into());
    assert!(results.iter().all(|result| result.as_ref().is_err_and(Error::is_out_of_space)));
    db
}

fn keys_after_crash(env: &SimEnv, policy: CrashPolicy) -> Vec<Vec<u8>> {
    let db = open(&env.crash_image(policy, 1));
    db.default_partition().iter().map(|entry| entry.unwrap().0.to_vec()).collect()
}

/// The sync once succeeded, and the next open found the first of the two puts.
#[test]
fn a_sync_fails_while_half_a_failed_group_is_in_the_log() {
    let env = SimEnv::new(1);
    let db = store_with_half_a_group(&env);
    assert_eq!(keys_after_crash(&env, CrashPolicy::Everything), [&b"before"[..], b"first"]);
    for _ in 0..2 {
        assert!(db.sync().unwrap_err().is_out_of_space());
        assert!(db.default_partition().put("later", "3").unwrap_err().is_out_of_space());
        assert!(db.poisoned().is_none(), "it may succeed later");
    }
    env.set_write_quota(None);
    db.sync().unwrap();
    for policy in [CrashPolicy::DurableOnly, CrashPolicy::Everything] {
        assert_eq!(keys_after_crash(&env, policy), [b"before"]);
    }
    db.default_partition().put("later", "3").unwrap();
    db.close().unwrap();
    assert_eq!(keys_after_crash(&env, CrashPolicy::DurableOnly), [&b"before"[..], b"later"]);
}

#[test]
fn a_close_fails_while_half_a_failed_group_is_in_the_log() {
    let env = SimEnv::new(1);
    let db = store_with_half_a_group(&env);
    assert!(db.close().unwrap_err().is_out_of_space());
    env.set_write_quota(None);
    let db = open(&env);
    assert!(db.default_partition().contains("before").unwrap());
    db.close().unwrap();
    open(&env).verify().unwrap();
}

/// A request whose leader inserts its first operation into the memtable and then panics.
fn put_that_panics(partition: &Partition) -> WriteRequest {
    let mut request = put(partition, "half", "batch", Durability::Buffered);
    request.operations.record_mut().bytes_mut().push(0xff);
    request
        .operations
        .push(partition.id(), b"never", Some(b"seen"), crate::options::ValueSizes::ALL_SMALL)
        .unwrap();
    request
}

/// A store with one batch, whose next leader has panicked while it inserted.
fn store_with_panicked_leader(env: &Arc<SimEnv>) -> Db {
    let db = open(env);
    let partition = db.default_partition();
    partition.put("before", "1").unwrap();
    let commit = || db.inner().writes.commit(put_that_panics(&partition));
    assert!(catch_unwind(AssertUnwindSafe(commit)).is_err());
    db
}

#[test]
fn a_panic_of_the_leader_stops_the_store_at_once() {
    let db = store_with_panicked_leader(&SimEnv::new(1));
    let partition = db.default_partition();
    assert!(db.poisoned().is_some(), "no later commit is needed to notice it");
    // None of these may make half a batch durable, or let readers wait for a batch that no thread completes.
    assert_eq!(db.flush().map_err(|e| e.kind()), Err(ErrorKind::Poisoned));
    assert_eq!(db.partition("new").map_err(|e| e.kind()).err(), Some(ErrorKind::Poisoned));
    assert_eq!(partition.put("later", "2").map_err(|e| e.kind()), Err(ErrorKind::Poisoned));
    assert_eq!(partition.get("before").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(partition.get("half").unwrap(), None);
    assert_eq!(partition.iter().count(), 1);
}

#[test]
fn reads_after_the_close_of_a_panicked_store_answer_closed() {
    let db = store_with_panicked_leader(&SimEnv::new(1));
    let partition = db.default_partition();
    let (snapshot, range) = (db.snapshot(), partition.iter());
    assert_eq!(db.close().map_err(|e| e.kind()), Err(ErrorKind::Poisoned));
    assert_eq!(partition.get("before").map_err(|e| e.kind()).err(), Some(ErrorKind::Closed));
    assert_eq!(snapshot.get(&partition, "before").map_err(|e| e.kind()).err(), Some(ErrorKind::Closed));
    let first = range.map(|entry| entry.map_err(|e| e.kind()).err()).next();
    assert_eq!(first, Some(Some(ErrorKind::Closed)));
}

/// Otherwise another writer could take the lock before the store is poisoned, and find numbers that do not fit.
#[test]
fn a_leader_that_panics_poisons_the_store_before_it_lets_go_of_the_lock() {
    let db = open(&SimEnv::new(1));
    let group = vec![put_that_panics(&db.default_partition())];
    // Without the queue, so nothing but the leader can have poisoned it.
    assert!(catch_unwind(AssertUnwindSafe(|| lead(&db, group))).is_err());
    let is_poisoned = db.poisoned().is_some();
    db.inner().writes.break_inserts(); // Otherwise the close would wait, and the test not fail.
    assert!(is_poisoned);
}

/// Claims of failed puts once stayed, until the memtable was full and deletes were refused as well.
#[test]
fn puts_that_the_log_refuses_take_no_memory() {
    let env = SimEnv::new(1);
    env.set_maps_files(true);
    let options = Options::new().memory(64 << 20).memtable_bytes(16 << 20);
    let db = options.env(Arc::clone(&env) as _).open("store").unwrap();
    let partition = db.default_partition();
    let log_end = || db.inner().writes.lock().log.offset();
    let used_bytes = || db.inner().writes.lock().memtable.used_bytes();
    // So little is left of the reserved step of the log that a large put needs another.
    let near_end = (4 << 20) - (6 << 10);
    for key in 0u32..5000 {
        if log_end() < near_end {
            partition.put(key.to_le_bytes(), [1; 1000]).unwrap();
        }
    }
    env.set_fault(Some(Fault { at_op: env.op_count(), kind: FaultKind::NoSpaceFrom }));
    let before = used_bytes();
    for key in 0u32..1000 {
        let error = partition.put(key.to_le_bytes(), [2; 8000]).unwrap_err();
        assert!(error.is_out_of_space() && error.to_string().contains("reserve space for"), "{error}");
    }
    assert_eq!(used_bytes(), before);
    partition.delete(0u32.to_le_bytes()).unwrap();
    env.clear_faults();
    partition.put("more", [2; 8000]).unwrap();
    assert_eq!(partition.get(1u32.to_le_bytes()).unwrap().as_deref(), Some(&[1; 1000][..]));
}

/// If memory is short, only the largest requests of a group are refused; the others are committed.
#[test]
fn a_group_without_memory_for_all_refuses_the_largest() {
    let db = open(&SimEnv::new(1));
    let partition = db.default_partition();
    let too_much = Footprint { bytes: crate::memtable::FOOTPRINT_MAX + 1, ..Footprint::default() };
    for giants in [&[0][..], &[2], &[0, 1, 2], &[]] {
        let mut group: Vec<_> =
            (0..3).map(|i| put(&partition, &format!("{giants:?}{i}"), "v", Durability::Sync)).collect();
        for &giant in giants {
            group[giant].operations.claim(too_much);
        }
        for (i, result) in lead(&db, group).into_iter().enumerate() {
            let kept = partition.contains(format!("{giants:?}{i}")).unwrap();
            assert_eq!(
                (result.is_err(), kept),
                (giants.contains(&i), !giants.contains(&i)),
                "{giants:?} {i}"
            );
            if let Err(error) = result {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                assert!(error.to_string().contains("smaller batches"), "{error}");
            }
        }
    }
}

/// A thread that panics between log and memtable leaves a number that is never shown: what waits behind it is poisoned.
#[test]
#[expect(clippy::disallowed_methods, reason = "threads wait for each other on a real machine")]
fn a_batch_that_never_comes_to_its_turn_ends_the_waits_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let partition = db.default_partition();
    partition.put("before", "1").unwrap();
    let writes = &db.inner().writes;
    let state = writes.version_set.state.load_full();
    let mut request = put(&partition, "lost", "1", Durability::Buffered);
    let logged = {
        let mut writer = writes.writer.lock_soon().unwrap();
        writes.log_side_by_side(&mut writer, &mut request, &state.active.memtable).unwrap().unwrap()
    };
    let seen = db.last_sequence_number();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| partition.put("behind", "1"));
        let flush = scope.spawn(|| db.flush());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished() && !flush.is_finished());
        drop(logged); // As the panic does.
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(flush.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
    });
    assert_eq!(partition.put("after", "1").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(db.last_sequence_number(), seen);
    assert_eq!(partition.iter().count(), 1);
    drop((request, state, partition));
    assert!(db.close().is_err());
    // What was not acknowledged is there or not, in order.
    let db = Db::open(dir.path()).unwrap();
    let keys: Vec<_> = db.default_partition().iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert!(keys.contains(&b"before".to_vec()), "{keys:?}");
    assert!(!keys.contains(&b"after".to_vec()), "{keys:?}");
}
