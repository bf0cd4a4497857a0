//! What the soak has met, counted. A soak that never meets a thing proves nothing about it.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! met {
    ($($name:ident)*) => {
        /// The counts.
        #[derive(Default)]
        pub(crate) struct Met { $(pub(crate) $name: AtomicU64,)* }

        impl Met {
            fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

met! {
    rounds answers waits moved_to_another_thread polled_without_a_wake futures_dropped futures_forgotten
    stores_forgotten     wakers_that_panicked wakers_that_dropped_a_task stores_closed_by_a_waker closes_with_tasks
    answers_closed answers_timed_out answers_failed reads_struck
    chunks blocking_reads partitions_dropped snapshots_held flushes compactions ring_rounds
}

pub(crate) fn note(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Met {
    /// What has not been met yet.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        self.all().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}

impl std::fmt::Display for Met {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.all().into_iter().try_for_each(|(name, count)| write!(f, "{} {count}; ", name.replace('_', " ")))
    }
}
