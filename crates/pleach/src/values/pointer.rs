//! Value pointer: which bytes of which segment are a value.
//!
//! # On disk
//! Layout: docs/format/values.md.

use pleach_coding::{Decoder, put_varint};
use pleach_env::FileId;

use super::stored::CHECKSUM_LEN;
use crate::limits::{NEXT_ID_MAX, VALUE_LEN_MAX};

/// Bytes of a segment at most: a record of 1 GiB has a segment of its own.
const OFFSET_MAX: u64 = u32::MAX as u64;

/// Values of so many bytes gain nothing by the order of keys: a device reads as much at any place about as fast as in order.
const ORDERED_LEN_MAX: u32 = 64 << 10;

/// A value's place. The bytes there are the value's checksum and the value as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValuePointer {
    pub(crate) segment: FileId,
    /// Of the checksum, in the file as it was when the pointer was made.
    pub(crate) offset: u64,
    /// Bytes of the stored value: of the packed one, if it is packed.
    pub(crate) len: u32,
}

impl ValuePointer {
    /// Bytes that it refers to: checksum and value.
    pub(crate) fn bytes(self) -> u64 {
        CHECKSUM_LEN as u64 + u64::from(self.len)
    }

    /// Whether scans gain if the value lies in the order of keys.
    pub(crate) fn gains_by_order(self) -> bool {
        self.len < ORDERED_LEN_MAX
    }

    /// Appends its bytes.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.segment.0);
        put_varint(out, self.offset);
        put_varint(out, self.len.into());
    }

    /// Decodes the value of an entry of kind value pointer; `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Decoder(bytes);
        let (segment, offset, len) = (rest.varint()?, rest.varint()?, rest.u32()?);
        let is_valid =
            rest.is_empty() && segment < NEXT_ID_MAX && offset <= OFFSET_MAX && len as usize <= VALUE_LEN_MAX;
        is_valid.then_some(Self { segment: FileId(segment), offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_round_trip_and_malformed_ones_are_refused() {
        for (segment, offset, len) in [(0, 0, 0), (7, 96, 512), (NEXT_ID_MAX - 1, OFFSET_MAX, 1 << 29)] {
            let pointer = ValuePointer { segment: FileId(segment), offset, len };
            let mut bytes = Vec::new();
            pointer.encode(&mut bytes);
            assert_eq!(ValuePointer::decode(&bytes), Some(pointer));
            assert_eq!(ValuePointer::decode(&bytes[..bytes.len() - 1]), None);
            bytes.push(0);
            assert_eq!(ValuePointer::decode(&bytes), None, "nothing may follow");
        }
        let mut bytes = Vec::new();
        ValuePointer { segment: FileId(NEXT_ID_MAX), offset: 0, len: 0 }.encode(&mut bytes);
        assert_eq!(ValuePointer::decode(&bytes), None);
        bytes.clear();
        ValuePointer { segment: FileId(1), offset: OFFSET_MAX + 1, len: 0 }.encode(&mut bytes);
        assert_eq!(ValuePointer::decode(&bytes), None);
        bytes.clear();
        ValuePointer { segment: FileId(1), offset: 0, len: (1 << 29) + 1 }.encode(&mut bytes);
        assert_eq!(ValuePointer::decode(&bytes), None);
    }

    /// The worked example of docs/format/values.md.
    #[test]
    fn stored_bytes_are_fixed() {
        let mut bytes = Vec::new();
        ValuePointer { segment: FileId(7), offset: 137, len: 9 }.encode(&mut bytes);
        assert_eq!(bytes, b"\x07\x89\x01\x09");
    }
}
