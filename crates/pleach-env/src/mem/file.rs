//! A file in memory, and a handle of it.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::io::Errno;

use super::bytes::{Bytes, UsedBytes};
use super::lock::Holders;
use crate::env::{Dir, File, Site, check_punch};

/// A file without its name; lives as long as its name or a handle.
pub(super) struct MemFile {
    /// Readers share the lock. A writer holds it while it copies the bytes of one call. No other lock is taken meanwhile.
    bytes: RwLock<Bytes>,
    /// Who has locked the file by [`Env::lock_file`](crate::Env::lock_file).
    pub(super) holders: Arc<Holders>,
}

impl MemFile {
    /// An empty file.
    pub(super) fn new(used: &UsedBytes) -> Arc<Self> {
        Arc::new(Self { bytes: RwLock::new(Bytes::new(Arc::clone(used))), holders: Arc::default() })
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.bytes.read().len()
    }
}

/// A handle.
pub(super) struct MemHandle {
    pub(super) file: Arc<MemFile>,
    pub(super) may_write: bool,
}

impl MemHandle {
    fn change<T>(&self, change: impl FnOnce(&mut Bytes) -> io::Result<T>) -> io::Result<T> {
        if !self.may_write {
            return Err(Errno::BADF.into());
        }
        change(&mut self.file.bytes.write())
    }
}

impl File for MemHandle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.file.bytes.read().read(buf, offset))
    }

    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> bool {
        self.file.bytes.read().read(buf, offset) == buf.len()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.change(|bytes| bytes.write(buf, offset))
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|bytes| bytes.set_len(len))
    }

    /// Reserves nothing: memory that was not written to is not kept for the file.
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(|bytes| bytes.set_len(len.max(bytes.len())))
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_punch(offset, len)?;
        self.change(|bytes| {
            bytes.punch(offset, len);
            Ok(())
        })
    }

    fn expect_random_reads(&self) {}

    fn prefetch(&self, _offset: u64, _len: u64) {}

    fn forget(&self, _offset: u64, _len: u64) {}
}

/// An open directory, whose names are always durable.
pub(super) struct MemDir;

impl Dir for MemDir {
    fn sync(&self, _site: Site) -> io::Result<()> {
        Ok(())
    }
}
