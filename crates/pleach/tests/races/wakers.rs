//! Races of a close with wakers that close the store too: on a thread that reads, on the timer's, on the one that closes.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::{current, spawn};
use std::time::Duration;

use pleach::env::failpoint::{Hold, hold};
use pleach::{Db, ErrorKind, GetFuture, Options, ReadDriver, ReadOptions};

use crate::race;
use crate::reads::{KEYS, block_on, key, store};

/// Time in which a thread that does not wait for another has gone on. Arbitrary, far above what any needs.
const NO_WAIT_MAX: Duration = Duration::from_secs(60);

type Act = Box<dyn FnOnce() + Send>;

/// A waker that acts once.
#[derive(Default)]
struct Acts(Mutex<Option<Act>>);

impl Wake for Acts {
    fn wake(self: Arc<Self>) {
        let act = self.0.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
    }
}

/// Begins a read that waits for its block or for the end of its time. `act` gets it and runs when it is woken.
fn waiting(db: Db, options: &ReadOptions, act: impl FnOnce(GetFuture) + Send + 'static) {
    let acts = Arc::new(Acts::default());
    let waker = Waker::from(Arc::clone(&acts));
    // Locked during the polls: a thread that wakes the task early waits.
    let mut slot = acts.0.lock().unwrap();
    let partition = db.default_partition();
    drop(db);
    // A read may end before its poll does.
    let pending = (0..KEYS).step_by(10).find_map(|n| {
        let mut future = partition.get_async_with(key(n), options);
        Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending().then_some(future)
    });
    let future = pending.expect("one of the reads waits");
    *slot = Some(Box::new(move || act(future)));
}

/// Has a waker close the store while another thread does, and returns the name of the waker's thread. Reads are held
/// until then.
fn close_in_a_waker_beside_another(db: Db, options: &ReadOptions, reads: Option<Hold>) -> String {
    let (woken, is_woken) = channel();
    let (go, may_go) = channel();
    let (closed, is_closed) = channel();
    let own = db.clone();
    waiting(db.clone(), options, move |_future| {
        woken.send(current().name().unwrap_or_default().to_owned()).unwrap();
        may_go.recv().unwrap();
        closed.send(own.close()).unwrap();
    });
    let name = is_woken.recv_timeout(NO_WAIT_MAX).expect("the task is woken");
    let held = hold("close.begun");
    let other = spawn(move || db.close());
    held.wait_for(1);
    go.send(()).unwrap();
    let refused = is_closed.recv_timeout(NO_WAIT_MAX).expect("the waker does not wait for the other close");
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    held.release();
    drop(reads);
    other.join().unwrap().unwrap();
    name
}

fn direct(options: Options) -> Options {
    options.direct_reads(true)
}

/// A store whose thread with the ring is held before it makes the next read.
fn with_held_reads(dir: &Path) -> (Db, Hold) {
    let db = store(dir).open(dir).unwrap();
    let begun = block_on(db.default_partition().get_async(key(KEYS - 1)));
    assert!(begun.unwrap().is_some(), "the thread has started");
    (db, hold("reads.looked"))
}

/// Longer than a first poll takes, mostly; `waiting` tries several.
fn short() -> ReadOptions {
    ReadOptions::new().timeout(Duration::from_millis(200))
}

fn assert_is_free(dir: &Path) {
    Db::open(dir).expect("the lock is released").close().unwrap();
}

/// Waits until all senders are gone.
fn wait_for_end(senders: &Receiver<()>) {
    let ended = senders.recv_timeout(NO_WAIT_MAX);
    assert_eq!(ended, Err(RecvTimeoutError::Disconnected), "the close ends");
}

#[test]
fn a_waker_on_a_thread_that_reads_does_not_wait_for_another_close() {
    race(|| {
        for (driver, thread) in [(ReadDriver::Ring, "pleach-reads"), (ReadDriver::Threads, "pleach-read")] {
            let dir = tempfile::tempdir().unwrap();
            let db = direct(store(dir.path())).read_driver(driver).open(dir.path()).unwrap();
            assert_eq!(close_in_a_waker_beside_another(db, &ReadOptions::new(), None), thread);
            assert_is_free(dir.path());
        }
    });
}

#[test]
fn a_waker_on_the_thread_of_the_timer_does_not_wait_for_another_close() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let (db, reads) = with_held_reads(dir.path());
        assert_eq!(close_in_a_waker_beside_another(db, &short(), Some(reads)), "read-timer");
        assert_is_free(dir.path());
    });
}

#[test]
fn a_waker_on_the_thread_that_closes_does_not_wait_for_its_close() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path()).read_driver(ReadDriver::Blocking).open(dir.path()).unwrap();
        let acts = Arc::new(Acts::default());
        // Nobody polls it again, so the close makes its read.
        let mut future = db.default_partition().get_async(key(0));
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&Waker::from(Arc::clone(&acts))));
        assert!(polled.is_pending());
        let (closed, is_closed) = channel();
        let own = db.clone();
        *acts.0.lock().unwrap() = Some(Box::new(move || closed.send(own.close()).unwrap()));
        db.close().unwrap();
        assert_eq!(is_closed.recv().unwrap().unwrap_err().kind(), ErrorKind::Conflict);
        assert_is_free(dir.path());
    });
}

#[test]
fn the_last_handle_dropped_on_the_thread_of_the_timer_closes_the_store() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let (db, reads) = with_held_reads(dir.path());
        let (woken, is_woken) = channel();
        let (running, has_ended) = channel();
        waiting(db, &short(), move |future| {
            let _running: Sender<()> = running;
            woken.send(current().name().unwrap_or_default().to_owned()).unwrap();
            drop(future);
        });
        assert_eq!(is_woken.recv_timeout(NO_WAIT_MAX).expect("its time is over"), "read-timer");
        drop(reads);
        wait_for_end(&has_ended);
        assert_is_free(dir.path());
    });
}
