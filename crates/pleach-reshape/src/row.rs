//! A row: the bytes that a store keeps under an id. It proves itself: checksum, version, key, value.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md. This module owns the bytes.

use pleach::{Error, ErrorKind, Result};
use pleach_coding::{Decoder, put_varint, u32_at, varint_len};

use crate::store::Place;

/// Bytes of the checksum.
const CHECKSUM_LEN: usize = 4;

/// A decoded row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    /// When it was written to its place: greater than the version of every earlier row of its key.
    pub(crate) version: u64,
    /// As the caller gave it.
    pub(crate) key: &'a [u8],
    /// `None`: the row says that its key was deleted.
    pub(crate) value: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    /// Appends the row's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let value = self.value.unwrap_or_default();
        out.reserve(self.encoded_len());
        let start = out.len();
        out.extend_from_slice(&[0; CHECKSUM_LEN]);
        put_varint(out, self.tag());
        put_varint(out, self.key.len() as u64);
        out.extend_from_slice(self.key);
        out.extend_from_slice(value);
        let (checksum, covered) = out[start..].split_at_mut(CHECKSUM_LEN);
        checksum.copy_from_slice(&crc32c::crc32c(covered).to_le_bytes());
    }

    /// How many bytes the row takes.
    pub(crate) fn encoded_len(&self) -> usize {
        let lengths = varint_len(self.tag()) + varint_len(self.key.len() as u64);
        CHECKSUM_LEN + lengths + self.key.len() + self.value.map_or(0, <[u8]>::len)
    }

    /// Version and kind as one number.
    fn tag(&self) -> u64 {
        self.version << 1 | u64::from(self.value.is_none())
    }

    /// The row at `place`; an error that names the place if the bytes are damaged.
    pub(crate) fn decode(place: Place, bytes: &'a [u8]) -> Result<Self> {
        Self::parse(bytes).map_err(|what| damaged(place, what))
    }

    /// The row of these bytes, or what is wrong with them.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        if bytes.len() < CHECKSUM_LEN {
            return Err("it is shorter than its checksum");
        }
        let covered = &bytes[CHECKSUM_LEN..];
        if u32_at(bytes, 0) != crc32c::crc32c(covered) {
            return Err("its checksum is wrong");
        }
        let mut decoder = Decoder(covered);
        let tag = decoder.varint().ok_or("its version does not end")?;
        let key_len = decoder.varint().ok_or("the length of its key does not end")?;
        let key_len = usize::try_from(key_len).ok().filter(|len| *len <= decoder.0.len());
        let (key, value) = decoder.0.split_at(key_len.ok_or("its key is longer than the row")?);
        let is_deleted = tag & 1 == 1;
        if is_deleted && !value.is_empty() {
            return Err("it has a value though it says that its key was deleted");
        }
        Ok(Self { version: tag >> 1, key, value: (!is_deleted).then_some(value) })
    }
}

/// The key of a row's bytes. Requires: [`Row::decode`] has accepted them.
pub(crate) fn key_of_checked(bytes: &[u8]) -> &[u8] {
    let mut decoder = Decoder(bytes.get(CHECKSUM_LEN..).unwrap_or_default());
    let _tag = decoder.varint();
    let len = decoder.varint().and_then(|len| usize::try_from(len).ok());
    len.and_then(|len| decoder.0.get(..len)).unwrap_or_default()
}

fn damaged(place: Place, what: &str) -> Error {
    let Place { table, id } = place;
    Error::new(ErrorKind::Corruption, format!("row {id} of table {} is damaged: {what}", table.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Table;

    const PLACE: Place = Place { table: Table(1), id: 77 };

    fn encoded(row: Row<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        bytes
    }

    #[test]
    fn bytes_are_those_of_the_format_page() {
        let row = Row { version: 150, key: b"alice", value: Some(b"1") };
        assert_eq!(
            encoded(row),
            [0x31, 0x0a, 0x17, 0x27, 0xac, 0x02, 0x05, 0x61, 0x6c, 0x69, 0x63, 0x65, 0x31]
        );
        let tombstone = Row { version: 3, key: b"x", value: None };
        assert_eq!(encoded(tombstone), [0xa6, 0x53, 0x77, 0xfc, 0x07, 0x01, 0x78]);
    }

    #[test]
    fn rows_come_back() {
        for (key, value) in [(&b""[..], Some(&b""[..])), (b"k", Some(b"value")), (&[7; 300], None)] {
            let row = Row { version: u64::MAX >> 1, key, value };
            assert_eq!(Row::decode(PLACE, &encoded(row)).unwrap(), row);
        }
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let bytes = encoded(Row { version: 9, key: b"a key", value: Some(b"a value") });
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let error = Row::decode(PLACE, &changed).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!(error.to_string().contains("row 77 of table 1"), "{error}");
            }
            assert!(Row::decode(PLACE, &bytes[..at]).is_err());
        }
    }
}
