//! Counting allocator: the global allocator of this binary, which counts the bytes that each thread has allocated.
#![expect(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Runs `body`. Returns its result, the bytes that the result has allocated, and the peak of what `body` had allocated.
pub(crate) fn measure<T>(body: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = body();
    (result, LIVE.get().saturating_sub(before), PEAK.get().saturating_sub(before))
}

fn count(live: impl FnOnce(usize) -> usize) {
    // A thread that ends has lost its counters.
    let _ending = LIVE.try_with(|cell| cell.set(live(cell.get())));
    let _ending = PEAK.try_with(|peak| peak.set(peak.get().max(LIVE.try_with(Cell::get).unwrap_or(0))));
}

// SAFETY: both calls go to the system's allocator with the same arguments. The other functions of the trait call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|live| live.saturating_add(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(|live| live.saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) };
    }
}
