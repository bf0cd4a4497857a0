//! Encoding of columnar blocks.

use pleach_coding::common_prefix_len;

use super::Pointer;
use super::key_line::{KeyLine, NUMBER_LEN_MAX, number_at_end};
use super::key_shape::KeyForm;
use super::layout::{HAS_TOMBSTONES, HAS_VALUES, PACKED, VARIES};
use super::shape::{Line, Pointers, Shape};
use crate::block::header::BlockType;
use crate::block::rows::PREFIX_LEN_MAX;
use crate::block::waiting::{Apart, WaitingEntries};

/// Appends the payload of a columnar block of the first `entries`, and returns its type.
///
/// Requires: `shape` is that of these entries, or of some more behind them.
pub(crate) fn encode(
    waiting: &WaitingEntries,
    entries: usize,
    shape: &Shape,
    out: &mut Vec<u8>,
) -> BlockType {
    let first = waiting.key(0);
    let prefix_len = common_prefix_len(first, waiting.key(entries - 1)).min(PREFIX_LEN_MAX);
    let keys = Keys { waiting, entries, prefix_len, form: shape.key_form(prefix_len) };
    let flags = flags_of(&keys, shape);
    put_fixed_part(&keys, flags, shape, out);
    let line = keys.line();
    out.extend_from_slice(&line.slope.to_le_bytes());
    out.extend_from_slice(&line.error.to_le_bytes());
    out.extend_from_slice(&[line.shift, 0]);
    out.extend_from_slice(&first[..prefix_len]);
    keys.put_tags_and_ends(out);
    if shape.has_tombstones() {
        put_kinds(waiting, entries, out);
    }
    keys.put(out);
    match shape.value_len() {
        Some(len) => put_values(waiting, entries, len, out),
        None => put_records(waiting, entries, shape, out),
    }
    if flags & (HAS_VALUES | PACKED) == 0 { BlockType::Columns } else { BlockType::PackedColumns }
}

fn flags_of(keys: &Keys<'_>, shape: &Shape) -> u8 {
    let flags = [
        (keys.form == KeyForm::Varying, VARIES),
        (shape.has_tombstones(), HAS_TOMBSTONES),
        (shape.value_len().is_some(), HAS_VALUES),
        (matches!(keys.form, KeyForm::Packed(..)), PACKED),
    ];
    flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
}

fn put_fixed_part(keys: &Keys<'_>, flags: u8, shape: &Shape, out: &mut Vec<u8>) {
    let sixteen = |len: usize| u16::try_from(len).expect("a prefix, or a part of a block").to_le_bytes();
    let suffix_len = match keys.form {
        KeyForm::Varying => 0,
        KeyForm::Fixed(len) | KeyForm::Packed(_, len) => len,
    };
    out.extend_from_slice(&sixteen(keys.prefix_len));
    out.extend_from_slice(&sixteen(suffix_len));
    out.push(flags);
    let pointers = shape.pointers();
    let bits = pointers.map_or([0; 3], Pointers::bits);
    out.extend(bits.map(|bits| u8::try_from(bits).expect("at most 32")));
    out.extend_from_slice(&pointers.map_or(0, Pointers::segment_min).to_le_bytes());
    let line = pointers.map(Pointers::best_line);
    out.extend_from_slice(&low_word(line.map_or(0, |line| line.distance_min())).to_le_bytes());
    out.extend_from_slice(&low_word(line.map_or(0, |line| line.stride())).to_le_bytes());
    let value_len = shape.value_len().map(|len| u32::try_from(len).expect("a part of a block"));
    out.extend_from_slice(&pointers.map_or(value_len.unwrap_or(0), Pointers::len_min).to_le_bytes());
}

/// The keys of a block.
struct Keys<'w> {
    waiting: &'w WaitingEntries,
    entries: usize,
    prefix_len: usize,
    form: KeyForm,
}

impl Keys<'_> {
    fn suffix(&self, i: usize) -> &[u8] {
        &self.waiting.key(i)[self.prefix_len..]
    }

    /// The number of key `i`. Requires: keys are numbers.
    fn number(&self, i: usize) -> u64 {
        match self.form {
            KeyForm::Packed(alphabet, _) => {
                alphabet.pack(self.suffix(i)).expect("the alphabet of the block's keys")
            }
            form => number_at_end(self.waiting.key(i), form.width()),
        }
    }

    /// Their line; zeros if they are not numbers.
    fn line(&self) -> KeyLine {
        if !self.form.has_numbers() {
            return KeyLine::default();
        }
        KeyLine::fit(self.entries, (0..self.entries).map(|i| self.number(i)), self.number(self.entries - 1))
    }

    /// Appends what stands between the prefix and the kinds.
    fn put_tags_and_ends(&self, out: &mut Vec<u8>) {
        if let KeyForm::Packed(alphabet, _) = self.form {
            out.extend_from_slice(&alphabet.encode());
        }
        if !self.form.has_numbers() {
            out.extend(self.waiting.first(self.entries).iter().map(|entry| entry.tag));
        }
        if self.form == KeyForm::Varying {
            let mut end = 0;
            for i in 0..self.entries {
                end += self.suffix(i).len();
                out.extend_from_slice(&u16::try_from(end).expect("a part of a block").to_le_bytes());
            }
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let width = self.form.width();
        for i in 0..self.entries {
            match self.form {
                KeyForm::Packed(..) => {
                    let bytes = self.number(i).swap_bytes().to_le_bytes();
                    out.extend_from_slice(&bytes[NUMBER_LEN_MAX - width..]);
                }
                _ => out.extend_from_slice(self.suffix(i)),
            }
        }
    }
}

/// The lowest 32 bits: readers compute offsets modulo 2^32.
fn low_word(number: i64) -> u32 {
    u32::try_from(number & i64::from(u32::MAX)).expect("32 bits")
}

fn put_kinds(waiting: &WaitingEntries, entries: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + entries.div_ceil(8), 0);
    for i in (0..entries).filter(|&i| waiting.apart(i) == Some(Apart::Tombstone)) {
        out[start + i / 8] |= 1 << (i % 8);
    }
}

/// Appends the values, zeros for tombstones.
fn put_values(waiting: &WaitingEntries, entries: usize, len: usize, out: &mut Vec<u8>) {
    for i in 0..entries {
        let end = out.len() + len;
        out.extend_from_slice(waiting.value(i));
        out.resize(end, 0);
    }
}

fn put_records(waiting: &WaitingEntries, entries: usize, shape: &Shape, out: &mut Vec<u8>) {
    let Some(pointers) = shape.pointers().filter(|pointers| pointers.bits() != [0; 3]) else { return };
    let (line, bits) = (pointers.best_line(), pointers.bits());
    let mut records = Records { out, word: 0, bits: 0 };
    for at in 0..entries {
        let parts = match waiting.apart(at) {
            Some(Apart::Pointer(pointer)) => pointers.parts(&line, at, pointer),
            _ => [0; 3],
        };
        for (part, bits) in parts.into_iter().zip(bits) {
            records.push(part, bits);
        }
    }
    records.finish();
}

impl Pointers {
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
