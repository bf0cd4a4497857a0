//! Validation of a columnar block before it is used.

#![deny(clippy::indexing_slicing)]

use pleach_coding::{Malformed, bits};

use super::key_line::KeyLine;
use super::layout::{
    Bases, ColumnLayout, FIXED_LEN, HAS_TOMBSTONES, HAS_VALUES, PACKED, PREFIX_AT, VARIES, is_packable,
    key_line,
};
use super::{BITS_MAX, SEGMENT_END};
use crate::block::header::{BlockType, Header};
use crate::sizes::{HEADER_LEN, KEY_LEN_MAX};

/// Checks all counts, widths, lengths and offsets of an uncompressed columnar block; `header` is its own, already checked.
pub(crate) fn validate(bytes: &[u8], header: &Header) -> Result<(), Malformed> {
    let payload_end = HEADER_LEN + header.raw_len as usize;
    let bytes = bytes.get(..payload_end).ok_or(Malformed::new(8, "a payload within the block"))?;
    if (header.raw_len as usize) < FIXED_LEN {
        return Err(Malformed::new(HEADER_LEN, "the fixed part of a columnar block"));
    }
    if header.count == 0 {
        return Err(Malformed::new(6, "at least one entry"));
    }
    let layout = ColumnLayout::of_fixed_part(bytes);
    check_fixed_part(bytes, header.block_type, layout)?;
    if layout.keys_at() > payload_end {
        return Err(Malformed::new(PREFIX_AT, "prefix, tags, ends and kinds within the payload"));
    }
    let alphabet_at = PREFIX_AT + layout.prefix_len();
    if layout.is_packed() && !layout.alphabet().is_possible() {
        return Err(Malformed::new(alphabet_at, "16 symbols that ascend"));
    }
    if layout.is_packed() && bytes.get(alphabet_at + 3) != Some(&0) {
        return Err(Malformed::new(alphabet_at + 3, "a reserved byte of zero"));
    }
    let records_at = layout.keys_at() + check_keys(bytes, layout)?;
    let record_bits = layout.bits().iter().map(|&bits| u64::from(bits)).sum::<u64>();
    let records_bits = u64::from(header.count) * (record_bits + 8 * layout.value_len() as u64);
    if records_at as u64 + records_bits.div_ceil(8) != payload_end as u64 {
        return Err(Malformed::new(records_at, "records or values that end with the payload"));
    }
    let kinds = if layout.has_tombstones() { bytes.get(layout.kinds_at()..layout.keys_at()) } else { None };
    if !bits::are_last_bits_zero(kinds.unwrap_or_default(), header.count.into())
        || !bits::are_last_bits_zero(bytes.get(records_at..).unwrap_or_default(), records_bits)
    {
        return Err(Malformed::new(layout.kinds_at(), "zero bits behind kinds and records"));
    }
    Ok(())
}

fn check_fixed_part(bytes: &[u8], block_type: BlockType, layout: ColumnLayout) -> Result<(), Malformed> {
    let (bases, line) = (Bases::of(bytes), key_line(bytes));
    let last_byte = bytes.get(PREFIX_AT - 1).copied().unwrap_or_default();
    let packed = if block_type == BlockType::PackedColumns { HAS_VALUES | PACKED } else { 0 };
    if layout.flags() & !(VARIES | HAS_TOMBSTONES | packed) != 0 {
        return Err(
            Malformed::new(HEADER_LEN + 4, "flags that belong to the block's type").found(layout.flags())
        );
    }
    if layout.varies() && layout.suffix_len() != 0 {
        return Err(Malformed::new(HEADER_LEN + 2, "no length of keys that vary"));
    }
    if layout.is_packed() && (layout.varies() || !is_packable(layout.suffix_len())) {
        return Err(Malformed::new(HEADER_LEN + 2, "as many symbols in each key as a number has"));
    }
    if layout.has_values() && (layout.bits() != [0; 3] || bases.has_pointers()) {
        return Err(Malformed::new(HEADER_LEN + 5, "no pointers beside values"));
    }
    if layout.bits().iter().any(|&bits| bits > BITS_MAX) {
        return Err(Malformed::new(HEADER_LEN + 5, "parts of a record of at most 32 bits"));
    }
    if line.shift >= 64 || last_byte != 0 || (line != KeyLine::default() && !layout.has_numbers()) {
        return Err(Malformed::new(HEADER_LEN + 28, "a line of keys with a shift below 64, or zeros"));
    }
    if bases.segment >= SEGMENT_END {
        return Err(Malformed::new(HEADER_LEN + 8, "a segment below 2^63"));
    }
    Ok(())
}

/// Checks the lengths of keys; `bytes` reach to the first one. Returns the length of all of them, without the prefix.
fn check_keys(bytes: &[u8], layout: ColumnLayout) -> Result<usize, Malformed> {
    let is_possible = |suffix_len: usize| layout.prefix_len() + suffix_len <= KEY_LEN_MAX;
    let wrong_len = Malformed::new(HEADER_LEN, "lengths of keys within their limits");
    if !layout.varies() {
        let suffix_len = layout.suffix_len();
        return if is_possible(suffix_len) {
            Ok(layout.count() * layout.key_width())
        } else {
            Err(wrong_len)
        };
    }
    let ends = bytes.get(layout.ends_at()..layout.kinds_at()).unwrap_or_default();
    let mut start = 0;
    for end in ends.as_chunks::<2>().0 {
        let end = usize::from(u16::from_le_bytes(*end));
        let len = end.checked_sub(start).ok_or(Malformed::new(layout.ends_at(), "ends that ascend"))?;
        if !is_possible(len) {
            return Err(wrong_len);
        }
        start = end;
    }
    Ok(start)
}
