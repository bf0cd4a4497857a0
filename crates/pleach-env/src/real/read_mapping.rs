//! A file that does not change, read by copies from the page cache: without the price of a system call.
//!
//! # What can go wrong
//! 1. *No page*: the file was cut, or its device has failed. A handler keeps the process alive ([`bus_error`](super::bus_error)),
//!    and the read is made by a call.
//! 2. *A page that is not in memory*: the access waits for the device, for one page after the other, where a call reads all of
//!    them at once. So copies are timed. Behind a slow one the next reads are calls, the more of them the more copies were slow.
//! 3. *Memory*: pages that are mapped count as memory of the process, though the system may take them at any time.

#![expect(unsafe_code, reason = "the one place that reads from mapped files")]

use std::fs;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::bus_error::{Place, handler_is_there};

/// Longer reads are left to the system call, which reads ahead.
const COPY_MAX: usize = 32 << 10;

/// A copy that takes so long has waited for the device (arbitrary: several page faults are faster, and few devices).
const SLOW: Duration = Duration::from_micros(20);

/// Calls behind the first slow copy, and behind each of many.
const CALLS: [u32; 2] = [8, 1024];

/// See the module's text.
pub(super) struct ReadMapping {
    start: *mut u8,
    len: usize,
    place: &'static Place,
    pace: Pace,
}

// SAFETY: the memory is only read, by any number of threads, and lives as long as the value.
unsafe impl Send for ReadMapping {}
// SAFETY: as above.
unsafe impl Sync for ReadMapping {}

impl ReadMapping {
    /// Maps all of the file; `None` where that is not possible.
    pub(super) fn new(file: &fs::File) -> Option<Self> {
        let len = usize::try_from(file.metadata().ok()?.len()).ok().filter(|&len| len > 0)?;
        if !handler_is_there() {
            return None;
        }
        // SAFETY: a mapping at an address of the kernel's choice aliases nothing of the process's.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0).ok()? };
        let Some(place) = Place::of_read(start.addr(), len) else {
            // SAFETY: just mapped with this length, and nobody knows the address.
            let _own_mapping = unsafe { munmap(start, len) };
            return None;
        };
        // SAFETY: the advice changes no bytes.
        let _a_hint = unsafe { madvise(start, len, Advice::Random) };
        Some(Self { start: start.cast(), len, place, pace: Pace::default() })
    }

    /// Gives back the process's hold on pages, without which the system does not forget them.
    pub(super) fn forget(&self, offset: u64, len: u64) {
        const PAGE: usize = 4096;
        let at = |offset: u64| usize::try_from(offset).map_or(self.len, |at| at.min(self.len));
        let (start, end) = (at(offset) / PAGE * PAGE, at(offset.saturating_add(len)));
        // SAFETY: the part lies in the mapping, and begins with a page. Accesses get the pages again.
        let _best_effort =
            unsafe { madvise(self.start.add(start).cast(), end - start, Advice::LinuxDontNeed) };
    }

    /// Fills `buf` from `offset` on. Returns whether it did; otherwise `buf` holds anything, and a call is to be made.
    #[inline]
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        let is_inside = offset.checked_add(buf.len()).is_some_and(|end| end <= self.len);
        if !is_inside || buf.len() > COPY_MAX || self.place.is_lost() || self.pace.takes_call() {
            return false;
        }
        let started = now();
        // SAFETY: the bytes lie in the mapping, and `buf` is memory of the process's own. Another program may change them
        // meanwhile: then the copy holds anything, as that of a call does.
        unsafe { ptr::copy_nonoverlapping(self.start.add(offset), buf.as_mut_ptr(), buf.len()) };
        if self.place.is_lost() {
            return false;
        }
        self.pace.note(now() - started);
        true
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures the machine that it runs on")]
fn now() -> Instant {
    Instant::now()
}

impl Drop for ReadMapping {
    fn drop(&mut self) {
        self.place.leave();
        // SAFETY: mapped in `new` with this length, and no reference into it was ever given out.
        let _own_mapping = unsafe { munmap(self.start.cast(), self.len) };
    }
}

/// How many of the next reads are calls, and in the upper half how many will be behind the next slow copy. Threads that change it
/// at the same time lose some of that. Relaxed: it orders no other memory.
#[derive(Default)]
struct Pace(AtomicU32);

impl Pace {
    #[inline]
    fn takes_call(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        let is_due = word & 0xffff != 0;
        if is_due {
            self.0.store(word - 1, Ordering::Relaxed);
        }
        is_due
    }

    /// Notes a copy.
    #[inline]
    fn note(&self, took: Duration) {
        let word = self.0.load(Ordering::Relaxed);
        if word != 0 || took >= SLOW {
            self.change(word, took >= SLOW);
        }
    }

    #[cold]
    fn change(&self, word: u32, is_slow: bool) {
        let [least, most] = CALLS;
        let (due, next) = (word & 0xffff, word >> 16);
        let word = if is_slow {
            let due = next.max(least);
            due | (due * 2).min(most) << 16
        } else {
            // Another thread's copy may have been slow meanwhile.
            due | (next - next.div_ceil(16)) << 16
        };
        self.0.store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 100,000 reads are calls if every `slow_every`th copy is slow.
    fn calls(slow_every: u32) -> u32 {
        let pace = Pace::default();
        let (mut calls, mut copies) = (0, 0);
        for _ in 0..100_000 {
            if pace.takes_call() {
                calls += 1;
            } else {
                copies += 1;
                pace.note(if copies % slow_every == 0 { SLOW } else { Duration::ZERO });
            }
        }
        calls
    }

    #[test]
    fn reads_of_a_file_that_is_not_in_memory_are_calls() {
        assert!(calls(1) > 99_500, "{}", calls(1));
        assert!(calls(2) > 90_000, "{}", calls(2));
        assert!(calls(100) < 15_000, "{}", calls(100));
        assert_eq!(calls(u32::MAX), 0);
    }
}
