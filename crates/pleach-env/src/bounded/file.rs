//! A stable file: it is opened when it is read, and closed when other files need its descriptor.
//!
//! # Concurrency
//! A read loads the handle without a lock and holds it until it is done, so no file is closed under a reader.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use rustix::io::Errno;

use super::held::{Held, closed};
use super::open_files::OpenFiles;
use crate::env::{Env, File, OpenOptions, Site};

/// The arguments for opening a file, and its handle while it is open.
pub(super) struct StableFile {
    // Immutable.
    env: Arc<dyn Env>,
    path: PathBuf,
    direct: bool,
    /// The other files of the store.
    held: Arc<Held>,

    /// Absent while the file is closed.
    handle: ArcSwapOption<Handle>,
    /// Whether it was read since the clock's hand passed. Relaxed, because it is a hint.
    is_used: AtomicBool,
    /// Whether to call [`File::expect_random_reads`] when the file is opened.
    expects_random_reads: AtomicBool,
    /// Place in the list of open files plus one, or 0. Guarded by the list's lock.
    place: AtomicUsize,
}

struct Handle(Arc<dyn File>);

impl StableFile {
    pub(super) fn place(&self) -> Option<usize> {
        self.place.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(super) fn set_place(&self, place: Option<usize>) {
        self.place.store(place.map_or(0, |place| place + 1), Ordering::Relaxed);
    }

    /// Whether the file was read since the last call.
    pub(super) fn take_use(&self) -> bool {
        self.is_used.load(Ordering::Relaxed) && self.is_used.swap(false, Ordering::Relaxed)
    }

    /// Closes the file as soon as no read uses it. Requires: it has been taken off the list.
    pub(super) fn close(&self) {
        drop(self.handle.swap(None));
    }
}

/// A handle of a stable file.
pub(super) struct BoundedFile {
    stable: Arc<StableFile>,
    open_files: Arc<OpenFiles>,
}

impl BoundedFile {
    /// Opens the file at once, so that the caller gets the error if it cannot be opened.
    pub(super) fn open(
        env: Arc<dyn Env>,
        open_files: Arc<OpenFiles>,
        held: Arc<Held>,
        path: &Path,
        direct: bool,
    ) -> io::Result<Arc<dyn File>> {
        let stable = StableFile {
            env,
            path: path.to_path_buf(),
            direct,
            held,
            handle: ArcSwapOption::empty(),
            is_used: AtomicBool::new(true),
            expects_random_reads: AtomicBool::new(false),
            place: AtomicUsize::new(0),
        };
        let file = Self { stable: Arc::new(stable), open_files };
        file.reopen()?;
        Ok(Arc::new(file))
    }

    fn reopen(&self) -> io::Result<Arc<Handle>> {
        let StableFile { env, path, direct, held, .. } = &*self.stable;
        if held.is_closed() {
            return Err(closed());
        }
        let options = OpenOptions { write: false, direct: *direct };
        let file = self.open_files.with_descriptor(|| env.open_file(path, options))?;
        if self.stable.expects_random_reads.load(Ordering::Relaxed) {
            file.expect_random_reads();
        }
        let handle = Arc::new(Handle(file));
        let before = self.stable.handle.compare_and_swap(&None::<Arc<Handle>>, Some(Arc::clone(&handle)));
        if before.is_none() {
            self.open_files.add(&self.stable);
        }
        Ok(handle) // If another thread has stored its handle first, this one is closed after the read.
    }

    fn with<T>(&self, call: impl FnOnce(&dyn File) -> io::Result<T>) -> io::Result<T> {
        if !self.stable.is_used.load(Ordering::Relaxed) {
            self.stable.is_used.store(true, Ordering::Relaxed);
        }
        if let Some(handle) = &*self.stable.handle.load() {
            return call(&*handle.0);
        }
        call(&*self.reopen()?.0)
    }
}

/// Stable files are read only.
fn read_only<T>() -> io::Result<T> {
    Err(Errno::BADF.into())
}

impl File for BoundedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|file| file.read_at(buf, offset))
    }

    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> bool {
        self.with(|file| Ok(file.read_resident_at(buf, offset))).unwrap_or(false)
    }

    /// The file may be closed meanwhile; the descriptor stays.
    fn descriptor(&self) -> io::Result<Option<Arc<fs::File>>> {
        self.with(|file| file.descriptor())
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<usize> {
        read_only()
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|file| file.len())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        read_only()
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        read_only()
    }

    fn punch(&self, _offset: u64, _len: u64) -> io::Result<()> {
        read_only()
    }

    fn expect_random_reads(&self) {
        self.stable.expects_random_reads.store(true, Ordering::Relaxed);
        if let Some(handle) = &*self.stable.handle.load() {
            handle.0.expect_random_reads();
        }
    }

    /// Opens the file if it is closed, because a read follows. If that fails, the read returns the error.
    fn prefetch(&self, offset: u64, len: u64) {
        let _a_hint = self.with(|file| {
            file.prefetch(offset, len);
            Ok(())
        });
    }

    /// Does not open a closed file: its bytes will not be read.
    fn forget(&self, offset: u64, len: u64) {
        if let Some(handle) = &*self.stable.handle.load() {
            handle.0.forget(offset, len);
        }
    }
}

impl Drop for BoundedFile {
    fn drop(&mut self) {
        self.open_files.remove(&self.stable);
    }
}
