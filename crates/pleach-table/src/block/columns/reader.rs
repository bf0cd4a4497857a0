//! Reader of a columnar block. Keys that are numbers are found by a search without
//! branches. Other keys are found by tags, and sought by bisection.
//!
//! # Invariants
//! 1. *Ascending*: keys ascend strictly, and the line of keys has the error that it states. The builder ensures both; only
//!    `Sst::verify` checks them. A block that violates them under a good checksum hides keys, so that a reader may find an older
//!    version of one.
//!
//! # Cost
//! A search among 500 numbers takes 27 loads in four steps, or 12 in two if they are evenly spread. A pointer is one to three
//! loads. Symbols are packed and unpacked 16 at a time, without branches.

use std::cmp::Ordering;
use std::ops::Range;

use pleach_coding::bits::mask;
use pleach_coding::u16_at;

use super::Pointer;
use super::key_line::{big_endian, lowest_bytes, number_at_end, padded_number};
use super::layout::{Bases, ColumnLayout, PREFIX_AT, key_line};
use super::symbols::Sought;
use crate::block::view::{Entry, Suffix};
use crate::hash::tag_of;
use crate::value_kind::ValueKind;
use crate::value_place::ValuePlace;

/// Parts into which a step of the search among numbers divides its range. Measured: more take more loads, fewer more steps.
const WAYS: usize = 8;

/// A validated, uncompressed columnar block.
#[derive(Clone, Copy)]
pub(crate) struct ColumnBlock<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) layout: ColumnLayout,
}

impl<'a> ColumnBlock<'a> {
    /// The common prefix of all keys.
    #[inline]
    pub(crate) fn prefix(self) -> &'a [u8] {
        &self.bytes[PREFIX_AT..PREFIX_AT + self.layout.prefix_len()]
    }

    /// Entry `i`.
    #[inline]
    pub(crate) fn entry(self, i: usize) -> Entry {
        let (kind, value) = self.value(i);
        Entry { kind, suffix: self.suffix(i), value }
    }

    /// The key of entry `i` without the prefix.
    #[inline]
    fn suffix(self, i: usize) -> Suffix {
        if !self.layout.is_packed() {
            return Suffix::Block(self.key_place(i));
        }
        let len = self.layout.suffix_len();
        Suffix::Unpacked { bytes: self.layout.alphabet().unpack(self.number(i), len), len }
    }

    /// Kind and value of entry `i`.
    #[inline]
    fn value(self, i: usize) -> (ValueKind, ValuePlace) {
        if self.is_tombstone(i) {
            let end = self.layout.keys_at();
            return (ValueKind::Tombstone, ValuePlace::Block(end..end));
        }
        if self.layout.has_values() {
            let start = self.layout.records_at() + i * self.layout.value_len();
            return (ValueKind::Put, ValuePlace::Block(start..start + self.layout.value_len()));
        }
        (ValueKind::ValuePointer, ValuePlace::Pointer(self.pointer(i).encode()))
    }

    #[inline]
    fn is_tombstone(self, i: usize) -> bool {
        self.layout.has_tombstones() && self.bytes[self.layout.kinds_at() + i / 8] >> (i % 8) & 1 == 1
    }

    #[inline]
    fn pointer(self, i: usize) -> Pointer {
        let bases = Bases::of(self.bytes);
        let [segment_bits, offset_bits, len_bits] = self.layout.bits();
        let at = i * (segment_bits + offset_bits + len_bits) as usize;
        let segment = self.record_part(at, segment_bits);
        let distance = self.record_part(at + segment_bits as usize, offset_bits);
        let len = self.record_part(at + (segment_bits + offset_bits) as usize, len_bits);
        let number = u32::try_from(i).expect("counts have 16 bits");
        let on_line = bases.offset.wrapping_add(bases.stride.wrapping_mul(number));
        Pointer {
            segment: bases.segment + u64::from(segment),
            offset: on_line.wrapping_add(distance),
            len: bases.len.wrapping_add(len),
        }
    }

    /// `bits` bits from bit `at` of the records on, at most 32.
    #[inline]
    fn record_part(self, at: usize, bits: u32) -> u32 {
        if bits == 0 {
            return 0;
        }
        let byte = self.layout.records_at() + at / 8;
        let word = match self.bytes.get(byte..).and_then(<[u8]>::first_chunk) {
            Some(eight) => u64::from_le_bytes(*eight),
            None => last_word(&self.bytes[byte..]),
        };
        u32::try_from(word >> (at % 8) & mask(bits)).expect("at most 32 bits")
    }

    /// Where the key of entry `i` stands, without the prefix.
    #[inline]
    fn key_place(self, i: usize) -> Range<usize> {
        let (layout, keys_at) = (self.layout, self.layout.keys_at());
        if layout.varies() {
            let start =
                if i == 0 { 0 } else { usize::from(u16_at(self.bytes, layout.ends_at() + 2 * i - 2)) };
            return keys_at + start..keys_at + usize::from(u16_at(self.bytes, layout.ends_at() + 2 * i));
        }
        let start = keys_at + i * layout.key_width();
        start..start + layout.key_width()
    }

    /// The entry of `key`, whose hash is `hash`.
    #[inline]
    pub(crate) fn find(self, key: &[u8], hash: u64) -> Option<(ValueKind, ValuePlace)> {
        self.rank(key, hash).map(|i| self.value(i))
    }

    /// Number of the entry of `key`.
    #[inline]
    pub(crate) fn rank(self, key: &[u8], hash: u64) -> Option<usize> {
        if self.layout.has_numbers() { self.rank_of_number(key) } else { self.rank_by_tag(key, hash) }
    }

    #[inline]
    fn rank_by_tag(self, key: &[u8], hash: u64) -> Option<usize> {
        let (prefix, suffix) = key.split_at_checked(self.layout.prefix_len())?;
        let tags = &self.bytes[self.layout.tags_at()..self.layout.ends_at()];
        memchr::memchr_iter(tag_of(hash), tags)
            .find(|&i| suffix == &self.bytes[self.key_place(i)] && prefix == self.prefix())
    }

    #[inline]
    fn rank_of_number(self, key: &[u8]) -> Option<usize> {
        let (prefix_len, suffix_len) = (self.layout.prefix_len(), self.layout.suffix_len());
        if key.len() != prefix_len + suffix_len {
            return None;
        }
        let number = if self.layout.is_packed() {
            self.layout.alphabet().pack(&key[prefix_len..])?
        } else {
            number_at_end(key, suffix_len)
        };
        let i = self.last_not_above(number);
        (self.number(i) == number && key[..prefix_len] == *self.prefix()).then_some(i)
    }

    /// The last entry whose number is not above `number`, or 0. It is near the place that the line of keys gives.
    ///
    /// Each step compares seven entries at once and keeps an eighth of the range. No branch depends on the keys, and the loads
    /// of a step wait for memory together.
    #[inline]
    fn last_not_above(self, number: u64) -> usize {
        let (mut base, mut size) = self.range_of(number);
        while size >= WAYS {
            let part = size / WAYS;
            let passed: usize = (1..WAYS).map(|k| usize::from(self.number(base + k * part) <= number)).sum();
            base += passed * part;
            size -= (WAYS - 1) * part;
        }
        base + (1..size).map(|k| usize::from(self.number(base + k) <= number)).sum::<usize>()
    }

    /// The first entry and the number of those among which [`ColumnBlock::last_not_above`] is.
    #[inline]
    fn range_of(self, number: u64) -> (usize, usize) {
        let (line, end) = (key_line(self.bytes), self.layout.count() - 1);
        let place = line.place(number.saturating_sub(self.number(0))).min(end);
        let error = usize::from(line.error);
        let low = place.saturating_sub(error + 1);
        (low, (place + error).min(end) - low + 1)
    }

    /// Number of entries whose keys are below `key`, which begins with the prefix, if keys are numbers.
    #[inline]
    pub(crate) fn lower_bound(self, key: &[u8]) -> Option<usize> {
        if !self.layout.has_numbers() {
            return None;
        }
        let sought = self.sought(&key[self.layout.prefix_len()..]);
        let i = self.last_not_above(sought.number);
        let order = self.number(i).cmp(&sought.number).then(sought.of_equal);
        Some(if order == Ordering::Less { i + 1 } else { i })
    }

    /// Where `suffix` lies among the numbers.
    #[inline]
    fn sought(self, suffix: &[u8]) -> Sought {
        let len = self.layout.suffix_len();
        if self.layout.is_packed() {
            return self.layout.alphabet().seek(suffix, len);
        }
        Sought { number: padded_number(suffix, len), of_equal: len.cmp(&suffix.len()) }
    }

    /// The key of entry `i` behind the prefix, as a number. Requires: keys are numbers.
    #[inline]
    fn number(self, i: usize) -> u64 {
        let len = self.layout.key_width();
        let end = self.layout.keys_at() + (i + 1) * len;
        // There are eight bytes before the end: those of the header, at least.
        let eight = self.bytes[..end].last_chunk().expect("a header has 16 bytes");
        big_endian(*eight) & lowest_bytes(len)
    }

    /// The order of the key of entry `i` and of `key`, which begins with the prefix. Requires: keys are not numbers.
    #[inline]
    pub(crate) fn compare(self, i: usize, key: &[u8]) -> Ordering {
        self.bytes[self.key_place(i)].cmp(&key[self.layout.prefix_len()..])
    }

    /// Where a lookup reads first.
    #[inline]
    pub(crate) fn first_place(self) -> usize {
        let layout = self.layout;
        if layout.has_numbers() { self.key_start(layout.count() / 2) } else { layout.tags_at() }
    }

    /// Where the key of entry `i` begins, without the prefix.
    #[inline]
    pub(crate) fn key_start(self, i: usize) -> usize {
        self.key_place(i).start
    }
}

/// The bytes of a number of which there are fewer than eight.
#[cold]
fn last_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
