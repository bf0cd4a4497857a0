//! The stamp in a file's header: the length of the file at its last successful sync.
//!
//! The writer never shortens a file, and no crash undoes a sync. So a file shorter than its stamp was cut by something else.
//!
//! # On disk
//! Layout: docs/format/log.md, "Stamp". It has a checksum of its own, because it is written while the file is in use.

use std::io;

use pleach_coding::{u32_at, u64_at};
use pleach_env::{File, FileId};

/// Length of the part of the header that never changes; the stamp follows it.
pub(super) const STAMP_AT: usize = 64;

/// Length of the stamp.
pub(super) const STAMP_LEN: usize = 32;

const CHECKED_LEN: usize = STAMP_LEN - 4;

/// A length in which the file was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    pub(crate) durable_len: u64,
}

impl Stamp {
    /// Writes the stamp of file `id`, without a sync. Requires: the file was synced when it had this length.
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

    /// The stamp in the first bytes of file `id`. `None` if there is none or its checksum is wrong: recovery works without it.
    pub(super) fn decode(start: &[u8], id: FileId) -> Option<Self> {
        let bytes: &[u8; STAMP_LEN] = start.get(STAMP_AT..)?.first_chunk()?;
        let durable_len = u64_at(bytes, 0);
        (durable_len > 0 && checksum(bytes, id) == u32_at(bytes, CHECKED_LEN)).then_some(Self { durable_len })
    }
}

fn checksum(bytes: &[u8; STAMP_LEN], id: FileId) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.0.to_le_bytes()), &bytes[..CHECKED_LEN])
}
