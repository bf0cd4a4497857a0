//! The list of open stable files. It chooses which of them to close when there are too many.
//!
//! It uses the clock algorithm: a hand passes the files in turn, skips those that were read since it last passed them, and
//! closes the first that was not read. This approximates LRU, and a read only sets one flag.
//!
//! # Invariants
//! 1. *Listed while open.* The thread that stores the handle of a file lists the file; the thread that takes it off the list
//!    removes the handle. So a file is never listed twice.
//! 2. *Bounded.* The list is no longer than the limit, except for files that are just being opened. A file that is closed
//!    during a read keeps its descriptor until the read ends.
//!
//! # Concurrency
//! One lock guards the list. No file is opened or closed under it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::file::StableFile;
use super::held::Held;
use crate::error::is_out_of_files;
use crate::failpoint;

/// How often a call is repeated after files were closed for it. Arbitrary: each repetition closes half of the open files,
/// so a call that still fails competes with others for descriptors.
const ATTEMPTS_MAX: usize = 8;
/// Files that may be open however low the system's limit is.
const LIMIT_MIN: usize = 4;

/// The open files of all [`BoundedEnv`](crate::BoundedEnv)s of an environment.
pub struct OpenFiles {
    limit: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    files: Vec<Arc<StableFile>>,
    /// Where the hand of the clock stands.
    hand: usize,
}

impl OpenFiles {
    /// A list for a process with this many `descriptors`: files take at most half of them.
    pub fn for_descriptors(descriptors: usize) -> Arc<Self> {
        let limit = AtomicUsize::new((descriptors / 2).max(LIMIT_MIN));
        Arc::new(Self { limit, list: Mutex::default() })
    }

    /// Changes the limit to that of an environment with this many `descriptors`.
    pub(crate) fn set_descriptors(&self, descriptors: usize) {
        self.limit.store((descriptors / 2).max(LIMIT_MIN), Ordering::Relaxed);
    }

    /// How many files may be open at a time.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many files are open.
    pub fn len(&self) -> usize {
        self.list.lock().files.len()
    }

    /// Whether no file is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lists a file that was just opened, and closes others if there are too many. Closes the file if its store is closed.
    pub(super) fn add(&self, file: &Arc<StableFile>) {
        failpoint::reached("files.opened");
        let closed = {
            let mut list = self.list.lock();
            if file.held().is_closed() {
                vec![Arc::clone(file)]
            } else {
                list.push(Arc::clone(file));
                let excess = list.files.len().saturating_sub(self.limit());
                list.take(excess)
            }
        };
        close_all(&closed);
    }

    /// Takes a file off the list after its last handle was dropped.
    pub(super) fn remove(&self, file: &StableFile) {
        let removed = {
            let mut list = self.list.lock();
            list.remove(file.place())
        };
        drop(removed);
    }

    /// Closes the files of a store that is closed.
    pub(super) fn close_all_of(&self, held: &Arc<Held>) {
        let closed = {
            let mut list = self.list.lock();
            let places = (0..list.files.len()).rev();
            let places: Vec<_> =
                places.filter(|place| Arc::ptr_eq(list.files[*place].held(), held)).collect();
            places.into_iter().filter_map(|place| list.remove(Some(place))).collect::<Vec<_>>()
        };
        close_all(&closed);
    }

    /// Closes half of the open files; returns how many.
    fn close_half(&self) -> usize {
        let closed = {
            let mut list = self.list.lock();
            let half = list.files.len().div_ceil(2);
            list.take(half)
        };
        close_all(&closed);
        closed.len()
    }

    /// Makes a call. If no descriptor is left for it, closes files and repeats the call.
    pub(super) fn with_descriptor<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for _ in 1..ATTEMPTS_MAX {
            match call() {
                Err(error) if is_out_of_files(&error) && self.close_half() > 0 => {}
                result => return result,
            }
        }
        call()
    }
}

fn close_all(files: &[Arc<StableFile>]) {
    for file in files {
        file.close();
    }
}

impl List {
    fn push(&mut self, file: Arc<StableFile>) {
        file.set_place(Some(self.files.len()));
        self.files.push(file);
    }

    fn remove(&mut self, place: Option<usize>) -> Option<Arc<StableFile>> {
        let place = place?;
        let removed = self.files.swap_remove(place);
        removed.set_place(None);
        if let Some(moved) = self.files.get(place) {
            moved.set_place(Some(place));
        }
        Some(removed)
    }

    /// Takes `count` files off the list for closing; first those that were not read lately.
    fn take(&mut self, count: usize) -> Vec<Arc<StableFile>> {
        let mut taken = Vec::new();
        // The hand skips each file at most once.
        let mut steps_left = self.files.len() + count;
        while taken.len() < count && !self.files.is_empty() && steps_left > 0 {
            steps_left -= 1;
            self.hand %= self.files.len();
            if self.files[self.hand].take_use() {
                self.hand += 1;
            } else {
                taken.extend(self.remove(Some(self.hand)));
            }
        }
        taken
    }
}

impl std::fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFiles").field("limit", &self.limit()).field("len", &self.len()).finish()
    }
}
