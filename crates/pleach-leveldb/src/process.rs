//! The process that made a handle.
//!
//! A child of a fork has copies of its parent's handles, but no threads of the parent's, and the files are the parent's. A
//! program may release the handles in the child all the same, for instance at its exit. There a release must do nothing: a close
//! would wait for threads that are not there, write to the parent's files, and end the parent's lock.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(libc::pid_t);

impl Process {
    pub(crate) fn this() -> Self {
        // SAFETY: it cannot fail.
        Self(unsafe { libc::getpid() })
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
