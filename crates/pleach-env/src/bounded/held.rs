//! What a store holds open until it is closed: its directory, and its files that are not stable.
//!
//! # Invariants
//! 1. *Nothing stays open.* After [`Held::close`] no handle is stored, here or in the list of [`OpenFiles`]. A call that is in
//!    progress keeps its handle until it ends.
//!
//! # Concurrency
//! Calls load the handle without a lock. The lock guards the list; no file is opened or closed under it.
//!
//! [`OpenFiles`]: super::OpenFiles

use std::fs;
use std::io;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::env::{Dir, File, Site};
use crate::failpoint;

/// See the module's text.
#[derive(Default)]
pub(super) struct Held {
    list: Mutex<List>,
    /// Set before the lists are emptied. A thread that lists a handle looks at it under the list's lock.
    is_closed: AtomicBool,
}

#[derive(Default)]
struct List {
    /// The first directory that was synced.
    dir: Option<(PathBuf, Arc<dyn Dir>)>,
    files: Vec<Arc<Place>>,
}

/// Place of a file's handle. Empty after the close.
type Place = ArcSwapOption<Handle>;

struct Handle(Arc<dyn File>);

/// The error of each call after the close.
pub(super) fn closed() -> io::Error {
    Errno::BADF.into()
}

impl Held {
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Closes the directory and the files, those that calls use as soon as the calls end. Later calls fail.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let list = mem::take(&mut *self.list.lock());
        for place in list.files {
            place.store(None);
        }
    }

    /// The directory at `path`, if it is held.
    pub(super) fn dir(&self, path: &Path) -> Option<Arc<dyn Dir>> {
        let list = self.list.lock();
        list.dir.as_ref().filter(|(held, _)| held == path).map(|(_, dir)| Arc::clone(dir))
    }

    /// Holds the directory, if it is the first.
    pub(super) fn hold_dir(&self, path: &Path, dir: &Arc<dyn Dir>) {
        failpoint::reached("files.opened");
        let mut list = self.list.lock();
        if !self.is_closed() {
            list.dir.get_or_insert_with(|| (path.to_path_buf(), Arc::clone(dir)));
        }
    }

    /// Holds a file that was just opened.
    pub(super) fn hold(self: &Arc<Self>, file: Arc<dyn File>) -> io::Result<Arc<dyn File>> {
        failpoint::reached("files.opened");
        let place = Arc::new(Place::from_pointee(Handle(file)));
        let mut list = self.list.lock();
        if self.is_closed() {
            return Err(closed());
        }
        list.files.push(Arc::clone(&place));
        drop(list);
        Ok(Arc::new(HeldFile { place, held: Arc::clone(self) }))
    }
}

/// A file of a store.
struct HeldFile {
    place: Arc<Place>,
    held: Arc<Held>,
}

impl HeldFile {
    fn with<T>(&self, call: impl FnOnce(&dyn File) -> io::Result<T>) -> io::Result<T> {
        match &*self.place.load() {
            Some(handle) => call(&*handle.0),
            None => Err(closed()),
        }
    }

    fn hint(&self, call: impl FnOnce(&dyn File)) {
        if let Some(handle) = &*self.place.load() {
            call(&*handle.0);
        }
    }
}

impl File for HeldFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|file| file.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.with(|file| file.write_at(buf, offset))
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.with(|file| file.sync(site))
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|file| file.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|file| file.set_len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.with(|file| file.allocate(len))
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.with(|file| file.punch(offset, len))
    }

    fn expect_small_writes(&self, range: Range<u64>) -> bool {
        self.with(|file| Ok(file.expect_small_writes(range))).unwrap_or(false)
    }

    fn prepare_small_writes(&self) {
        self.hint(|file| file.prepare_small_writes());
    }

    fn expect_random_reads(&self) {
        self.hint(|file| file.expect_random_reads());
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.hint(|file| file.prefetch(offset, len));
    }

    fn forget(&self, offset: u64, len: u64) {
        self.hint(|file| file.forget(offset, len));
    }

    fn descriptor(&self) -> io::Result<Option<Arc<fs::File>>> {
        self.with(|file| file.descriptor())
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let mut list = self.held.list.lock();
        let number = list.files.iter().position(|place| Arc::ptr_eq(place, &self.place));
        let listed = number.map(|number| list.files.swap_remove(number));
        drop(list);
        drop(listed);
    }
}
