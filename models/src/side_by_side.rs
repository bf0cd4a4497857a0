//! Writers side by side: numbers are given under a quick lock, places are looked for without it, and writes are shown in the
//! order of the numbers.

use crate::quick::QuickMutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::turnstile::Turnstile;

/// The write path, with a memtable that counts what the writer of each number has found there.
pub struct SideBySide {
    /// The next number. Atomic in order that loom returns stale values if the lock allows it.
    writer: QuickMutex<AtomicU64>,
    visible: AtomicU64,
    turns: Turnstile,
    /// The one leaf of the memtable: its writes so far. Changed without an atomic step, so two writers at a time lose one.
    leaf: AtomicU64,
}

impl SideBySide {
    pub fn new() -> Self {
        let (visible, leaf) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { writer: QuickMutex::new(AtomicU64::new(1)), visible, turns: Turnstile::new(), leaf }
    }

    /// One write, as `WritePath::commit_side_by_side` makes it, or its leader if the lock is not free soon.
    pub fn write(&self) {
        let Some(next) = self.writer.lock_soon() else { return self.write_as_leader() };
        let number = next.load(Ordering::Relaxed);
        next.store(number + 1, Ordering::Relaxed);
        drop(next);
        let found = self.leaf.load(Ordering::Relaxed);
        self.turns.wait_until(|| self.visible.load(Ordering::Acquire) + 1 == number);
        // The place that was found counts only if the leaf is as it was.
        let now = self.leaf.load(Ordering::Relaxed);
        assert!(found <= now, "the leaf goes back");
        self.insert_and_show(number);
    }

    /// A leader, a switch or a drop: it needs the lock, and a memtable without writes on their way.
    pub fn write_as_leader(&self) {
        let next = self.writer.lock();
        let number = next.load(Ordering::Relaxed);
        self.turns.wait_until(|| self.visible.load(Ordering::Acquire) + 1 == number);
        assert_eq!(self.leaf.load(Ordering::Relaxed), number - 1, "a write is on its way");
        self.insert_and_show(number);
        next.store(number + 1, Ordering::Relaxed);
    }

    fn insert_and_show(&self, number: u64) {
        let leaf = self.leaf.load(Ordering::Relaxed);
        assert_eq!(leaf, number - 1, "before its turn");
        self.leaf.store(leaf + 1, Ordering::Relaxed);
        self.visible.store(number, Ordering::Release);
        self.turns.notify();
    }

    /// Writes that a reader sees: all up to the visible number.
    pub fn read(&self) {
        let visible = self.visible.load(Ordering::Acquire);
        assert!(self.leaf.load(Ordering::Relaxed) >= visible, "a visible write is missing");
    }
}
