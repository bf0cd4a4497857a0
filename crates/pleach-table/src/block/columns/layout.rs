//! Where the parts of a columnar block begin.

use pleach_coding::{u16_at, u32_at, u64_at};

use super::key_line::{KeyLine, NUMBER_LEN_MAX};
use super::symbols::{Alphabet, SYMBOLS_MAX};
use crate::sizes::HEADER_LEN;

/// Bytes of the payload in front of the prefix.
pub(super) const FIXED_LEN: usize = 36;
/// Where the prefix begins in a block.
pub(super) const PREFIX_AT: usize = HEADER_LEN + FIXED_LEN;

/// Flag: the parts of keys behind the prefix differ in length.
pub(super) const VARIES: u8 = 1;
/// Flag: some entries are tombstones.
pub(super) const HAS_TOMBSTONES: u8 = 2;
/// Flag: entries are puts of one length, not value pointers.
pub(super) const HAS_VALUES: u8 = 4;
/// Flag: keys are packed symbols.
pub(super) const PACKED: u8 = 8;

/// The layout: counts and lengths, all of which follow from the fixed part and the offsets of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnLayout {
    count: u32,
    prefix_len: u32,
    /// Bytes of each key behind the prefix, if they do not vary.
    suffix_len: u32,
    flags: u8,
    /// If keys are packed.
    alphabet: Alphabet,
    /// Of segment, offset and length in a record.
    bits: [u8; 3],
    /// Bytes of each value; 0 if entries are value pointers.
    value_len: u32,
    keys_at: u32,
    records_at: u32,
}

/// The bases of pointers.
pub(super) struct Bases {
    pub(super) segment: u64,
    pub(super) offset: u32,
    pub(super) stride: u32,
    pub(super) len: u32,
}

impl Bases {
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            segment: u64_at(bytes, HEADER_LEN + 8),
            offset: u32_at(bytes, HEADER_LEN + 16),
            stride: u32_at(bytes, HEADER_LEN + 20),
            len: u32_at(bytes, HEADER_LEN + 24),
        }
    }

    /// Whether one of them that only pointers need is not 0.
    pub(super) fn has_pointers(&self) -> bool {
        self.segment != 0 || self.offset != 0 || self.stride != 0
    }
}

/// The line of keys; zeros if keys are not numbers.
#[inline]
pub(super) fn key_line(bytes: &[u8]) -> KeyLine {
    KeyLine {
        slope: u32_at(bytes, HEADER_LEN + 28),
        error: u16_at(bytes, HEADER_LEN + 32),
        shift: bytes[HEADER_LEN + 34],
    }
}

impl ColumnLayout {
    /// Of a block whose bytes reach to its keys.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut layout = Self::of_fixed_part(bytes);
        let keys_len = if layout.varies() {
            u32::from(u16_at(bytes, layout.ends_at() + 2 * (layout.count() - 1)))
        } else {
            layout.count * layout.width()
        };
        layout.records_at = layout.keys_at + keys_len;
        layout
    }

    /// Of a block with a whole fixed part; where records begin is not known yet. An alphabet behind its end is zeros.
    #[inline]
    pub(super) fn of_fixed_part(bytes: &[u8]) -> Self {
        let mut layout = Self {
            alphabet: Alphabet::default(),
            value_len: 0,
            count: u16_at(bytes, 6).into(),
            prefix_len: u16_at(bytes, HEADER_LEN).into(),
            suffix_len: u16_at(bytes, HEADER_LEN + 2).into(),
            flags: bytes[HEADER_LEN + 4],
            bits: [bytes[HEADER_LEN + 5], bytes[HEADER_LEN + 6], bytes[HEADER_LEN + 7]],
            keys_at: 0,
            records_at: 0,
        };
        if layout.is_packed() {
            let alphabet = bytes.get(PREFIX_AT + layout.prefix_len()..).and_then(<[u8]>::first_chunk);
            layout.alphabet = alphabet.map_or(Alphabet::default(), |bytes| Alphabet::decode(*bytes));
        }
        if layout.has_values() {
            layout.value_len = Bases::of(bytes).len;
        }
        let kinds_len = if layout.has_tombstones() { layout.count.div_ceil(8) } else { 0 };
        layout.keys_at = u32::try_from(layout.kinds_at()).expect("a few times 2^16") + kinds_len;
        layout
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn count(self) -> usize {
        self.count as usize
    }

    #[inline]
    pub(super) fn flags(self) -> u8 {
        self.flags
    }

    #[inline]
    pub(super) fn varies(self) -> bool {
        self.flags & VARIES != 0
    }

    #[inline]
    pub(super) fn has_tombstones(self) -> bool {
        self.flags & HAS_TOMBSTONES != 0
    }

    /// Whether entries have values of their own.
    #[inline]
    pub(super) fn has_values(self) -> bool {
        self.flags & HAS_VALUES != 0
    }

    #[inline]
    pub(super) fn is_packed(self) -> bool {
        self.flags & PACKED != 0
    }

    /// Whether keys are searched as numbers, so that they need no tags.
    #[inline]
    pub(super) fn has_numbers(self) -> bool {
        are_numbers(self.varies(), self.key_width())
    }

    #[inline]
    pub(super) fn alphabet(self) -> Alphabet {
        self.alphabet
    }

    #[inline]
    pub(super) fn value_len(self) -> usize {
        self.value_len as usize
    }

    #[inline]
    fn width(self) -> u32 {
        if self.is_packed() { self.suffix_len.div_ceil(2) } else { self.suffix_len }
    }

    /// Bytes that each key takes behind the prefix, if they do not vary.
    #[inline]
    pub(super) fn key_width(self) -> usize {
        self.width() as usize
    }

    #[inline]
    pub(super) fn prefix_len(self) -> usize {
        self.prefix_len as usize
    }

    #[inline]
    pub(super) fn suffix_len(self) -> usize {
        self.suffix_len as usize
    }

    /// Bits of segment, offset and length in a record.
    #[inline]
    pub(super) fn bits(self) -> [u32; 3] {
        self.bits.map(u32::from)
    }

    #[inline]
    pub(super) fn tags_at(self) -> usize {
        PREFIX_AT + self.prefix_len() + if self.is_packed() { Alphabet::LEN } else { 0 }
    }

    #[inline]
    pub(super) fn ends_at(self) -> usize {
        self.tags_at() + if self.has_numbers() { 0 } else { self.count() }
    }

    #[inline]
    pub(super) fn kinds_at(self) -> usize {
        self.ends_at() + if self.varies() { 2 * self.count() } else { 0 }
    }

    #[inline]
    pub(super) fn keys_at(self) -> usize {
        self.keys_at as usize
    }

    #[inline]
    pub(super) fn records_at(self) -> usize {
        self.records_at as usize
    }
}

/// Whether keys are searched as numbers, if each takes `width` bytes.
#[inline]
pub(super) fn are_numbers(varies: bool, width: usize) -> bool {
    !varies && width <= NUMBER_LEN_MAX
}

/// Whether keys of so many symbols are packed: one symbol gains nothing.
#[inline]
pub(super) fn is_packable(suffix_len: usize) -> bool {
    (2..=SYMBOLS_MAX).contains(&suffix_len)
}
