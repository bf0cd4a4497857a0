//! Cases in parallel: every case runs on one thread, with its own simulated machine and failpoints.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs `case` for the numbers below `count`, on one thread for each processor, until one fails. Panics with its message.
pub(crate) fn in_parallel(count: u64, case: impl Fn(u64) -> Result<(), String> + Sync) {
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let Err(message) = alone(|| case(number)) {
                failed.store(true, Ordering::Relaxed);
                failures.lock().unwrap().push(message);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

/// Runs `case` on a new thread. The engine counts seeks by thread to sample them, so a case on a thread that has run others may
/// merge at other moments, and a number of a call would not mean the same call.
pub(crate) fn alone<R: Send>(case: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| match scope.spawn(case).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A clock for figures; no test depends on it.
pub(crate) fn clock() -> impl Fn() -> Duration {
    let begun = Instant::now();
    move || begun.elapsed()
}
