//! Inbox: reads that were handed in, until the thread that makes them takes them.
//!
//! # Invariants
//! 1. *No read waits for a sleeping thread*: the thread declares that it sleeps only while the inbox is empty, and the
//!    caller that hands in the first read after that wakes it. `models/` checks this in all orders.
//!
//! # Concurrency
//! `state` is held for a push or a swap.

use std::collections::VecDeque;
use std::mem;

use parking_lot::{Mutex, MutexGuard};

/// See the module's text.
pub(super) struct Inbox<R> {
    state: Mutex<InboxState<R>>,
}

/// What the inbox holds.
pub(super) struct InboxState<R> {
    pub(super) reads: Vec<R>,
    /// Whether the thread waits for its alarm, or is about to.
    sleeps: bool,
    /// Reads that threads of the pool make.
    pub(super) running: usize,
    /// Whether the thread with the ring takes reads.
    pub(super) has_ring: bool,
    pub(super) is_closed: bool,
}

impl<R> Inbox<R> {
    pub(super) fn new() -> Self {
        let reads = Vec::new();
        let state = InboxState { reads, sleeps: false, running: 0, has_ring: false, is_closed: false };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, InboxState<R>> {
        self.state.lock()
    }

    /// Moves what was handed in to `waiting`. Returns whether the inbox is closed.
    pub(super) fn take(&self, waiting: &mut VecDeque<R>) -> bool {
        let mut state = self.lock();
        waiting.extend(mem::take(&mut state.reads));
        state.is_closed
    }

    /// Whether there is something to take.
    pub(super) fn has_reads(&self) -> bool {
        !self.lock().reads.is_empty()
    }

    /// Declares that the thread is about to wait for its alarm. `false` if it must not, because there are reads.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut state = self.lock();
        state.sleeps = state.reads.is_empty();
        state.sleeps
    }

    /// Declares that the thread has been woken, and looks at the inbox next.
    pub(super) fn wake_up(&self) {
        self.lock().sleeps = false;
    }
}

impl<R> InboxState<R> {
    /// Hands a read in. Returns whether the caller must wake the thread.
    #[must_use = "the thread may sleep"]
    pub(super) fn push(&mut self, read: R) -> bool {
        self.reads.push(read);
        mem::take(&mut self.sleeps)
    }
}
