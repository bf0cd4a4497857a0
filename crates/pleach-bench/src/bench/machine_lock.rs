//! The machine lock: a file that builds and measurements lock, so that they do not run at the same time.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Duration;

use crate::engine::Result;

/// How long the lock stays free between two workloads, so that waiting processes can take it. Arbitrary.
const BREAK: Duration = Duration::from_millis(200);

/// A file that can be locked.
pub(super) struct MachineLock {
    file: File,
}

/// The held lock; dropping it releases it.
pub(super) struct Held<'a> {
    lock: &'a MachineLock,
}

impl MachineLock {
    /// Opens the file, or creates it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| format!("--machine-lock {}: {error}", path.display()))?;
        Ok(Self { file })
    }

    /// Waits until no other process holds the lock, shared or exclusive.
    pub(super) fn hold(&self) -> Result<Held<'_>> {
        self.file.lock()?;
        Ok(Held { lock: self })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.file.unlock().expect("a lock that is held can be released");
        std::thread::sleep(BREAK);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use super::*;

    #[test]
    fn others_are_kept_out_until_it_is_released() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("lock");
        let lock = MachineLock::open(&path).expect("it can be created");
        let other = File::open(&path).expect("it exists");
        let held = lock.hold().expect("it is free");
        assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
        drop(held);
        other.try_lock_shared().expect("it is free again");
        assert!(MachineLock::open(&dir.path().join("none/lock")).is_err());
    }
}
