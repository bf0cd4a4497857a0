//! The threads that have written lately: `cur_num` of adaptive training.
//!
//! # Cost
//! A look at the list for each batch of a group, under a lock that nobody else holds for long. Of groups of one batch only one
//! in [`NOTED_EVERY`] is looked at: clock and lock took about 0.1 us of each put. Only stores with adaptive training keep the
//! list.

use std::time::Duration;

use pleach_log::SeqNo;

/// A thread that wrote within this time counts. Arbitrary.
const LATELY: Duration = Duration::from_millis(100);
/// No more threads are told apart than this; thresholds are below.
const COUNTED_MAX: usize = 64;

/// Of the groups of one batch, one in this many is noted. Arbitrary.
const NOTED_EVERY: u64 = 16;

/// Whether a group of so many batches is noted, whose first operation gets the number `seq`. A thread that writes so little
/// that none of its batches is noted in 100 ms need not count.
#[inline]
pub(super) fn is_noted(batches: usize, seq: SeqNo) -> bool {
    // By a hash, so that threads that take turns are all noted.
    batches > 1 || seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) < u64::MAX / NOTED_EVERY
}

/// What tells threads that live at the same time apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadMark(usize);

impl ThreadMark {
    /// The mark of the calling thread.
    #[inline]
    pub(crate) fn current() -> Self {
        thread_local! {
            static PLACE: u8 = const { 0 };
        }
        // The place of a variable of the thread; a later thread may get the same.
        Self(PLACE.with(|place| std::ptr::from_ref(place).addr()))
    }
}

/// The threads, and when each was seen last.
#[derive(Debug, Default)]
pub(super) struct RecentWriters {
    seen: Vec<(ThreadMark, Duration)>,
}

impl RecentWriters {
    /// Notes the threads of a group that is committed `now`.
    pub(super) fn note(&mut self, now: Duration, group: impl Iterator<Item = ThreadMark>) {
        for thread in group {
            if let Some(known) = self.seen.iter_mut().find(|(mark, _)| *mark == thread) {
                known.1 = now;
                continue;
            }
            if self.seen.len() == COUNTED_MAX {
                self.forget(now);
            }
            if self.seen.len() < COUNTED_MAX {
                self.seen.push((thread, now));
            }
        }
    }

    /// Number of threads that were seen within 100 ms before `now`; at most 64.
    pub(super) fn count(&mut self, now: Duration) -> usize {
        self.forget(now);
        self.seen.len()
    }

    fn forget(&mut self, now: Duration) {
        self.seen.retain(|(_, seen)| now.saturating_sub(*seen) <= LATELY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_once_and_for_a_while() {
        let ms = Duration::from_millis;
        let marks = |threads: std::ops::Range<usize>| threads.map(ThreadMark);
        let mut writers = RecentWriters::default();
        assert_eq!(writers.count(ms(0)), 0);
        writers.note(ms(0), marks(0..3));
        writers.note(ms(10), marks(2..5));
        assert_eq!(writers.count(ms(10)), 5);
        assert_eq!(writers.count(ms(100)), 5);
        assert_eq!(writers.count(ms(101)), 3, "two were seen at 0 ms only");
        assert_eq!(writers.count(ms(111)), 0);
        writers.note(ms(200), marks(0..1000));
        assert_eq!(writers.count(ms(200)), COUNTED_MAX);
        writers.note(ms(301), marks(2000..2001));
        assert_eq!(writers.count(ms(301)), 1, "the others were forgotten");
    }

    #[test]
    fn threads_that_take_turns_are_all_noted() {
        for threads in 1..=16 {
            for thread in 0..threads {
                let turns = (0..4096).map(|turn| thread + turn * threads);
                let noted = turns.filter(|seq| is_noted(1, *seq)).count();
                assert!((64..1024).contains(&noted), "{noted} of thread {thread} of {threads}");
            }
        }
        assert!((0..1000).all(|seq| is_noted(2, seq)));
    }

    #[test]
    fn threads_have_marks_of_their_own() {
        let here = ThreadMark::current();
        assert_eq!(here, ThreadMark::current());
        let there = std::thread::scope(|scope| scope.spawn(ThreadMark::current).join().unwrap());
        assert_ne!(here, there);
    }
}
