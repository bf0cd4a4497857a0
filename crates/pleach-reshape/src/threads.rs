//! Numbers of threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static THREAD_NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A small number of the calling thread.
pub(crate) fn thread_number() -> usize {
    THREAD_NUMBER.with(|number| {
        let own = number.get().unwrap_or_else(|| THREADS.fetch_add(1, Ordering::Relaxed));
        number.set(Some(own));
        own
    })
}
