//! Holds: points of a race where a test stops threads.
//!
//! # Concurrency
//! Holds are global, because a race has several threads. Tests that use them are in a binary of their own and run one at
//! a time.

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex};

use crate::env::Site;

/// How many threads wait at each held point.
static HELD: Mutex<BTreeMap<Site, usize>> = Mutex::new(BTreeMap::new());
static CHANGED: Condvar = Condvar::new();

/// A held point. Dropping it lets its threads go on.
#[must_use = "dropping it lets the threads go on"]
pub struct Hold(Site);

/// Holds every thread that reaches `site` from now on.
///
/// # Panics
/// When the point is held already.
pub fn hold(site: Site) -> Hold {
    let previous = HELD.lock().insert(site, 0);
    assert!(previous.is_none(), "{site} is held already");
    Hold(site)
}

impl Hold {
    /// Waits until `count` threads wait at the point.
    pub fn wait_for(&self, count: usize) {
        let mut held = HELD.lock();
        while held.get(self.0).is_none_or(|&waiting| waiting < count) {
            CHANGED.wait(&mut held);
        }
    }

    /// Lets the threads go on, and those that come later pass.
    pub fn release(self) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.lock().remove(self.0);
        CHANGED.notify_all();
    }
}

pub(super) fn wait_if_held(site: Site) {
    let mut held = HELD.lock();
    let Some(waiting) = held.get_mut(site) else { return };
    *waiting += 1;
    CHANGED.notify_all();
    // A hold that was let go and taken anew holds those who come then, not those who waited.
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
