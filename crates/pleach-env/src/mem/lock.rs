//! Locks on files and directories in memory, as [`Env::lock_file`](crate::Env::lock_file) takes them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::env::{FileLock, LockMode};

/// Who holds the lock of a file or of a directory.
#[derive(Default)]
pub(super) struct Holders(Mutex<Held>);

#[derive(Default)]
struct Held {
    shared: usize,
    is_exclusive: bool,
}

impl Holders {
    /// Takes the lock; `None` if another handle holds it in a mode that excludes this one.
    pub(super) fn take(self: &Arc<Self>, mode: LockMode) -> Option<MemLock> {
        let mut held = self.0.lock();
        let is_free = match mode {
            LockMode::Shared => !held.is_exclusive,
            LockMode::Exclusive => !held.is_exclusive && held.shared == 0,
        };
        match mode {
            _ if !is_free => return None,
            LockMode::Shared => held.shared += 1,
            LockMode::Exclusive => held.is_exclusive = true,
        }
        Some(MemLock { holders: Arc::clone(self), mode })
    }
}

/// Holds a lock until it is dropped.
pub(super) struct MemLock {
    holders: Arc<Holders>,
    mode: LockMode,
}

impl FileLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut held = self.holders.0.lock();
        match self.mode {
            LockMode::Shared => held.shared -= 1,
            LockMode::Exclusive => held.is_exclusive = false,
        }
    }
}
