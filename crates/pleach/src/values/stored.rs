//! Stored value: a separated value as it stands in a file, plain or packed, with its checksum in front.
//!
//! With [`Options::compression`](crate::Options::compression) a value is packed alone, before it is logged. What copies values
//! later, copies the stored bytes as they are. So pointers, references and tables count stored bytes.
//!
//! # Invariants
//! 1. *Told by the checksum*: the checksum of a packed value differs from that of the same bytes as a plain one by
//!    [`PACKED_MARK`]. So a reader that has proved a value knows its form.
//! 2. *Shorter*: a packed value, with the length in front, is shorter than the raw one. Checked by [`PackedValue::decode`].
//!
//! # On disk
//! Layout: docs/format/values.md.

use pleach_coding::{Decoder, put_varint, u32_at};
use pleach_env::failpoint;
use pleach_table::{Lz4Packer, may_unpack_to, packed_len_max, unpack};

use crate::keys::PartitionId;
use crate::limits::VALUE_LEN_MAX;

/// Bytes of the checksum in front of a value.
pub(crate) const CHECKSUM_LEN: usize = 4;

/// The difference, by XOR, between the checksums of the same bytes as a packed and as a plain value. The golden ratio; no byte
/// of it is zero, so no change of one byte of a checksum turns one form into the other.
const PACKED_MARK: u32 = 0x9e37_79b9;

/// Values below this length are stored as they are: LZ4 needs 13 bytes to find a match, and the length takes one more.
const PACKED_LEN_MIN: usize = 16;

/// The checksum of a plain value: CRC-32C of partition, key and value. It has no length of the key. So key `ab` with value `c`
/// has the checksum of key `a` with value `bc`; but the bytes behind the checksum and the length in the pointer differ.
pub(crate) fn checksum(partition: PartitionId, user_key: &[u8], value: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&partition.0.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, user_key), value)
}

/// The checksum of a packed value.
pub(crate) fn packed_checksum(partition: PartitionId, user_key: &[u8], packed: &[u8]) -> u32 {
    checksum(partition, user_key, packed) ^ PACKED_MARK
}

/// Packs values, and keeps the memory that it needs for that.
#[derive(Default)]
pub(crate) struct ValuePacker {
    lz4: Lz4Packer,
    /// The length of the value that was packed last, and as many bytes as packing ever needed.
    len: Vec<u8>,
    bytes: Vec<u8>,
}

impl ValuePacker {
    /// The packed form of a value: its length, a varint, and an LZ4 block. `None` if that does not save enough.
    pub(crate) fn pack(&mut self, value: &[u8]) -> Option<&[u8]> {
        if value.len() < PACKED_LEN_MIN {
            return None;
        }
        self.len.clear();
        put_varint(&mut self.len, value.len() as u64);
        let head = self.len.len();
        let needed = head + packed_len_max(value.len());
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        let (len, block) = self.bytes.split_at_mut(head);
        let packed_len = self.lz4.pack(value, block)?;
        len.copy_from_slice(&self.len);
        Some(&self.bytes[..head + packed_len])
    }

    /// The checksum and the stored form of a value. `packer` is given if the value may be packed.
    pub(crate) fn store<'v>(
        packer: Option<&'v mut Self>,
        (partition, user_key): (PartitionId, &[u8]),
        value: &'v [u8],
    ) -> ([u8; CHECKSUM_LEN], &'v [u8]) {
        match packer.and_then(|packer| packer.pack(value)) {
            Some(packed) => (packed_checksum(partition, user_key, packed).to_le_bytes(), packed),
            None => (checksum(partition, user_key, value).to_le_bytes(), value),
        }
    }
}

/// A packed value whose lengths are possible. Its block may still be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedValue<'b> {
    raw_len: usize,
    block: &'b [u8],
}

impl<'b> PackedValue<'b> {
    /// A packed value that is still to be decoded.
    pub(crate) const UNKNOWN: Self = Self { raw_len: 0, block: &[] };

    /// Decodes stored bytes without their checksum; `None` if no value can be packed like this.
    pub(crate) fn decode(stored: &'b [u8]) -> Option<Self> {
        let mut rest = Decoder(stored);
        let (raw_len, block) = (rest.u32()? as usize, rest.0);
        let is_possible =
            raw_len > stored.len() && raw_len <= VALUE_LEN_MAX && may_unpack_to(block.len(), raw_len);
        is_possible.then_some(Self { raw_len, block })
    }

    /// Bytes of the value.
    pub(crate) fn raw_len(self) -> usize {
        self.raw_len
    }

    /// The value, in the memory of `scratch`; `None` if the block is malformed or has another length.
    pub(crate) fn unpack(self, scratch: &mut Vec<u8>) -> Option<&[u8]> {
        if scratch.len() < self.raw_len {
            scratch.resize(self.raw_len, 0);
        }
        let value = &mut scratch[..self.raw_len];
        failpoint::report("value.unpacked", self.raw_len as u64);
        unpack(self.block, value).then_some(&*value)
    }
}

/// A stored value whose checksum has proved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredValue<'b> {
    Plain(&'b [u8]),
    Packed(PackedValue<'b>),
}

impl<'b> StoredValue<'b> {
    /// Proves the stored value of a key. The error says what is wrong.
    ///
    /// Requires: `bytes` has the checksum.
    pub(crate) fn prove(
        (partition, user_key): (PartitionId, &[u8]),
        bytes: &'b [u8],
    ) -> Result<Self, &'static str> {
        let (crc, stored) = bytes.split_at(CHECKSUM_LEN);
        match checksum(partition, user_key, stored) ^ u32_at(crc, 0) {
            0 => Ok(Self::Plain(stored)),
            PACKED_MARK => PackedValue::decode(stored).map(Self::Packed).ok_or("its length cannot be right"),
            _ if failpoint::skipped("value.crc") => {
                Ok(PackedValue::decode(stored).map_or(Self::Plain(stored), Self::Packed))
            }
            _ => Err("the bytes are not the value of this key"),
        }
    }

    /// The value: the bytes themselves, or unpacked in the memory of `scratch`. The error says what is wrong.
    pub(crate) fn raw<'s>(self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], &'static str>
    where
        'b: 's,
    {
        match self {
            Self::Plain(value) => Ok(value),
            Self::Packed(packed) => packed.unpack(scratch).ok_or("the packed value cannot be unpacked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (PartitionId, &[u8]) = (PartitionId(1), b"key");

    fn stored(value: &[u8]) -> Vec<u8> {
        let mut packer = ValuePacker::default();
        let (crc, stored) = ValuePacker::store(Some(&mut packer), KEY, value);
        [&crc[..], stored].concat()
    }

    fn raw(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        StoredValue::prove(KEY, bytes)?.raw(&mut Vec::new()).map(<[u8]>::to_vec)
    }

    /// A packed value with a right checksum.
    fn forged(packed: &[u8]) -> Vec<u8> {
        [&packed_checksum(KEY.0, KEY.1, packed).to_le_bytes()[..], packed].concat()
    }

    #[test]
    fn a_checksum_covers_partition_key_and_value() {
        let of = |partition, key: &[u8], value: &[u8]| checksum(PartitionId(partition), key, value);
        let base = of(1, b"key", b"value");
        assert_eq!(base, of(1, b"key", b"value"));
        for other in [of(2, b"key", b"value"), of(1, b"kez", b"value"), of(1, b"key", b"valuf")] {
            assert_ne!(base, other);
        }
    }

    /// The worked examples of docs/format/values.md.
    #[test]
    fn stored_bytes_are_fixed() {
        let alice = (PartitionId(1), &b"alice"[..]);
        assert_eq!(ValuePacker::store(None, alice, b"a picture").0, *b"\x9e\xdf\x15\x51");
        let mut packer = ValuePacker::default();
        let (crc, stored) = ValuePacker::store(Some(&mut packer), alice, &[b'a'; 40]);
        assert_eq!(stored, b"\x28\x1fa\x01\x00\x0e\x60aaaaaa");
        assert_eq!(crc, *b"\x3a\xa7\x4d\xcb");
    }

    #[test]
    fn values_come_back_packed_or_plain() {
        let mut rng = fastrand::Rng::with_seed(3);
        for len in [0, 1, 15, 16, 17, 100, 1000, 70_000] {
            let noise: Vec<_> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
            assert_eq!(stored(&noise).len(), CHECKSUM_LEN + len, "nothing is saved");
            assert_eq!(raw(&stored(&noise)).unwrap(), noise);
            let same = vec![7; len];
            let bytes = stored(&same);
            assert_eq!(bytes.len() < CHECKSUM_LEN + len, len >= 16);
            assert_eq!(raw(&bytes).unwrap(), same);
            let is_packed = matches!(StoredValue::prove(KEY, &bytes).unwrap(), StoredValue::Packed(_));
            assert_eq!(is_packed, len >= 16);
        }
    }

    #[test]
    fn any_change_of_a_byte_is_noticed() {
        let value = b"to be or not to be, that is to be asked; or not to be".repeat(4);
        let bytes = stored(&value);
        assert!(bytes.len() < value.len());
        for at in 0..bytes.len() {
            for change in 1..=255 {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                assert!(raw(&changed).is_err(), "byte {at} XOR {change:#x}");
            }
        }
        let other = StoredValue::prove((PartitionId(1), b"kez"), &bytes);
        assert!(other.is_err(), "the value of another key");
    }

    #[test]
    fn impossible_lengths_and_malformed_blocks_are_refused() {
        let of_len = |len: u64, block: &[u8]| {
            let mut packed = Vec::new();
            put_varint(&mut packed, len);
            packed.extend_from_slice(block);
            raw(&forged(&packed))
        };
        let block = &b"\x1fa\x01\x00\x0e\x60aaaaaa"[..];
        assert_eq!(of_len(40, block).unwrap(), [b'a'; 40]);
        for (len, block, why) in [
            (0, block, "no value"),
            (13, block, "the packed value is as long"),
            (39, block, "the block has more"),
            (41, block, "the block has less"),
            (12 * 255 + 1, block, "no block of 12 bytes has so much"),
            (VALUE_LEN_MAX as u64 + 1, block, "no value is so long"),
            (1 << 40, block, "no value is so long"),
            (40, b"\x1fa\x02\x00\x0e\x60aaaaaa", "a match in front of the value"),
            (40, b"\x1fa\x00\x00\x0e\x60aaaaaa", "a match of nothing"),
            (40, b"\x1fa\x01\x00\x0e\x60aaaaa", "the block ends early"),
            (40, b"", "no block"),
        ] {
            assert!(of_len(len, block).is_err(), "{why}");
        }
        // These are refused before memory is taken.
        for len in [0, 13, 12 * 255 + 1, VALUE_LEN_MAX as u64 + 1] {
            let mut packed = Vec::new();
            put_varint(&mut packed, len);
            packed.extend_from_slice(block);
            assert_eq!(PackedValue::decode(&packed), None);
        }
        assert!(raw(&forged(b"")).is_err(), "no length");
        assert!(raw(&forged(b"\xff\xff")).is_err(), "a length that does not end");
    }
}
