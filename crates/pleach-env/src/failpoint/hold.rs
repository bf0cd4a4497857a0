//! Holds: points of a race where a test stops threads.
//!
//! # Concurrency
//! Holds are global, because a race has several threads. The tests that use them are in a binary of their own and run one at
//! a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::env::Site;

/// Longest wait for threads to reach a point. Arbitrary, far above what any race needs: a test fails rather than hangs.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How many threads wait at each held point.
static HELD: Mutex<BTreeMap<Site, usize>> = Mutex::new(BTreeMap::new());
static CHANGED: Condvar = Condvar::new();

/// Number of held points: while it is 0, passing a point costs one load. Changed under the lock of [`HELD`].
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A held point. Dropping it lets its threads go on.
#[must_use = "dropping it lets the threads go on"]
pub struct Hold(Site);

/// Holds every thread that reaches `site` from now on.
///
/// # Panics
/// When the point is held already.
pub fn hold(site: Site) -> Hold {
    let mut held = HELD.lock();
    let previous = held.insert(site, 0);
    COUNT.store(held.len(), Ordering::Release);
    drop(held);
    assert!(previous.is_none(), "{site} is held already");
    Hold(site)
}

impl Hold {
    /// Waits until `count` threads wait at the point.
    ///
    /// # Panics
    /// After a minute, with the names of the held points.
    pub fn wait_for(&self, count: usize) {
        let mut held = HELD.lock();
        while held.get(self.0).is_none_or(|&waiting| waiting < count) {
            if CHANGED.wait_for(&mut held, WAIT_MAX).timed_out() {
                let points = describe(&held);
                drop(held); // The hold is dropped by the panic, and takes the lock.
                panic!("fewer than {count} threads reach {}; held points: {points}", self.0);
            }
        }
    }

    /// Lets the threads go on. Later threads do not stop.
    pub fn release(self) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        held.remove(self.0);
        COUNT.store(held.len(), Ordering::Release);
        drop(held);
        CHANGED.notify_all();
    }
}

/// The held points with the number of threads that wait at each, for messages.
pub fn held_points() -> String {
    describe(&HELD.lock())
}

fn describe(held: &BTreeMap<Site, usize>) -> String {
    if held.is_empty() {
        return "none".to_owned();
    }
    let points: Vec<_> = held.iter().map(|(site, waiting)| format!("{site} ({waiting} waiting)")).collect();
    points.join(", ")
}

#[inline]
pub(super) fn wait_if_held(site: Site) {
    if COUNT.load(Ordering::Acquire) > 0 {
        wait_while_held(site);
    }
}

#[cold]
fn wait_while_held(site: Site) {
    let mut held = HELD.lock();
    let Some(waiting) = held.get_mut(site) else { return };
    *waiting += 1;
    CHANGED.notify_all();
    // If the hold is released and the point is held again, the new hold does not keep this thread.
    while held.get(site).is_some_and(|&waiting| waiting > 0) {
        CHANGED.wait(&mut held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failpoint::reached;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a race needs a thread")]
    fn a_held_thread_goes_on_when_it_is_released() {
        let held = hold("test.held");
        let thread = std::thread::spawn(|| reached("test.held"));
        held.wait_for(1);
        assert!(!thread.is_finished());
        held.release();
        thread.join().unwrap();
        reached("test.held");
    }
}
