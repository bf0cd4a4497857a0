//! Counting allocator: the global allocator of this binary, which counts each thread's allocated bytes and their peak.
//!
//! A simulated store does all its work on the calling thread, so the counts of a thread are those of its case. The tests of
//! `pleach-index` use this file too.
#![expect(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Limit of one request, in bytes. A larger request is refused, which aborts the process and spares the machine.
const REQUEST_MAX: usize = 8 << 30;

#[global_allocator]
static COUNTING: Counting = Counting;

struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Runs `body`. Returns its result, the bytes that the result holds, and the peak of the bytes that `body` had allocated.
pub(crate) fn measure<T>(body: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = body();
    let since = |bytes: isize| usize::try_from(bytes - before).unwrap_or(0);
    (result, since(LIVE.get()), since(PEAK.get()))
}

fn count(change: isize) {
    // A thread that ends has lost its counters.
    let live = LIVE.try_with(|live| {
        live.set(live.get() + change);
        live.get()
    });
    if let Ok(live) = live {
        let _ending = PEAK.try_with(|peak| peak.set(peak.get().max(live)));
    }
}

fn signed(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator with the same arguments, or is refused with a null pointer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > REQUEST_MAX {
            return std::ptr::null_mut();
        }
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > REQUEST_MAX {
            return std::ptr::null_mut();
        }
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        if len > REQUEST_MAX {
            return std::ptr::null_mut();
        }
        count(signed(len) - signed(layout.size()));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, len) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[test]
fn memory_that_is_held_and_its_peak_are_counted() {
    let (_held, held, peak) = measure(|| {
        drop(vec![0u8; 3 << 20]);
        vec![0u8; 1 << 20]
    });
    assert_eq!((held, peak), (1 << 20, 3 << 20));
}
