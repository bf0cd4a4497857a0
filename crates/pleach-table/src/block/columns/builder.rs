//! Encoding of columnar blocks.

use pleach_coding::common_prefix_len;

use super::Pointer;
use super::key_line::{KeyLine, number_at_end};
use super::layout::{HAS_TOMBSTONES, VARIES, are_numbers};
use super::shape::{Line, Shape};
use crate::block::rows::PREFIX_LEN_MAX;
use crate::block::waiting::{Apart, WaitingEntries};

/// Appends the payload of a columnar block of the first `entries`.
///
/// Requires: `shape` is that of these entries, or of some more behind them.
pub(crate) fn encode(waiting: &WaitingEntries, entries: usize, shape: &Shape, out: &mut Vec<u8>) {
    let first = waiting.key(0);
    let prefix_len = common_prefix_len(first, waiting.key(entries - 1)).min(PREFIX_LEN_MAX);
    put_fixed_part(first.len() - prefix_len, prefix_len, shape, out);
    put_key_line(waiting, entries, prefix_len, shape, out);
    put_keys(waiting, entries, prefix_len, shape, out);
    put_records(waiting, entries, shape, out);
}

fn put_fixed_part(suffix_len: usize, prefix_len: usize, shape: &Shape, out: &mut Vec<u8>) {
    let sixteen = |len: usize| u16::try_from(len).expect("a prefix, or a part of a block").to_le_bytes();
    let (varies, line) = (shape.keys_vary(), shape.best_line());
    out.extend_from_slice(&sixteen(prefix_len));
    out.extend_from_slice(&sixteen(if varies { 0 } else { suffix_len }));
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    out.push(flag(varies, VARIES) | flag(shape.has_tombstones(), HAS_TOMBSTONES));
    out.extend(shape.bits().map(|bits| u8::try_from(bits).expect("at most 32")));
    out.extend_from_slice(&shape.segment_min().to_le_bytes());
    out.extend_from_slice(&low_word(line.distance_min()).to_le_bytes());
    out.extend_from_slice(&low_word(line.stride()).to_le_bytes());
    out.extend_from_slice(&shape.len_min().to_le_bytes());
}

/// Appends the line of keys.
fn put_key_line(
    waiting: &WaitingEntries,
    entries: usize,
    prefix_len: usize,
    shape: &Shape,
    out: &mut Vec<u8>,
) {
    let number_len = waiting.key(0).len() - prefix_len;
    let line = if are_numbers(shape.keys_vary(), number_len) {
        let number = |i| number_at_end(waiting.key(i), number_len);
        KeyLine::fit(entries, (0..entries).map(number), number(entries - 1))
    } else {
        KeyLine::default()
    };
    out.extend_from_slice(&line.slope.to_le_bytes());
    out.extend_from_slice(&line.error.to_le_bytes());
    out.extend_from_slice(&[line.shift, 0]);
}

/// The lowest 32 bits: readers compute offsets modulo 2^32.
fn low_word(number: i64) -> u32 {
    u32::try_from(number & i64::from(u32::MAX)).expect("32 bits")
}

/// Appends prefix, tags, ends of keys, kinds and keys.
fn put_keys(waiting: &WaitingEntries, entries: usize, prefix_len: usize, shape: &Shape, out: &mut Vec<u8>) {
    let first = waiting.key(0);
    out.extend_from_slice(&first[..prefix_len]);
    if !are_numbers(shape.keys_vary(), first.len() - prefix_len) {
        out.extend(waiting.first(entries).iter().map(|entry| entry.tag));
    }
    let suffixes = (0..entries).map(|i| &waiting.key(i)[prefix_len..]);
    if shape.keys_vary() {
        let mut end = 0;
        for suffix in suffixes.clone() {
            end += suffix.len();
            out.extend_from_slice(&u16::try_from(end).expect("a part of a block").to_le_bytes());
        }
    }
    if shape.has_tombstones() {
        put_kinds(waiting, entries, out);
    }
    suffixes.for_each(|suffix| out.extend_from_slice(suffix));
}

fn put_kinds(waiting: &WaitingEntries, entries: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + entries.div_ceil(8), 0);
    for i in (0..entries).filter(|&i| waiting.apart(i) == Some(Apart::Tombstone)) {
        out[start + i / 8] |= 1 << (i % 8);
    }
}

fn put_records(waiting: &WaitingEntries, entries: usize, shape: &Shape, out: &mut Vec<u8>) {
    let bits = shape.bits();
    if bits == [0; 3] {
        return;
    }
    let line = shape.best_line();
    let mut records = Records { out, word: 0, bits: 0 };
    for at in 0..entries {
        let parts = match waiting.apart(at) {
            Some(Apart::Pointer(pointer)) => shape.parts(&line, at, pointer),
            _ => [0; 3],
        };
        for (part, bits) in parts.into_iter().zip(bits) {
            records.push(part, bits);
        }
    }
    records.finish();
}

impl Shape {
    /// What a record has of segment, offset and length of entry `at`.
    #[inline]
    fn parts(&self, line: &Line, at: usize, pointer: Pointer) -> [u64; 3] {
        let distance = line.distance(Line::place(at, pointer)) - line.distance_min();
        let segment = pointer.segment - self.segment_min();
        [segment, distance.cast_unsigned(), u64::from(pointer.len - self.len_min())]
    }
}

/// Records being appended, the lowest bit first. They go to the block word by word, without memory of their own.
struct Records<'o> {
    out: &'o mut Vec<u8>,
    word: u64,
    /// Bits in `word`: below 32 between calls.
    bits: u32,
}

impl Records<'_> {
    /// Appends a number of at most 32 bits.
    #[inline]
    fn push(&mut self, number: u64, bits: u32) {
        self.word |= number << self.bits;
        self.bits += bits;
        if self.bits >= 32 {
            self.out.extend_from_slice(&self.word.to_le_bytes()[..4]);
            self.word >>= 32;
            self.bits -= 32;
        }
    }

    /// Appends the last bits, with zeros up to a whole byte.
    fn finish(self) {
        self.out.extend_from_slice(&self.word.to_le_bytes()[..self.bits.div_ceil(8) as usize]);
    }
}
