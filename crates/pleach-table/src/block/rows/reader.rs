//! Reader of a block in rows: lookups by tag, seeks by binary search.
//!
//! # Invariants
//! 1. *Packed*: entry 0 begins where the offsets end, entry i + 1 where entry i ends, the last ends with the payload.
//!    Checked by [`validate`].
//! 2. *Ascending*: keys ascend strictly. The builder ensures it; only `Sst::verify` checks it. A block that violates it under
//!    a good checksum hides keys, so that a reader may find an older version of one.

use std::cmp::Ordering;
use std::ops::Range;

use pleach_coding::{take_varint_u32, u16_at};

use crate::block::view::{Entry, Suffix};
use crate::hash::tag_of;
use crate::sizes::HEADER_LEN;
use crate::value_kind::ValueKind;
use crate::value_place::ValuePlace;

pub(crate) use validate::validate;

/// Where the parts of a block in rows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowLayout {
    count: usize,
    prefix_len: usize,
}

/// Bytes before the prefix: header and prefix length.
const PREFIX_AT: usize = HEADER_LEN + 2;

impl RowLayout {
    /// Of a block that has been validated.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { count: usize::from(u16_at(bytes, 6)), prefix_len: usize::from(u16_at(bytes, HEADER_LEN)) }
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn count(self) -> usize {
        self.count
    }

    #[inline]
    fn tags_at(self) -> usize {
        PREFIX_AT + self.prefix_len
    }

    #[inline]
    fn offsets_at(self) -> usize {
        self.tags_at() + self.count
    }

    #[inline]
    fn entries_at(self) -> usize {
        self.offsets_at() + 2 * self.count
    }
}

/// A validated, uncompressed block in rows.
#[derive(Clone, Copy)]
pub(crate) struct RowBlock<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) layout: RowLayout,
}

impl<'a> RowBlock<'a> {
    /// The common prefix of all keys.
    #[inline]
    pub(crate) fn prefix(self) -> &'a [u8] {
        &self.bytes[PREFIX_AT..PREFIX_AT + self.layout.prefix_len]
    }

    /// Entry `i`.
    #[inline]
    pub(crate) fn entry(self, i: usize) -> Entry {
        self.row(i).into()
    }

    #[inline]
    fn row(self, i: usize) -> Row {
        decode_row(self.bytes, self.entry_start(i)).expect("validated when the block was admitted")
    }

    /// The key of entry `i` without the block's prefix.
    #[inline]
    fn suffix(self, i: usize) -> &'a [u8] {
        let rest = &self.bytes[self.entry_start(i)..];
        let suffix = take_varint_u32(rest).and_then(|(len, first)| {
            let (_, second) = take_varint_u32(rest.get(first..)?)?;
            rest.get(first + second..)?.get(..len as usize)
        });
        suffix.expect("validated when the block was admitted")
    }

    /// Where entry `i` begins.
    #[inline]
    pub(crate) fn entry_start(self, i: usize) -> usize {
        self.layout.entries_at() + usize::from(u16_at(self.bytes, self.layout.offsets_at() + 2 * i))
    }

    /// Whether the tag of entry `i` is that of this hash.
    pub(crate) fn is_tagged(self, i: usize, hash: u64) -> bool {
        self.bytes[self.layout.tags_at() + i] == tag_of(hash)
    }

    /// Where the tags begin.
    #[inline]
    pub(crate) fn tags_at(self) -> usize {
        self.layout.tags_at()
    }

    /// Kind and value of `key`, by its hash's tag.
    #[inline]
    pub(crate) fn find(self, key: &[u8], hash: u64) -> Option<(ValueKind, ValuePlace)> {
        let tags = &self.bytes[self.layout.tags_at()..self.layout.offsets_at()];
        for i in memchr::memchr_iter(tag_of(hash), tags) {
            let row = self.row(i);
            if key.len() == self.layout.prefix_len + row.suffix.len() {
                let (prefix, suffix) = key.split_at(self.layout.prefix_len);
                if suffix == &self.bytes[row.suffix] && prefix == self.prefix() {
                    return Some((row.kind, ValuePlace::Block(row.value)));
                }
            }
        }
        None
    }

    /// The entry behind the one whose value ends at `end`. Requires: there is one.
    #[inline]
    pub(crate) fn entry_behind(self, end: usize) -> Entry {
        decode_row(self.bytes, end).expect("validated when the block was admitted").into()
    }

    /// The order of the key of entry `i` and of `key`, which begins with the prefix.
    #[inline]
    pub(crate) fn compare(self, i: usize, key: &[u8]) -> Ordering {
        self.suffix(i).cmp(&key[self.layout.prefix_len..])
    }
}

/// An entry's parts, as positions in the block.
struct Row {
    kind: ValueKind,
    suffix: Range<usize>,
    value: Range<usize>,
}

impl From<Row> for Entry {
    #[inline]
    fn from(row: Row) -> Self {
        Self { kind: row.kind, suffix: Suffix::Block(row.suffix), value: ValuePlace::Block(row.value) }
    }
}

/// The entry at `at`, if all of it is inside `bytes`.
#[inline]
fn decode_row(bytes: &[u8], at: usize) -> Option<Row> {
    let rest = bytes.get(at..)?;
    let (suffix_len, first) = take_varint_u32(rest)?;
    let (value_word, second) = take_varint_u32(rest.get(first..)?)?;
    let kind = ValueKind::from_number((value_word & 3) as u8)?;
    let suffix_at = at + first + second;
    let value_at = suffix_at + suffix_len as usize;
    let end = value_at + (value_word >> 2) as usize;
    (end <= bytes.len()).then_some(Row { kind, suffix: suffix_at..value_at, value: value_at..end })
}

mod validate {
    //! Validation of a block before it is used.

    #![deny(clippy::indexing_slicing)]

    use pleach_coding::Malformed;

    use super::{PREFIX_AT, RowLayout, decode_row};
    use crate::block::header::Header;
    use crate::sizes::{HEADER_LEN, KEY_LEN_MAX, VALUE_LEN_MAX};

    /// Checks all lengths and offsets of an uncompressed data block; `header` is its own, already checked.
    pub(crate) fn validate(bytes: &[u8], header: &Header) -> Result<(), Malformed> {
        let payload_end = HEADER_LEN + header.raw_len as usize;
        let bytes = bytes.get(..payload_end).ok_or(Malformed::new(8, "a payload within the block"))?;
        let prefix_len = bytes.get(HEADER_LEN..).and_then(|p| p.first_chunk::<2>());
        let prefix_len =
            u16::from_le_bytes(*prefix_len.ok_or(Malformed::new(HEADER_LEN, "a prefix length"))?);
        let layout = RowLayout { count: usize::from(header.count), prefix_len: usize::from(prefix_len) };
        if layout.count == 0 {
            return Err(Malformed::new(6, "at least one entry"));
        }
        let offsets = bytes
            .get(layout.offsets_at()..layout.entries_at())
            .ok_or(Malformed::new(PREFIX_AT, "prefix, tags and offsets within the payload"))?;
        let mut at = layout.entries_at();
        for offset in offsets.as_chunks::<2>().0 {
            // Decoded where the offset says, not at the end of the entry before: so the processor decodes several at once.
            let start = layout.entries_at() + usize::from(u16::from_le_bytes(*offset));
            if start != at {
                return Err(Malformed::new(layout.offsets_at(), "offsets of packed entries"));
            }
            let row = decode_row(bytes, start).ok_or(Malformed::new(at, "an entry within the payload"))?;
            let key_len = layout.prefix_len + row.suffix.len();
            if key_len > KEY_LEN_MAX || row.value.len() > VALUE_LEN_MAX {
                return Err(Malformed::new(at, "lengths of a key and a value within their limits"));
            }
            at = row.value.end;
        }
        if at != payload_end {
            return Err(Malformed::new(at, "the end of the payload"));
        }
        Ok(())
    }
}
