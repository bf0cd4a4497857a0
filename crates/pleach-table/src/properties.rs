//! The properties of an SST: counts and sizes of its entries, its key range, its note.
//!
//! # On disk
//! Layout: docs/format/sst.md, properties block. Fields are tagged: a later build can add one, and its tag says whether older
//! builds skip or refuse it.

#![deny(clippy::indexing_slicing)]

use pleach_coding::{Decoder, Malformed};

use crate::sizes::{KEY_LEN_MAX, NOTE_LEN_MAX};
use crate::summary::SstSummary;
use crate::value_kind::ValueKind;

/// Tags on disk. Never renumber. From [`SKIPPABLE`] on, a reader may skip what it does not know.
const ENTRIES: u16 = 1;
const TOMBSTONES: u16 = 2;
const VALUE_POINTERS: u16 = 3;
const RAW_KEY_BYTES: u16 = 4;
const RAW_VALUE_BYTES: u16 = 5;
const FILTER_BITS: u16 = 6;
const SMALLEST: u16 = 7;
const LARGEST: u16 = 8;
const NOTE: u16 = 9;
const SKIPPABLE: u16 = 0x8000;

/// The properties, while entries are counted or as they were decoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) value_pointers: u64,
    pub(crate) raw_key_bytes: u64,
    pub(crate) raw_value_bytes: u64,
    /// Bits of the filter; 0 if there is none.
    pub(crate) filter_bits: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// The note of the layer above.
    pub(crate) note: Vec<u8>,
}

impl Properties {
    /// Counts an entry. Requires: `key` is above all keys counted before.
    pub(crate) fn count(&mut self, key: &[u8], kind: ValueKind, value_len: usize) {
        if self.entries == 0 {
            self.smallest = key.to_vec();
        }
        self.largest.clear();
        self.largest.extend_from_slice(key);
        self.entries += 1;
        self.tombstones += u64::from(kind == ValueKind::Tombstone);
        self.value_pointers += u64::from(kind == ValueKind::ValuePointer);
        self.raw_key_bytes += key.len() as u64;
        self.raw_value_bytes += value_len as u64;
    }

    /// Appends the payload of the properties block.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [
            (ENTRIES, self.entries),
            (TOMBSTONES, self.tombstones),
            (VALUE_POINTERS, self.value_pointers),
            (RAW_KEY_BYTES, self.raw_key_bytes),
            (RAW_VALUE_BYTES, self.raw_value_bytes),
            (FILTER_BITS, self.filter_bits),
        ];
        for (tag, number) in numbers {
            put_field(out, tag, &number.to_le_bytes());
        }
        put_field(out, SMALLEST, &self.smallest);
        put_field(out, LARGEST, &self.largest);
        put_field(out, NOTE, &self.note);
    }

    /// Decodes the payload of the properties block.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut properties = Self::default();
        let mut input = Decoder(payload);
        let mut previous = 0;
        let mut seen = 0;
        while !input.is_empty() {
            let at = payload.len() - input.0.len();
            let (tag, value) = take_field(&mut input).ok_or(Malformed::new(at, "a whole field"))?;
            if tag <= previous {
                return Err(Malformed::new(at, "fields in ascending order of their tags"));
            }
            properties.set(tag, value).ok_or(Malformed::new(at, "a property this build knows"))?;
            seen += u32::from(tag < SKIPPABLE);
            previous = tag;
        }
        let whole = seen == u32::from(NOTE);
        if !whole || properties.entries == 0 || properties.smallest > properties.largest {
            return Err(Malformed::new(0, "the properties of an SST"));
        }
        Ok(properties)
    }

    /// The part that the manifest keeps.
    pub(crate) fn into_summary(
        self,
        file_len: u64,
        tail_len: u32,
        footer_crc: u32,
        data_blocks: u32,
    ) -> SstSummary {
        SstSummary {
            file_len,
            tail_len,
            footer_crc,
            data_blocks,
            entries: self.entries,
            tombstones: self.tombstones,
            value_pointers: self.value_pointers,
            raw_bytes: self.raw_key_bytes.saturating_add(self.raw_value_bytes),
            filter_bits: self.filter_bits,
            smallest: self.smallest,
            largest: self.largest,
        }
    }

    fn set(&mut self, tag: u16, value: &[u8]) -> Option<()> {
        match tag {
            ENTRIES => self.entries = number(value)?,
            TOMBSTONES => self.tombstones = number(value)?,
            VALUE_POINTERS => self.value_pointers = number(value)?,
            RAW_KEY_BYTES => self.raw_key_bytes = number(value)?,
            RAW_VALUE_BYTES => self.raw_value_bytes = number(value)?,
            FILTER_BITS => self.filter_bits = number(value)?,
            SMALLEST => self.smallest = key(value)?,
            LARGEST => self.largest = key(value)?,
            NOTE => self.note = (value.len() <= NOTE_LEN_MAX).then(|| value.to_vec())?,
            _ => return (tag >= SKIPPABLE).then_some(()),
        }
        Some(())
    }
}

fn put_field(out: &mut Vec<u8>, tag: u16, value: &[u8]) {
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&u32::try_from(value.len()).expect("a property is short").to_le_bytes());
    out.extend_from_slice(value);
}

/// The next field's tag and value.
fn take_field<'a>(input: &mut Decoder<'a>) -> Option<(u16, &'a [u8])> {
    let tag = input.fixed_u16()?;
    let len = input.fixed_u32()?;
    Some((tag, input.take(len as usize)?))
}

fn number(value: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(value.try_into().ok()?))
}

fn key(value: &[u8]) -> Option<Vec<u8>> {
    (value.len() <= KEY_LEN_MAX).then(|| value.to_vec())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test")]
    use super::*;

    fn properties() -> Properties {
        Properties {
            entries: 3,
            tombstones: 1,
            value_pointers: 1,
            raw_key_bytes: 12,
            raw_value_bytes: 300,
            filter_bits: 512,
            smallest: b"aa".to_vec(),
            largest: b"zz".to_vec(),
            note: b"note".to_vec(),
        }
    }

    fn encoded() -> Vec<u8> {
        let mut payload = Vec::new();
        properties().encode(&mut payload);
        payload
    }

    #[test]
    fn stored_bytes_are_fixed_and_come_back() {
        let payload = encoded();
        assert_eq!(payload[..14], *b"\x01\0\x08\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(payload[6 * 14..], *b"\x07\0\x02\0\0\0aa\x08\0\x02\0\0\0zz\x09\0\x04\0\0\0note");
        assert!(Properties::decode(&payload).unwrap() == properties());
    }

    #[test]
    fn unknown_fields_are_skipped_or_refused_by_their_tag() {
        let mut payload = encoded();
        put_field(&mut payload, 0x8001, b"later");
        assert!(Properties::decode(&payload).unwrap() == properties());
        let mut payload = encoded();
        put_field(&mut payload, 10, b"later");
        assert!(Properties::decode(&payload).is_err());
    }

    #[test]
    fn missing_doubled_and_cut_fields_are_refused() {
        let payload = encoded();
        for len in 0..payload.len() {
            assert!(Properties::decode(&payload[..len]).is_err(), "{len} bytes");
        }
        let doubled = [&payload[..14], &payload[..]].concat();
        assert!(Properties::decode(&doubled).is_err());
    }
}
