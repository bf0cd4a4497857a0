//! The stamp in a file's header: how long the file was when a sync of it last succeeded.
//!
//! A file never becomes shorter, so one that is shorter than its stamp was cut by something else than a crash.
//!
//! # On disk
//! Layout: docs/format/log.md, "Stamp". It has a checksum of its own, because it is written while the file is in use.

use std::io;

use pleach_env::{File, FileId};

/// Length of the part of the header that never changes; the stamp follows it.
pub(super) const STAMP_AT: usize = 64;

/// Length of the stamp.
pub(super) const STAMP_LEN: usize = 32;

const CHECKED_LEN: usize = STAMP_LEN - 4;

/// That a file was durable in this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    pub(crate) durable_len: u64,
}

impl Stamp {
    /// Writes the stamp of file `id`, without a sync. Requires: a sync of the file in this length has succeeded.
    pub(crate) fn write(self, file: &dyn File, id: FileId) -> io::Result<()> {
        file.write_all_at(&self.encode(id), STAMP_AT as u64)
    }

    pub(super) fn encode(self, id: FileId) -> [u8; STAMP_LEN] {
        let mut bytes = [0; STAMP_LEN];
        bytes[0..8].copy_from_slice(&self.durable_len.to_le_bytes());
        let crc = checksum(&bytes, id);
        bytes[CHECKED_LEN..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The stamp in the first bytes of file `id`. `None` while there is none, or where its checksum is wrong: a stamp is
    /// never needed.
    pub(super) fn decode(start: &[u8], id: FileId) -> Option<Self> {
        let bytes: &[u8; STAMP_LEN] = start.get(STAMP_AT..)?.first_chunk()?;
        let (len, rest) = bytes.split_first_chunk::<8>()?;
        let stored = rest.last_chunk::<4>()?;
        let durable_len = u64::from_le_bytes(*len);
        (durable_len > 0 && checksum(bytes, id) == u32::from_le_bytes(*stored))
            .then_some(Self { durable_len })
    }
}

fn checksum(bytes: &[u8; STAMP_LEN], id: FileId) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.0.to_le_bytes()), &bytes[..CHECKED_LEN])
}
