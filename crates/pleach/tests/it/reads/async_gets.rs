//! Reads by futures: on every driver they answer as blocking reads do, and a future may be dropped at any moment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use pleach::env::{Fault, FaultKind, RealEnv, SimEnv, SlowEnv};
use pleach::limits::KEY_LEN_MAX;
use pleach::{ErrorKind, GetFuture, ReadDriver, Value};

use super::{KEYS, fill, key, machine, newest_key, options, run_all, started, value};
use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::setup::DIR;
use crate::rig::tasks::{Panics, Unpark, block_on};

#[test]
fn futures_answer_as_blocking_reads_do_on_every_driver() {
    let dir = tempfile::tempdir().unwrap();
    fill(&options(8 << 20).open(dir.path()).unwrap());
    for (driver, direct) in DRIVERS.into_iter().flat_map(|driver| [(driver, false), (driver, true)]) {
        let db = options(1 << 20).direct_reads(direct).read_by(driver).open(dir.path()).unwrap();
        let partition = db.default_partition();
        let mut rng = Rng::with_seed(3);
        for seed in 0..4 {
            for (n, answer) in run_all(started(&partition, &mut rng, 700), seed, None) {
                let expected = partition.get(key(n)).unwrap();
                assert_eq!(answer.unwrap().as_deref(), expected.as_deref(), "{driver:?} {}", key(n));
            }
        }
        let keys: Vec<_> = (0..900).map(|_| key(rng.u64(..KEYS + 100))).collect();
        assert_eq!(block_on(partition.get_many_async(&keys)).unwrap(), partition.get_many(&keys).unwrap());
        let too_long = vec![0; KEY_LEN_MAX + 1];
        assert_eq!(block_on(partition.get_async(too_long)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

/// With the machine of a real driver, from several threads.
#[test]
fn futures_that_are_dropped_or_forgotten_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    fill(&options(8 << 20).open(dir.path()).unwrap());
    for driver in DRIVERS {
        let db = options(1 << 20).read_by(driver).open(dir.path()).unwrap();
        let partition = db.default_partition();
        thread::scope(|scope| {
            for thread in 0..3 {
                let partition = &partition;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(thread);
                    for seed in 0..6 {
                        for (n, answer) in run_all(started(partition, &mut rng, 200), seed, Some(5)) {
                            let expected = partition.get(key(n)).unwrap();
                            assert_eq!(answer.unwrap().as_deref(), expected.as_deref(), "{driver:?}");
                        }
                    }
                });
            }
        });
        let stats = db.stats();
        assert!(stats.cache_bytes <= stats.cache_capacity_bytes);
        drop(partition);
        db.close().unwrap();
    }
}

/// A task is in the middle of a read for another one when the store is closed, and the future of the other was forgotten.
#[test]
fn a_read_that_ends_after_the_close_keeps_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    fill(&options(8 << 20).open(dir.path()).unwrap());
    let env = Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), 8));
    let options = options(8 << 20).env(Arc::<SlowEnv>::clone(&env)).read_driver(ReadDriver::Blocking);
    let db = options.open(dir.path()).unwrap();
    let partition = db.default_partition();
    let poll = |future: &mut GetFuture| Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
    let mut forgotten = partition.get_async(key(newest_key()));
    assert!(poll(&mut forgotten).is_pending());
    std::mem::forget(forgotten);
    env.set_latency(Duration::from_millis(200));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut helper = partition.get_async(key(newest_key() + 4));
            assert!(poll(&mut helper).is_pending());
            let _answer_or_closed = poll(&mut helper);
            std::mem::forget(helper);
        });
        while env.running_max() == 0 {
            thread::yield_now();
        }
        // The close makes the read of the helper's own key, and ends before the helper.
        env.set_latency(Duration::ZERO);
        db.clone().close().unwrap();
        assert!(db.stats().cache_locked_bytes > 0, "the helper reads");
    });
    assert_eq!(db.stats().cache_locked_bytes, 0);
}

#[test]
fn tasks_that_want_one_block_share_its_read() {
    let (env, db) = machine(1);
    let partition = db.default_partition();
    let mut rng = Rng::with_seed(1);
    let n = newest_key();
    let before = env.read_count();
    let futures = (0..50).map(|_| (n, partition.get_async(key(n)))).collect();
    let answers = run_all(futures, rng.u64(..), None);
    assert!(
        answers.into_iter().all(|(_, answer)| answer.unwrap().is_some_and(|found| *found == value(n, 3)))
    );
    assert_eq!(env.read_count() - before, 1);
    assert!(block_on(partition.get_async(key(n))).unwrap().is_some());
    assert_eq!(env.read_count() - before, 1, "it is cached now, and ready at once");
}

#[test]
fn a_read_in_flight_keeps_no_waker_of_a_dropped_future() {
    let (_env, db) = machine(1);
    let partition = db.default_partition();
    let tasks: Vec<_> = (0..2).map(|_| Unpark::new()).collect();
    let poll = |future: &mut GetFuture, task: usize| {
        let waker = Waker::from(Arc::clone(&tasks[task]));
        assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
    };
    let kept = || tasks.iter().map(|task| Arc::strong_count(task) - 1).collect::<Vec<_>>();
    let mut first = partition.get_async(key(newest_key()));
    let mut second = partition.get_async(key(newest_key()));
    poll(&mut first, 0);
    poll(&mut second, 1);
    assert_eq!(kept(), [1, 1]);
    drop(first);
    assert_eq!(kept(), [0, 1]);
    drop(second);
    assert_eq!(kept(), [0, 0]);
}

#[test]
fn a_read_that_fails_is_the_error_of_all_who_wait_for_it() {
    let (env, db) = machine(1);
    let partition = db.default_partition();
    env.add_fault(Fault { at_op: env.read_count(), kind: FaultKind::ReadEio });
    let n = newest_key();
    let mut futures: Vec<_> = (0..5).map(|_| (n, partition.get_async(key(n)))).collect();
    for (_, future) in &mut futures {
        assert!(Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // One that failed and is kept does not stand in the way of the next one.
    std::mem::forget(futures.pop());
    for (_, answer) in run_all(futures, 1, None) {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.path().and_then(Path::extension).unwrap(), "sst");
    }
    assert!(block_on(partition.get_async(key(n))).unwrap().is_some(), "the next one reads again");
}

#[test]
fn a_future_of_a_closed_store_or_a_dropped_partition_is_closed_or_right() {
    for driver in DRIVERS {
        let dir = tempfile::tempdir().unwrap();
        fill(&options(8 << 20).open(dir.path()).unwrap());
        let db = options(1 << 20).read_by(driver).open(dir.path()).unwrap();
        let partition = db.default_partition();
        let n = newest_key();
        let expected = Some(value(n, 3));
        let mut begun = partition.get_async(key(n));
        let not_begun = partition.get_async(key(n));
        let waker = Waker::from(Unpark::new());
        let polled = Pin::new(&mut begun).poll(&mut Context::from_waker(&waker));
        db.close().unwrap();
        // On a busy machine the read may have ended within the first poll.
        let answer = if let Poll::Ready(answer) = polled { answer } else { block_on(begun) };
        match answer {
            Ok(value) => assert_eq!(value.map(Value::into_vec), expected),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{driver:?}: {error}"),
        }
        assert_eq!(block_on(not_begun).unwrap_err().kind(), ErrorKind::Closed);
        let db = options(1 << 20).read_by(driver).open(dir.path()).unwrap();
        let gone = db.partition("gone").unwrap();
        gone.put("key", "value").unwrap();
        let future = gone.get_async("key");
        db.drop_partition(gone).unwrap();
        assert_eq!(block_on(future).unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// A task that is dropped when it is woken, with the last handle of its store.
struct Last(Mutex<Option<GetFuture>>, Sender<()>);

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
        self.1.send(()).unwrap();
    }
}

#[test]
fn a_task_that_is_dropped_when_it_is_woken_closes_its_store() {
    let dir = tempfile::tempdir().unwrap();
    fill(&options(8 << 20).open(dir.path()).unwrap());
    for driver in [ReadDriver::Ring, ReadDriver::Threads] {
        let db = options(1 << 20).direct_reads(true).read_by(driver).open(dir.path()).unwrap();
        let (sender, dropped) = channel();
        let task = Arc::new(Last(Mutex::new(None), sender));
        let waker = Waker::from(Arc::clone(&task));
        // The thread that reads waits for the lock, so it drops the last handle.
        let mut future = task.0.lock().unwrap();
        let partition = db.default_partition();
        // A read may end before the poll does; one from the page cache does so always on some busy machines.
        let is_pending = (0..KEYS).step_by(20).any(|n| {
            let begun = future.insert(partition.get_async(key(n)));
            Pin::new(begun).poll(&mut Context::from_waker(&waker)).is_pending()
        });
        assert!(is_pending);
        drop((db, partition));
        drop(future);
        dropped.recv_timeout(Duration::from_secs(60)).expect("the close ends");
        options(1 << 20).open(dir.path()).expect("the lock is released").close().unwrap();
    }
}

#[test]
fn a_task_that_panics_when_it_is_woken_keeps_no_other_asleep() {
    let (_env, db) = machine(1);
    let partition = db.default_partition();
    let n = newest_key();
    let mut futures: Vec<_> = (0..3).map(|_| partition.get_async(key(n))).collect();
    let woken = Unpark::new();
    let mut poll = |at: usize, waker: &Waker| {
        let _pending = Pin::new(&mut futures[at]).poll(&mut Context::from_waker(waker));
    };
    poll(0, &Waker::from(Arc::new(Panics)));
    poll(1, &Waker::from(Arc::clone(&woken)));
    let before = woken.wakes();
    for _ in 0..2 {
        poll(2, Waker::noop());
    }
    assert_eq!(woken.wakes(), before + 1);
}

#[test]
fn the_end_of_a_failed_read_changes_nothing_for_the_next() {
    let (env, db) = machine(1);
    let partition = db.default_partition();
    let n = newest_key();
    let mut context = Context::from_waker(Waker::noop());
    let begun = |context: &mut Context<'_>| {
        let mut future = partition.get_async(key(n));
        assert!(Pin::new(&mut future).poll(context).is_pending());
        future
    };
    env.add_fault(Fault { at_op: env.read_count(), kind: FaultKind::ReadEio });
    let failed = begun(&mut context);
    assert!(block_on(partition.get_async(key(n))).is_err(), "of the same read");
    let before = env.read_count();
    let second = begun(&mut context);
    drop(failed);
    let third = begun(&mut context);
    for (_, answer) in run_all(vec![(n, second), (n, third)], 1, None) {
        assert!(answer.unwrap().is_some());
    }
    assert_eq!(env.read_count() - before, 1, "the third shares the read of the second");
}

#[test]
fn a_read_in_flight_keeps_its_file_when_the_partition_is_dropped() {
    let (env, db) = machine(1);
    db.partition("gone").unwrap().put("key", [9; 300]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = options(8 << 20).env(Arc::<SimEnv>::clone(&env)).open(DIR).unwrap();
    let gone = db.find_partition("gone").unwrap();
    let mut begun = gone.get_async("key");
    assert!(Pin::new(&mut begun).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let ssts = || env.file_names(Path::new(DIR)).iter().filter(|name| name.contains(".sst")).count();
    let before = ssts();
    db.drop_partition(gone).unwrap();
    env.run_jobs();
    assert_eq!(ssts(), before);
    assert_eq!(block_on(begun).unwrap().as_deref(), Some(&[9; 300][..]));
    env.run_jobs();
    assert_eq!(ssts(), before - 1);
}

#[test]
fn a_second_open_is_refused_and_disturbs_no_read_in_flight() {
    let (env, db) = machine(1);
    let n = newest_key();
    let mut begun = db.default_partition().get_async(key(n));
    assert!(Pin::new(&mut begun).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    for read_only in [false, true] {
        let second = options(8 << 20).env(Arc::<SimEnv>::clone(&env)).read_only(read_only).open(DIR);
        assert_eq!(second.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert!(block_on(begun).unwrap().is_some());
    let (partition, mut rng) = (db.default_partition(), Rng::with_seed(1));
    for (n, answer) in run_all(started(&partition, &mut rng, 50), 1, None) {
        assert_eq!(answer.unwrap(), partition.get(key(n)).unwrap(), "{n}");
    }
}

#[test]
fn futures_of_a_snapshot_read_what_it_sees() {
    let (env, db) = machine(1);
    let (partition, n) = (db.default_partition(), newest_key());
    let gone = db.partition("gone").unwrap();
    gone.put("key", "gone").unwrap();
    let snapshot = db.snapshot();
    let seen = partition.get(key(n)).unwrap();
    let late = db.partition("late").unwrap();
    partition.put(key(n), "after").unwrap();
    db.drop_partition(gone.clone()).unwrap();
    let one = snapshot.get_async(&partition, key(n));
    let many = snapshot.get_many_async(&partition, [key(n), "none".to_owned()]);
    let dropped = snapshot.get_async(&gone, "key");
    drop(snapshot);
    db.flush().unwrap();
    db.compact().unwrap();
    env.run_jobs();
    assert_eq!(block_on(one).unwrap().as_deref(), seen.as_deref());
    let many = block_on(many).unwrap();
    assert_eq!((many[0].as_deref(), many[1].as_deref()), (seen.as_deref(), None));
    assert_eq!(block_on(dropped).unwrap().as_deref(), Some(&b"gone"[..]), "it was there");
    let snapshot = db.snapshot();
    assert!(block_on(snapshot.get_async(&late, "key")).unwrap().is_none());
    assert_eq!(block_on(snapshot.get_async(&gone, "key")).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(block_on(snapshot.get_many_async(&gone, ["key"])).unwrap_err().kind(), ErrorKind::Closed);
    let (_env, other) = machine(2);
    let foreign = other.default_partition();
    assert_eq!(block_on(snapshot.get_async(&foreign, "key")).unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.clone().close().unwrap();
    assert_eq!(block_on(snapshot.get_async(&partition, key(n))).unwrap_err().kind(), ErrorKind::Closed);
}

/// As those of `async fn`.
#[test]
fn futures_that_are_polled_after_their_answer_panic() {
    let (_env, db) = machine(1);
    let partition = db.default_partition();
    let mut context = Context::from_waker(Waker::noop());
    let mut polled_again = |future: &mut dyn FnMut(&mut Context<'_>) -> bool| {
        while !future(&mut context) {}
        catch_unwind(AssertUnwindSafe(|| future(&mut context))).is_err()
    };
    let (mut one, mut many) = (partition.get_async(key(1)), partition.get_many_async([key(1), key(2)]));
    assert!(polled_again(&mut |context| Pin::new(&mut one).poll(context).is_ready()));
    assert!(polled_again(&mut |context| Pin::new(&mut many).poll(context).is_ready()));
    let mut failed = partition.get_many_async([""]);
    assert!(polled_again(&mut |context| Pin::new(&mut failed).poll(context).is_ready()));
}
