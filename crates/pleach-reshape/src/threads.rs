//! Numbers of threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static THREAD_NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Gives the calling thread a number. Threads whose numbers differ write to different stripes, if there are several: so a test
/// with one thread can write to all.
#[cfg(feature = "testing")]
pub fn set_thread_number(number: usize) {
    THREAD_NUMBER.set(Some(number));
}

/// A small number of the calling thread.
pub(crate) fn thread_number() -> usize {
    THREAD_NUMBER.with(|number| {
        let own = number.get().unwrap_or_else(|| THREADS.fetch_add(1, Ordering::Relaxed));
        number.set(Some(own));
        own
    })
}
