//! A stretch of a file that is written by stores into the page cache: about a tenth of the price of a system call.
//!
//! # What can go wrong
//! The system may find no page for a store: the file was cut, its device has failed, or its file system was shut down. It then
//! sends the signal `SIGBUS`, which ends the process. So (1) only space that is reserved is mapped, on file systems that keep
//! it in place; (2) pages are asked for by `MADV_POPULATE_WRITE`, which returns an error, before they are written; and
//! (3) for what remains, there is a handler ([`bus_error`](super::bus_error)). The write that was interrupted, and every later
//! one, is then made by a call, whose error is exact.
//!
//! A page fault also succeeds on some file systems that refuse every call. So the write that passes a multiple of 16 KiB is a
//! call.
//!
//! # Concurrency
//! [`RealFile`](super::file::RealFile) guards a mapping by a lock. Pages are also asked for without it ([`Pages`]); then another
//! lock keeps the mapping.

#![expect(unsafe_code, reason = "the one place that maps files")]

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr;

use rustix::fs::fstatfs;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::bus_error::{Place, handler_is_there};
use crate::env::SMALL_WRITES_STEP;
use crate::failpoint;
use crate::memory::prefetch_to_write;

/// Length of the system's pages. Where they are longer nothing is mapped.
const PAGE: usize = 4096;
/// So many bytes are asked for at a time: one put in a hundred does, for about 5 us.
const POPULATE_STEP: u64 = SMALL_WRITES_STEP;
/// After a store, so many bytes behind it are prefetched for the next one (arbitrary: a record of a small value).
const NEXT_WRITE: usize = 256;
/// Longer writes are left to the system call, which needs no page in the process's table.
const STORE_MAX: usize = 4 * PAGE;

/// File systems that keep reserved space in place. Others write elsewhere (btrfs, zfs, f2fs), so that a store may need space that
/// was never reserved, or have a server behind them (NFS, FUSE).
const IN_PLACE: [u64; 3] = [0xef53 /* ext4 */, 0x5846_5342 /* XFS */, 0x0102_1994 /* tmpfs */];

/// See the module's text.
pub(super) struct Mapping {
    start: *mut u8,
    range: Range<u64>,
    /// Pages below this offset in the file were asked for.
    populated: u64,
    /// The end of the last write.
    written: u64,
    place: &'static Place,
}

// SAFETY: the mapping belongs to the value, whose methods take `&mut self` for every access to its bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the whole pages of `range`, whose space must be reserved. `None` where that is not possible, or not safe.
    pub(super) fn new(file: &fs::File, range: Range<u64>) -> Option<Self> {
        let page = PAGE as u64;
        let range = range.start.next_multiple_of(page)..range.end / page * page;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok().filter(|&len| len > 0)?;
        let stat = fstatfs(file).ok()?;
        if rustix::param::page_size() != PAGE || !IN_PLACE.iter().any(|&kind| is_kind(stat.f_type, kind)) {
            return None;
        }
        if !handler_is_there() {
            return None;
        }
        // SAFETY: a mapping at an address of the kernel's choice aliases nothing of the process's.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, range.start).ok()?
        };
        let Some(place) = Place::of_written(start.addr(), len) else {
            // SAFETY: just mapped with this length, and nobody knows the address.
            let _own_mapping = unsafe { munmap(start, len) };
            return None;
        };
        let (populated, written) = (range.start, range.start);
        let mut mapping = Self { start: start.cast(), populated, written, range, place };
        let first = mapping.range.start + 1;
        mapping.populate(file, first);
        mapping.is_usable().then_some(mapping)
    }

    /// Asks for the pages up to `end`, and some more. If the system has no page for them, the mapping is lost.
    fn populate(&mut self, file: &fs::File, end: u64) {
        let asked = self.pages_until(end.max(self.populated + POPULATE_STEP)).ask(file);
        self.end_asking(asked);
    }

    fn pages_until(&self, end: u64) -> Pages {
        let until = end.min(self.range.end).next_multiple_of(PAGE as u64);
        // SAFETY: the pages that were asked for end inside the mapping.
        let start = unsafe { self.start.add(self.at(self.populated)) };
        Pages { start, len: self.at(until) - self.at(self.populated), until }
    }

    /// The pages that the writes of the next step need, if they were not asked for.
    pub(super) fn next_pages(&self) -> Option<Pages> {
        let until = (self.written + 2 * POPULATE_STEP).min(self.range.end);
        (self.populated < until).then(|| self.pages_until(until.min(self.populated + POPULATE_STEP)))
    }

    /// Takes note of what [`Pages::ask`] returned. If the system has no such pages, the mapping is lost.
    pub(super) fn end_asking(&mut self, asked: Option<u64>) {
        match asked {
            Some(until) => self.populated = self.populated.max(until),
            None => self.place.lose(),
        }
    }

    /// Where in the mapping the file's byte `offset` is.
    #[expect(clippy::cast_possible_truncation, reason = "the length of the mapping was a usize")]
    fn at(&self, offset: u64) -> usize {
        (offset - self.range.start) as usize
    }

    /// Writes all of `bytes` at `offset`. `None`: the caller must write them by a call. If the mapping is not usable afterwards,
    /// any of them may have been written, and the caller must write them by a call as well.
    #[inline]
    pub(super) fn write(&mut self, file: &fs::File, bytes: &[u8], offset: u64) -> Option<()> {
        let end = offset.checked_add(bytes.len() as u64)?;
        if offset < self.range.start || end > self.range.end || bytes.len() > STORE_MAX {
            return None;
        }
        self.written = end;
        let must_ask = end > self.populated;
        if must_ask {
            // What was written by system calls meanwhile needs no page.
            self.populated = self.populated.max(offset / PAGE as u64 * PAGE as u64);
            self.populate(file, end);
        }
        if must_ask || offset / POPULATE_STEP != end / POPULATE_STEP {
            // A call notices what a page fault does not: that the file system was shut down, for one.
            return None;
        }
        failpoint::reached("mapping.store");
        // SAFETY: the bytes from `offset` to `end` lie in the mapping, which only this value writes to; `bytes` is memory of the
        // process's own and does not overlap it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(self.at(offset)), bytes.len()) };
        prefetch_to_write(self.start.wrapping_add(self.at(end)), NEXT_WRITE);
        Some(())
    }

    /// Whether stores still reach the file.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        !self.place.is_lost()
    }
}

/// Pages of a mapping that are to be asked for.
pub(super) struct Pages {
    start: *mut u8,
    len: usize,
    until: u64,
}

impl Pages {
    /// Asks for the pages; returns where they end in the file, or `None` if the system has no page for them.
    ///
    /// It reads a byte of each page first, which only brings them into the page cache. There a read ahead makes several pages
    /// one piece of memory, and the system maps that at once: 1.2 us a page in all, where the advice alone takes 2.1.
    pub(super) fn ask(&self, file: &fs::File) -> Option<u64> {
        for page in (self.until - self.len as u64..self.until).step_by(PAGE) {
            let _the_advice_reports = file.read_at(&mut [0], page);
        }
        // SAFETY: populating does not change the bytes of any memory, whatever is mapped there.
        let asked = unsafe { madvise(self.start.cast(), self.len, Advice::LinuxPopulateWrite) };
        asked.is_ok().then_some(self.until)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.place.leave();
        // SAFETY: mapped in `new` with this length, and no reference into it was ever given out.
        let _own_mapping = unsafe { munmap(self.start.cast(), self.at(self.range.end)) };
    }
}

/// The field's type depends on the processor; a kind is a pattern of 32 bits.
#[expect(clippy::cast_sign_loss, reason = "it is a pattern of bits")]
fn is_kind(found: rustix::fs::FsWord, kind: u64) -> bool {
    found as u64 & 0xffff_ffff == kind
}
