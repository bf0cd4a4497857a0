//! The footer: the last 64 bytes of an SST, from which everything else is found.
//!
//! # On disk
//! Layout: docs/format/sst.md, footer.

#![deny(clippy::indexing_slicing)]

use pleach_env::{FileId, failpoint};

use crate::codec::Codec;
use crate::limits::{FOOTER_LEN, TAIL_LEN_MAX};

/// Last 8 bytes of every SST.
const MAGIC: [u8; 8] = *b"PleachST";
/// The format this build writes, and the only one it reads.
pub(crate) const VERSION: u16 = 2;

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) codec: Codec,
    pub(crate) file_id: FileId,
    pub(crate) index_len: u32,
    /// 0 where there is no filter.
    pub(crate) filter_len: u32,
    pub(crate) properties_len: u32,
    pub(crate) file_len: u32,
}

/// Why bytes are no footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// They violate the format at this byte.
    Damaged(usize, String),
    /// They are of another format version.
    Version(u16),
}

impl Footer {
    /// Length of index, filter, properties and footer together.
    pub(crate) fn tail_len(&self) -> u64 {
        let blocks = [self.index_len, self.filter_len, self.properties_len].map(u64::from);
        blocks.iter().sum::<u64>() + FOOTER_LEN as u64
    }

    /// The stored bytes, and the checksum among them.
    pub(crate) fn encode(&self) -> ([u8; FOOTER_LEN], u32) {
        let mut covered = Vec::with_capacity(FOOTER_LEN);
        covered.extend_from_slice(&VERSION.to_le_bytes());
        covered.extend_from_slice(&[self.codec.number(), 0]);
        covered.extend_from_slice(&self.file_id.0.to_le_bytes());
        for len in [self.index_len, self.filter_len, self.properties_len, self.file_len] {
            covered.extend_from_slice(&len.to_le_bytes());
        }
        covered.resize(FOOTER_LEN - 4 - MAGIC.len(), 0);
        covered.extend_from_slice(&MAGIC);
        let crc = crc32c::crc32c(&covered);
        let mut bytes = [0; FOOTER_LEN];
        for (to, from) in bytes.iter_mut().zip(crc.to_le_bytes().into_iter().chain(covered)) {
            *to = from;
        }
        (bytes, crc)
    }

    /// The footer of a file that should have this id and length, and its checksum.
    pub(crate) fn decode(
        bytes: &[u8; FOOTER_LEN],
        file_id: FileId,
        file_len: u64,
    ) -> Result<(Self, u32), Rejected> {
        let (crc, covered) = bytes.split_first_chunk::<4>().ok_or_else(|| damaged(0, "64 bytes"))?;
        let mut fields = Fields(covered);
        let version = u16::from_le_bytes(fields.take());
        let [codec, zero] = fields.take();
        let id = FileId(u64::from_le_bytes(fields.take()));
        let [index_len, filter_len, properties_len, len] =
            [(); 4].map(|()| u32::from_le_bytes(fields.take()));
        let reserved: [u8; 24] = fields.take();
        if fields.take() != MAGIC {
            return Err(damaged(56, "the magic bytes PleachST"));
        }
        if version != VERSION {
            return Err(Rejected::Version(version));
        }
        let crc = u32::from_le_bytes(*crc);
        if crc32c::crc32c(covered) != crc && !failpoint::skipped("sst.footer.crc") {
            return Err(damaged(0, "bytes that match the footer's checksum"));
        }
        if id != file_id {
            return Err(Rejected::Damaged(8, format!("expected file id {file_id}, found {id}")));
        }
        if u64::from(len) != file_len {
            return Err(Rejected::Damaged(28, format!("expected a file of {file_len} bytes, found {len}")));
        }
        let codec = Codec::from_number(codec).ok_or_else(|| damaged(6, "a codec this build knows"))?;
        if zero != 0 || reserved != [0; 24] {
            return Err(damaged(32, "zeros"));
        }
        let footer = Self { codec, file_id, index_len, filter_len, properties_len, file_len: len };
        if footer.tail_len() >= file_len || footer.tail_len() > TAIL_LEN_MAX as u64 {
            return Err(damaged(16, "a tail shorter than the file and than 64 MiB"));
        }
        Ok((footer, crc))
    }
}

fn damaged(at: usize, expected: &str) -> Rejected {
    Rejected::Damaged(at, format!("expected {expected}"))
}

/// Fields of fixed width, taken from the front; zeros once there are no more.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk::<N>().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *field
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test")]
    use super::*;

    const FOOTER: Footer = Footer {
        codec: Codec::Lz4,
        file_id: FileId(0x0102),
        index_len: 40,
        filter_len: 88,
        properties_len: 120,
        file_len: 5000,
    };

    #[test]
    fn stored_bytes_are_fixed() {
        let (bytes, crc) = FOOTER.encode();
        assert_eq!(bytes[..4], crc.to_le_bytes());
        assert_eq!(
            bytes[4..],
            *b"\x02\0\x01\0\x02\x01\0\0\0\0\0\0\x28\0\0\0\x58\0\0\0\x78\0\0\0\x88\x13\0\0\
               \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0PleachST"
        );
        assert_eq!(Footer::decode(&bytes, FileId(0x0102), 5000), Ok((FOOTER, crc)));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (bytes, _) = FOOTER.encode();
        for bit in 0..FOOTER_LEN * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&damaged, FileId(0x0102), 5000).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_files_footer_is_rejected() {
        let (bytes, _) = FOOTER.encode();
        assert!(Footer::decode(&bytes, FileId(0x0103), 5000).is_err());
        assert!(Footer::decode(&bytes, FileId(0x0102), 5001).is_err());
    }

    #[test]
    fn a_forged_checksum_does_not_help_an_impossible_tail() {
        for lens in [(u32::MAX, u32::MAX), (5000, 0)] {
            let (bytes, _) = Footer { index_len: lens.0, filter_len: lens.1, ..FOOTER }.encode();
            assert!(Footer::decode(&bytes, FileId(0x0102), 5000).is_err());
        }
    }
}
