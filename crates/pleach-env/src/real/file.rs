//! A regular file of the operating system.

use std::fs;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::env::{File, Site, check_punch};
use crate::failpoint;
use crate::sync::QuickMutex;

use super::mapping::Mapping;
use super::read_mapping::ReadMapping;

/// An open regular file; one system call per method, or none for a small write, or a read, of what is mapped.
pub(super) struct RealFile {
    file: Arc<fs::File>,
    /// The file's space was reserved up to this offset.
    reserved: AtomicU64,
    /// Whether there is a mapping that is not lost: files without one need no lock.
    is_mapped: AtomicBool,
    mapping: QuickMutex<Option<Mapping>>,
    /// Held while pages are asked for without the lock of `mapping`, and while there is another mapping made. Taken before that
    /// lock.
    pages: Mutex<()>,
    /// So many writes are still left to calls, because a sync came before them.
    calls_due: AtomicU32,
    /// Whether to map it when random reads are expected: it does not change.
    maps_reads: bool,
    read_mapping: OnceLock<Option<ReadMapping>>,
}

/// A sync protects the pages that it writes, and the next store pays a page fault, which costs more than a call. So the writes
/// behind a sync are calls, and only if no further sync comes soon are they stores again.
const CALLS_BEHIND_SYNC: u32 = 8;

impl RealFile {
    pub(super) fn new(file: fs::File) -> Self {
        let (reserved, is_mapped) = (AtomicU64::new(0), AtomicBool::new(false));
        let (mapping, pages) = (QuickMutex::new(None), Mutex::new(()));
        Self {
            file: Arc::new(file),
            reserved,
            is_mapped,
            mapping,
            pages,
            calls_due: AtomicU32::new(0),
            maps_reads: false,
            read_mapping: OnceLock::new(),
        }
    }

    /// A file that does not change, and that is mapped if random reads are expected.
    pub(super) fn with_mapped_reads(file: fs::File) -> Self {
        Self { maps_reads: true, ..Self::new(file) }
    }

    /// Writes by stores. `None` if the system call must do it: nothing is mapped there, or another thread is writing.
    #[inline]
    fn store_at(&self, bytes: &[u8], offset: u64) -> Option<io::Result<usize>> {
        if !self.is_mapped.load(Ordering::Relaxed) {
            return None;
        }
        let calls_due = self.calls_due.load(Ordering::Relaxed);
        if calls_due > 0 {
            // Another thread's sync in between is lost, which makes the next store dearer.
            self.calls_due.store(calls_due - 1, Ordering::Relaxed);
            return None;
        }
        let mut mapping = self.mapping.lock_soon()?;
        let stored = mapping.as_mut()?.write(&self.file, bytes, offset);
        if mapping.as_ref()?.is_usable() {
            return stored.map(|()| Ok(bytes.len()));
        }
        // The mapping stays until the next hint, in case that its pages are being asked for.
        self.is_mapped.store(false, Ordering::Relaxed);
        stored.map(|()| self.write_lost(bytes, offset))
    }

    /// Writes what a store that met a bus error could not, or tells why. A file that was cut would only be made longer again.
    #[cold]
    fn write_lost(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if self.len()? < offset + bytes.len() as u64 {
            Err(Errno::IO.into())
        } else {
            self.file.write_at(bytes, offset)
        }
    }

    /// Before the file loses the space behind `offset`, which a store may need. Another handle's mapping stays: the log ends its
    /// own when it leaves a segment, and only then is the rest of the segment punched.
    fn unmap(&self, offset: u64) {
        self.reserved.fetch_min(offset, Ordering::Relaxed);
        self.is_mapped.store(false, Ordering::Relaxed);
        let _no_pages_are_asked_for = self.pages.lock();
        *self.mapping.lock() = None;
    }

    /// Advises on `len` bytes from `offset` on, or on all of them. A failure is ignored: the advice is a hint.
    fn advise(&self, offset: u64, len: Option<NonZeroU64>, advice: Advice) {
        let _ = rustix::fs::fadvise(&self.file, offset, len, advice);
    }
}

impl File for RealFile {
    #[inline]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(Some(mapping)) = self.read_mapping.get()
            && mapping.read(buf, offset)
        {
            return Ok(buf.len());
        }
        self.file.read_at(buf, offset)
    }

    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> bool {
        let len = buf.len();
        let read = preadv2(&self.file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|n| n == len)
    }

    fn descriptor(&self) -> io::Result<Option<Arc<fs::File>>> {
        Ok(Some(Arc::clone(&self.file)))
    }

    #[inline]
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        match self.store_at(buf, offset) {
            Some(written) => written,
            None => self.file.write_at(buf, offset),
        }
    }

    /// Not `File::sync_data`, which repeats an interrupted call: a sync is never repeated.
    fn sync(&self, site: Site) -> io::Result<()> {
        if failpoint::skipped(site) {
            return Ok(());
        }
        self.calls_due.store(CALLS_BEHIND_SYNC, Ordering::Relaxed);
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.unmap(len);
        self.file.set_len(len)
    }

    /// Never shortens the file.
    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(()); // `fallocate` refuses an empty range.
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.len()? < len => self.set_len(len),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => {
                result?;
                self.reserved.fetch_max(len, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Nothing is mapped whose space could not be reserved.
    fn expect_small_writes(&self, range: Range<u64>) -> bool {
        let end = range.end.min(self.reserved.load(Ordering::Relaxed));
        let _no_pages_are_asked_for = self.pages.lock();
        let mut mapping = self.mapping.lock();
        *mapping = None;
        *mapping = Mapping::new(&self.file, range.start.min(end)..end);
        self.is_mapped.store(mapping.is_some(), Ordering::Relaxed);
        mapping.is_some()
    }

    fn prepare_small_writes(&self) {
        // Without the lock of the mapping, which writers need.
        let Some(_mapping_stays) = self.pages.try_lock() else { return };
        let next_pages = || self.mapping.lock_soon()?.as_ref()?.next_pages();
        if self.is_mapped.load(Ordering::Relaxed)
            && let Some(pages) = next_pages()
        {
            let asked = pages.ask(&self.file);
            if let Some(mapping) = self.mapping.lock().as_mut() {
                mapping.end_asking(asked);
            }
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_punch(offset, len)?;
        if len == 0 {
            return Ok(()); // `fallocate` refuses an empty range.
        }
        self.unmap(offset);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset, len)?)
    }

    fn expect_random_reads(&self) {
        self.advise(0, None, Advice::Random);
        if self.maps_reads {
            self.read_mapping.get_or_init(|| ReadMapping::new(&self.file));
        }
    }

    fn prefetch(&self, offset: u64, len: u64) {
        let Some(len) = NonZeroU64::new(len) else { return };
        self.advise(offset, Some(len), Advice::WillNeed);
    }

    /// Dirty pages stay cached.
    fn forget(&self, offset: u64, len: u64) {
        let Some(len) = NonZeroU64::new(len) else { return };
        if let Some(Some(mapping)) = self.read_mapping.get() {
            mapping.forget(offset, len.get());
        }
        self.advise(offset, Some(len), Advice::DontNeed);
    }
}
