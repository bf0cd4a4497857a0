//! The process that made a handle.
//!
//! A child of a fork has copies of its parent's handles, but none of the parent's threads, and the files belong to the parent.
//! The program may still release the handles in the child, for instance at its exit. Such a release must do nothing: a close
//! would wait for the missing threads, and write to the parent's files.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the process that made the first handle and this one. A counter, because a system call (`getpid`)
/// would slow down each iterator twice.
static FORKS: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(|| {
            // SAFETY: the handler takes no lock and no memory. Without memory for it no fork is noticed.
            let _no_memory = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    pub(crate) fn is_this(self) -> bool {
        self == Self::this()
    }

    /// Drops `handle` if it was made in this process. Otherwise leaks it.
    pub(crate) fn drop_here<T>(self, handle: T) {
        if self.is_this() {
            drop(handle);
        } else {
            std::mem::forget(handle);
        }
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
