//! A regular file of the operating system.

use std::fs;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::env::{File, Site, check_punch};
use crate::failpoint;

/// An open regular file; one system call per method.
pub(super) struct RealFile(pub(super) Arc<fs::File>);

impl RealFile {
    /// Advises on `len` bytes from `offset` on, or on all of them. A failure is ignored: the advice is a hint.
    fn advise(&self, offset: u64, len: Option<NonZeroU64>, advice: Advice) {
        let _ = rustix::fs::fadvise(&self.0, offset, len, advice);
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> bool {
        let len = buf.len();
        let read = preadv2(&self.0, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|n| n == len)
    }

    fn descriptor(&self) -> io::Result<Option<Arc<fs::File>>> {
        Ok(Some(Arc::clone(&self.0)))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }

    /// Not `File::sync_data`, which repeats an interrupted call: a sync is never repeated.
    fn sync(&self, site: Site) -> io::Result<()> {
        if failpoint::skipped(site) {
            return Ok(());
        }
        Ok(rustix::fs::fdatasync(&self.0)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    /// Never shortens the file.
    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(()); // `fallocate` refuses an empty range.
        }
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.len()? < len => self.set_len(len),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_punch(offset, len)?;
        if len == 0 {
            return Ok(()); // `fallocate` refuses an empty range.
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0, flags, offset, len)?)
    }

    fn expect_random_reads(&self) {
        self.advise(0, None, Advice::Random);
    }

    fn prefetch(&self, offset: u64, len: u64) {
        let Some(len) = NonZeroU64::new(len) else { return };
        self.advise(offset, Some(len), Advice::WillNeed);
    }

    /// Dirty pages stay cached.
    fn forget(&self, offset: u64, len: u64) {
        let Some(len) = NonZeroU64::new(len) else { return };
        self.advise(offset, Some(len), Advice::DontNeed);
    }
}
