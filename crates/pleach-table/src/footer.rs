//! The footer: the last 64 bytes of an SST, with the lengths of the other parts.
//!
//! # On disk
//! Layout: docs/format/sst.md, footer.

#![deny(clippy::indexing_slicing)]

use pleach_coding::{Malformed, u16_at, u32_at, u64_at};
use pleach_env::{FileId, failpoint};
use pleach_index::IndexKind;

use crate::block::{BlockType, DATA_TYPES};
use crate::codec::Codec;
use crate::extents::Extents;
use crate::sizes::{FOOTER_LEN, TAIL_LEN_MAX};

/// Last 8 bytes of every SST.
const MAGIC: [u8; 8] = *b"PleachST";
const MAGIC_AT: usize = FOOTER_LEN - MAGIC.len();
/// The format version of an SST: the first one that has all that the file uses. So builds that do not know it refuse the
/// file, and older builds read the others. Numbers on disk. Never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Version {
    /// Separators.
    Separators = 2,
    /// A learned index.
    Learned = 3,
    /// Extents as lines; the index is of either kind.
    Lines = 4,
    /// Columnar blocks of whole keys and value pointers; extents and index are of any kind.
    Columns = 5,
    /// Columnar blocks of all kinds.
    PackedColumns = 6,
}

/// The columnar blocks of an SST, the later ones with the earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Columns {
    #[default]
    None,
    Pointers,
    Packed,
}

impl Columns {
    /// Those of a data block of this type.
    pub(crate) fn of(block_type: BlockType) -> Self {
        match block_type {
            BlockType::Columns => Self::Pointers,
            BlockType::PackedColumns => Self::Packed,
            _ => Self::None,
        }
    }
}

impl Version {
    /// The oldest and the newest that this build writes and reads.
    pub(crate) const BOUNDS: [u16; 2] = [Self::Separators as u16, Self::PackedColumns as u16];

    /// The version of an SST with these extents, an index of this kind, and these columnar blocks.
    pub(crate) fn of(extents: &Extents, index_kind: IndexKind, columns: Columns) -> Self {
        match (columns, index_kind) {
            (Columns::Packed, _) => Self::PackedColumns,
            (Columns::Pointers, _) => Self::Columns,
            _ if extents.are_lines() => Self::Lines,
            (Columns::None, IndexKind::Separators) => Self::Separators,
            (Columns::None, IndexKind::Learned) => Self::Learned,
        }
    }

    /// The columnar blocks that an SST of this version may have.
    pub(crate) fn columns(self) -> Columns {
        match self {
            Self::Separators | Self::Learned | Self::Lines => Columns::None,
            Self::Columns => Columns::Pointers,
            Self::PackedColumns => Columns::Packed,
        }
    }

    /// Types of data blocks that an SST of this version may have.
    pub(crate) fn data_types(self) -> &'static [BlockType] {
        match self.columns() {
            Columns::None => &[BlockType::Data],
            Columns::Pointers => &[BlockType::Data, BlockType::Columns],
            Columns::Packed => DATA_TYPES,
        }
    }

    fn from_number(number: u16) -> Option<Self> {
        let all = [Self::Separators, Self::Learned, Self::Lines, Self::Columns, Self::PackedColumns];
        all.into_iter().find(|version| *version as u16 == number)
    }
}

/// The decoded footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) version: Version,
    pub(crate) codec: Codec,
    pub(crate) file_id: FileId,
    pub(crate) index_len: u32,
    /// 0 where there is no filter.
    pub(crate) filter_len: u32,
    pub(crate) properties_len: u32,
    pub(crate) file_len: u32,
}

/// Why bytes are not a footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FooterError {
    /// They violate the format.
    Malformed(Malformed),
    /// They have another format version.
    Version(u16),
}

impl From<Malformed> for FooterError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Footer {
    /// Length of index, filter, properties and footer together.
    pub(crate) fn tail_len(&self) -> u64 {
        let blocks = [self.index_len, self.filter_len, self.properties_len].map(u64::from);
        blocks.iter().sum::<u64>() + FOOTER_LEN as u64
    }

    /// The stored bytes, and the checksum that they begin with.
    pub(crate) fn encode(&self) -> ([u8; FOOTER_LEN], u32) {
        let mut bytes = [0; FOOTER_LEN];
        bytes[4..6].copy_from_slice(&(self.version as u16).to_le_bytes());
        bytes[6] = self.codec.number();
        bytes[8..16].copy_from_slice(&self.file_id.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.index_len.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.filter_len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.properties_len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.file_len.to_le_bytes());
        bytes[MAGIC_AT..].copy_from_slice(&MAGIC);
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// The footer of a file that should have this id and length, and its checksum.
    pub(crate) fn decode(
        bytes: &[u8; FOOTER_LEN],
        file_id: FileId,
        file_len: u64,
    ) -> Result<(Self, u32), FooterError> {
        if bytes[MAGIC_AT..] != MAGIC {
            return Err(Malformed::new(MAGIC_AT, "the magic bytes PleachST").into());
        }
        let number = u16_at(bytes, 4);
        let version = Version::from_number(number).ok_or(FooterError::Version(number))?;
        let crc = u32_at(bytes, 0);
        if crc32c::crc32c(&bytes[4..]) != crc && !failpoint::skipped("sst.footer.crc") {
            return Err(Malformed::new(0, "bytes that match the footer's checksum").into());
        }
        let found = u64_at(bytes, 8);
        if found != file_id.0 {
            return Err(Malformed::new(8, "the file id of this SST").found(found).into());
        }
        let footer = Self {
            version,
            codec: Codec::from_number(bytes[6]).ok_or(Malformed::new(6, "a codec this build knows"))?,
            file_id,
            index_len: u32_at(bytes, 16),
            filter_len: u32_at(bytes, 20),
            properties_len: u32_at(bytes, 24),
            file_len: u32_at(bytes, 28),
        };
        if u64::from(footer.file_len) != file_len {
            return Err(Malformed::new(28, "the length of the file").found(footer.file_len).into());
        }
        if bytes[7] != 0 || bytes[32..MAGIC_AT].iter().any(|&b| b != 0) {
            return Err(Malformed::new(32, "zeros").into());
        }
        if footer.tail_len() >= file_len || footer.tail_len() > TAIL_LEN_MAX as u64 {
            return Err(Malformed::new(16, "a tail shorter than the file and than 64 MiB").into());
        }
        Ok((footer, crc))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test")]
    use super::*;

    const FOOTER: Footer = Footer {
        version: Version::Separators,
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
    fn a_version_has_its_number_and_others_are_unknown() {
        let versions =
            [(Version::Learned, 3), (Version::Lines, 4), (Version::Columns, 5), (Version::PackedColumns, 6)];
        for (version, number) in versions {
            let footer = Footer { version, ..FOOTER };
            let (bytes, crc) = footer.encode();
            assert_eq!(bytes[4..6], [number, 0]);
            assert_eq!(Footer::decode(&bytes, FileId(0x0102), 5000), Ok((footer, crc)));
        }
        for version in [0, 1, 7, u16::MAX] {
            let (mut bytes, _) = FOOTER.encode();
            bytes[4..6].copy_from_slice(&version.to_le_bytes());
            let refused = Footer::decode(&bytes, FileId(0x0102), 5000);
            assert_eq!(refused, Err(FooterError::Version(version)));
        }
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
