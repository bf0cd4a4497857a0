//! The gate that threads sleep at, with atomics that keep the promise of `SeqCst`.

#[path = "../../crates/pleach-env/src/sync/gate.rs"]
mod gate;

pub use gate::Gate;

/// Loom takes an access that is `SeqCst` for one that acquires and releases, but it knows `SeqCst` fences.
pub mod atomic {
    use std::cell::Cell;

    pub use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;

    /// A word that promises what the gate needs of `SeqCst`: if a thread writes and then loads, both of them `SeqCst`, a fence is
    /// between them.
    #[derive(Debug)]
    pub struct AtomicU32(loom::sync::atomic::AtomicU32);

    loom::thread_local! {
        /// Whether the thread's last write was `SeqCst`.
        static HAS_WRITTEN: Cell<bool> = Cell::new(false);
    }

    impl AtomicU32 {
        pub fn new(value: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(value))
        }

        pub fn load(&self, ordering: Ordering) -> u32 {
            if ordering == Ordering::SeqCst && HAS_WRITTEN.with(Cell::get) {
                fence(ordering);
            }
            self.0.load(ordering)
        }

        pub fn swap(&self, value: u32, ordering: Ordering) -> u32 {
            note_write(ordering);
            self.0.swap(value, ordering)
        }

        pub fn fetch_add(&self, value: u32, ordering: Ordering) -> u32 {
            note_write(ordering);
            self.0.fetch_add(value, ordering)
        }

        pub fn fetch_sub(&self, value: u32, ordering: Ordering) -> u32 {
            note_write(ordering);
            self.0.fetch_sub(value, ordering)
        }
    }

    fn note_write(ordering: Ordering) {
        HAS_WRITTEN.with(|has_written| has_written.set(ordering == Ordering::SeqCst));
    }
}
