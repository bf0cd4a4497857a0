//! Failpoints: barriers and checks that tests switch off by name, one at a time.
//!
//! With the `failpoints` feature, [`skipped`] compares with a thread-local name set by `with_skipped`; without it, it is
//! `false` at compile time. The simulator runs a whole store on one thread, so parallel tests do not affect each other.
//! docs/testing/planted-bugs.md lists the sites and the tests that notice when each of them is switched off.
//!
//! [`reached`] names a point of a race. A test holds the threads that reach it with `hold`, lets others run, and then
//! releases them. So it forces an order that is rare otherwise. In a simulated machine with several clients
//! (`SimEnv::run_clients`) the scheduler may switch threads at each such point.

use crate::env::Site;

#[cfg(feature = "failpoints")]
std::thread_local! {
    static SKIPPED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
    static REPORTS: std::cell::RefCell<std::collections::BTreeMap<Site, u64>> =
        const { std::cell::RefCell::new(std::collections::BTreeMap::new()) };
}

/// Whether the barrier or check named `site` is switched off on this thread.
#[inline]
pub fn skipped(site: Site) -> bool {
    #[cfg(feature = "failpoints")]
    {
        SKIPPED.with(|s| s.get() == Some(site))
    }
    #[cfg(not(feature = "failpoints"))]
    {
        let _ = site;
        false
    }
}

/// Runs `body` with the barrier or check named `site` switched off on this thread.
#[cfg(feature = "failpoints")]
pub fn with_skipped<T>(site: Site, body: impl FnOnce() -> T) -> T {
    struct Restore(Option<&'static str>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SKIPPED.with(|s| s.set(self.0));
        }
    }
    let _restore = Restore(SKIPPED.with(|s| s.replace(Some(site))));
    body()
}

/// `body` for another thread, with the same barrier or check switched off as on the calling thread.
#[cfg(feature = "failpoints")]
pub(crate) fn inherited(body: crate::baton::Body) -> crate::baton::Body {
    match SKIPPED.with(std::cell::Cell::get) {
        Some(site) => Box::new(move || with_skipped(site, body)),
        None => body,
    }
}

/// Reports a number that the interface does not return. Tests on this thread take it with `take_report`.
#[inline]
pub fn report(site: Site, number: u64) {
    #[cfg(feature = "failpoints")]
    {
        // Nobody takes the report of a thread whose values are being dropped.
        let _untaken = REPORTS.try_with(|reports| reports.borrow_mut().insert(site, number));
    }
    #[cfg(not(feature = "failpoints"))]
    let _ = (site, number);
}

/// As [`report`], with a number that grows with each call: for the order of events on several threads.
#[inline]
pub fn report_order(site: Site) {
    #[cfg(feature = "failpoints")]
    {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        report(site, NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    }
    #[cfg(not(feature = "failpoints"))]
    let _ = site;
}

/// Takes the last number that [`report`] got on this thread under this name.
#[cfg(feature = "failpoints")]
pub fn take_report(site: Site) -> Option<u64> {
    REPORTS.with_borrow_mut(|reports| reports.remove(site))
}

/// A named point of a race, where a test can hold a thread until others have gone ahead. Does nothing if no test holds the
/// point, or without the `failpoints` feature.
#[inline]
#[cfg_attr(feature = "failpoints", track_caller)]
pub fn reached(site: Site) {
    #[cfg(feature = "failpoints")]
    if crate::baton::is_held() {
        crate::baton::pass();
    } else {
        hold::wait_if_held(site);
    }
    #[cfg(not(feature = "failpoints"))]
    let _ = site;
}

#[cfg(feature = "failpoints")]
pub use hold::{Hold, held_points, hold};

#[cfg(feature = "failpoints")]
mod hold;
