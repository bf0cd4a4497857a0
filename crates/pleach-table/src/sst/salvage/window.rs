//! The bytes of a damaged file, read 1 MiB at a time.

use pleach_env::Result;

use super::super::load::read_error;
use super::SalvageSst;

/// Bytes read at once.
pub(super) const WINDOW_LEN: usize = 1 << 20;

/// A part of the file in memory.
pub(super) struct Window<'s> {
    sst: &'s SalvageSst,
    start: u64,
    bytes: Vec<u8>,
}

impl<'s> Window<'s> {
    pub(super) fn new(sst: &'s SalvageSst) -> Self {
        Self { sst, start: 0, bytes: Vec::new() }
    }

    /// `len` bytes at `offset`. Requires: the file has them, and if they are more than [`WINDOW_LEN`], a checksum has
    /// confirmed the length.
    pub(super) fn get(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        if self.held_from(offset).len() < len {
            self.fill(offset, len)?;
        }
        Ok(&self.held_from(offset)[..len])
    }

    /// The bytes in memory from `offset` on.
    pub(super) fn held_from(&self, offset: u64) -> &[u8] {
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    /// `crc` continued over `len` bytes at `offset`. Requires: the file has them.
    pub(super) fn crc(&mut self, mut crc: u32, mut offset: u64, len: u64) -> Result<u32> {
        let end = offset + len;
        while offset < end {
            let chunk = usize::try_from(end - offset).unwrap_or(usize::MAX).min(WINDOW_LEN / 2);
            crc = crc32c::crc32c_append(crc, self.get(offset, chunk)?);
            offset += chunk as u64;
        }
        Ok(crc)
    }

    fn fill(&mut self, offset: u64, len: usize) -> Result<()> {
        let left = usize::try_from(self.sst.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        self.bytes.clear();
        self.bytes.shrink_to(WINDOW_LEN);
        self.start = offset;
        let mut want = left.min(len.max(WINDOW_LEN));
        loop {
            self.bytes.resize(want, 0);
            match self.sst.file.read_exact_at(&mut self.bytes, offset) {
                Ok(()) => return Ok(()),
                // A bad sector further on must not lose the bytes before it.
                Err(_) if want > len => want = len,
                Err(error) => {
                    self.bytes.clear();
                    return Err(read_error(&self.sst.path, offset, error));
                }
            }
        }
    }
}
