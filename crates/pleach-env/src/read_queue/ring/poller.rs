//! Thread of the kernel that takes entries from all rings of the process with `KernelPolled`.
//!
//! A ring of its own would give each reading thread a spinning thread of the kernel. So one ring without entries starts the
//! thread, and the others attach to it. The thread ends with the last of them.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

use io_uring::IoUring;
use parking_lot::Mutex;
use rustix::process::Pid;

/// Milliseconds for which the thread spins without reads: the least that the kernel takes.
const IDLE_MS: u32 = 1;

/// The process's poller, while there is one. Held while a poller is made.
static POLLER: Mutex<Weak<Poller>> = Mutex::new(Weak::new());

/// See the module's text.
pub(super) struct Poller {
    ring: IoUring,
    process: Pid,
}

impl Poller {
    /// The poller of this process. A forked one shares the memory with its parent, and makes its own.
    pub(super) fn of(process: Pid) -> io::Result<Arc<Self>> {
        let mut place = POLLER.lock();
        if let Some(poller) = place.upgrade().filter(|poller| poller.process == process) {
            return Ok(poller);
        }
        let poller = Arc::new(Self { ring: IoUring::builder().setup_sqpoll(IDLE_MS).build(1)?, process });
        *place = Arc::downgrade(&poller);
        Ok(poller)
    }

    /// A ring of `entries` from which this thread takes.
    ///
    /// Requires: the poller lives as long as the ring. Otherwise a ring that is made later gets a second thread.
    pub(super) fn ring(&self, entries: u32) -> io::Result<IoUring> {
        IoUring::builder().setup_sqpoll(IDLE_MS).setup_attach_wq(self.ring.as_raw_fd()).build(entries)
    }
}
