//! Races of reads with each other and with the thread that reads for futures.

use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park, spawn};
use std::time::Duration;

use pleach::env::failpoint::hold;
use pleach::{Options, ReadDriver, ReadOptions};

use crate::race;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => park(),
        }
    }
}

/// Keys of the store, of which ten in a row never share a block.
pub(crate) const KEYS: u32 = 40;

pub(crate) fn key(n: u32) -> String {
    format!("key{n:02}")
}

pub(crate) fn store(dir: &Path) -> Options {
    let options = Options::new().compression(false).read_driver(ReadDriver::Ring);
    let db = options.clone().open(dir).unwrap();
    for n in 0..KEYS {
        db.default_partition().put(key(n), [0; 3000]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    options
}

#[test]
fn a_read_handed_in_while_the_ring_thread_falls_asleep_is_made() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path()).open(dir.path()).unwrap();
        let partition = db.default_partition();
        // Fails, where the future would sleep for ever.
        let limit = ReadOptions::new().timeout(Duration::from_secs(60));
        assert!(block_on(partition.get_async(key(0))).unwrap().is_some(), "the thread has started");
        let held = hold("reads.looked");
        let mut unwanted = partition.get_async(key(15));
        let polled = Pin::new(&mut unwanted).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        held.wait_for(1);
        // Nothing is in flight now that would wake the thread.
        drop(unwanted);
        let mut wanted = partition.get_async_with(key(30), &limit);
        let polled = Pin::new(&mut wanted).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        held.release();
        assert!(block_on(wanted).unwrap().is_some());
    });
}

#[test]
fn a_block_that_is_cached_before_it_is_claimed_is_not_read_again() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path()).open(dir.path()).unwrap();
        let partition = db.default_partition();
        let held = hold("loads.begin");
        let late = spawn({
            let partition = partition.clone();
            move || partition.get(key(0))
        });
        held.wait_for(1);
        assert!(block_on(partition.get_async(key(0))).unwrap().is_some());
        held.release();
        assert!(late.join().unwrap().unwrap().is_some());
        assert_eq!(db.stats().lookup_reads, 1);
    });
}

/// Counts how often its task was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Tasks read by themselves here, and the one that handed the read in is not polled again.
#[test]
fn a_task_that_found_a_read_before_it_was_handed_in_is_woken() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path()).read_driver(ReadDriver::Blocking).open(dir.path()).unwrap();
        let partition = db.default_partition();
        let held = hold("loads.entered");
        let first = spawn({
            let partition = partition.clone();
            move || {
                let mut first = partition.get_async(key(0));
                let polled = Pin::new(&mut first).poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
                first
            }
        });
        held.wait_for(1);
        let wakes = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut second = partition.get_async(key(0));
        for _ in 0..2 {
            assert!(Pin::new(&mut second).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let before = wakes.0.load(Ordering::SeqCst);
        held.release();
        let _kept = first.join().unwrap();
        assert_eq!(wakes.0.load(Ordering::SeqCst), before + 1);
        assert!(block_on(second).unwrap().is_some());
    });
}
