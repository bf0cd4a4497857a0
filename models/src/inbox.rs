//! The inbox of the thread with the ring, with an alarm as its ring has one.

use std::collections::VecDeque;

use crate::inbox_source::Inbox;
use crate::sync::{Condvar, Mutex};

/// An inbox, and the alarm of the thread that empties it.
pub struct WithAlarm {
    inbox: Inbox<u32>,
    rings: Mutex<bool>,
    changed: Condvar,
    made: Mutex<u32>,
    is_made: Condvar,
}

impl WithAlarm {
    #[expect(clippy::new_without_default, reason = "a model makes it with its threads")]
    pub fn new() -> Self {
        Self {
            inbox: Inbox::new(),
            rings: Mutex::new(false),
            changed: Condvar::default(),
            made: Mutex::new(0),
            is_made: Condvar::default(),
        }
    }

    /// As `ReadService::submit`.
    pub fn submit(&self, read: u32) {
        let sleeps = self.inbox.lock().push(read);
        if sleeps {
            self.ring();
        }
    }

    /// As `ReadService::close`.
    pub fn close(&self) {
        self.inbox.lock().is_closed = true;
        self.ring();
    }

    fn ring(&self) {
        *self.rings.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until so many reads have been made.
    pub fn wait_for(&self, reads: u32) {
        let mut made = self.made.lock();
        while *made < reads {
            self.is_made.wait(&mut made);
        }
    }

    /// The thread's life, with a ring that is never full and reads that end at once.
    pub fn serve(&self) {
        let mut waiting = VecDeque::new();
        loop {
            let is_closed = self.inbox.take(&mut waiting);
            for _read in waiting.drain(..) {
                *self.made.lock() += 1;
                self.is_made.notify_all();
            }
            if is_closed {
                return;
            }
            if !self.inbox.fall_asleep() {
                continue;
            }
            let mut rings = self.rings.lock();
            while !*rings {
                self.changed.wait(&mut rings);
            }
            *rings = false;
            drop(rings);
            self.inbox.wake_up();
        }
    }
}
