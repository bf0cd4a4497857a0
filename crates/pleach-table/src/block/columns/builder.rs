//! Encoding of columnar blocks, and their length entry by entry.
//!
//! Offsets are stored as differences from a line. Three lines are tried: a constant, the line through the first two pointers,
//! and the slope of the block before. When the block is encoded, its own mean slope is tried too. So the length that
//! [`block_len`] gives is never below that of the encoded block.

use pleach_coding::bits::{BitWriter, bits_of};
use pleach_coding::{bits, common_prefix_len};

use super::layout::{FIXED_LEN, HAS_TOMBSTONES, VARIES, are_numbers};
use super::{BITS_MAX, Pointer};
use crate::block::rows::PREFIX_LEN_MAX;
use crate::block::waiting::{Apart, WaitingEntries};
use crate::sizes::HEADER_LEN;

/// The lengths of a block's keys.
#[derive(Clone, Copy, Default)]
pub(crate) struct Keys {
    total: usize,
    /// Of the first key.
    first: usize,
    /// Whether a key has another length than the first.
    vary: bool,
    pub(crate) prefix_len: usize,
}

impl Keys {
    /// With a further key, after which all have a common prefix of `prefix_len`.
    #[inline]
    pub(crate) fn with(&self, key_len: usize, prefix_len: usize) -> Self {
        let first = if self.total == 0 { key_len } else { self.first };
        Self { total: self.total + key_len, first, vary: self.vary || key_len != first, prefix_len }
    }
}

/// The smallest and the greatest of some numbers.
#[derive(Clone, Copy, Debug)]
struct Range<T> {
    min: T,
    max: T,
}

impl<T: Ord + Copy> Range<T> {
    #[inline]
    fn with(self, number: T) -> Self {
        Self { min: self.min.min(number), max: self.max.max(number) }
    }
}

/// Distances of offsets from a line through the origin.
#[derive(Clone, Copy, Debug)]
struct Line {
    stride: i64,
    distances: Range<i64>,
}

impl Line {
    fn new(stride: i64) -> Self {
        Self { stride, distances: Range { min: i64::MAX, max: i64::MIN } }
    }

    #[inline]
    fn distance(&self, (at, offset): Place) -> i64 {
        offset - at * self.stride
    }

    #[inline]
    fn with(self, place: Place) -> Self {
        Self { distances: self.distances.with(self.distance(place)), ..self }
    }

    #[inline]
    fn bits(&self) -> u32 {
        bits_of((self.distances.max - self.distances.min).cast_unsigned())
    }
}

/// An entry's number in the block, and its pointer's offset.
type Place = (i64, i64);

/// The pointers of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointers {
    first: Option<Place>,
    last: Place,
    has_tombstones: bool,
    segments: Range<u64>,
    lens: Range<u32>,
    lines: [Line; 3],
}

impl Pointers {
    /// No pointers. `stride` is the mean stride of the block before.
    pub(crate) fn new(stride: i64) -> Self {
        Self {
            first: None,
            last: (0, 0),
            has_tombstones: false,
            segments: Range { min: u64::MAX, max: 0 },
            lens: Range { min: u32::MAX, max: 0 },
            lines: [0, 0, stride].map(Line::new),
        }
    }

    /// Whether there is one.
    pub(crate) fn exist(&self) -> bool {
        self.first.is_some()
    }

    /// With entry `at` of the block; `None` if no columnar block can hold these entries.
    #[inline]
    pub(crate) fn with(mut self, apart: Apart, at: usize) -> Option<Self> {
        let Apart::Pointer(pointer) = apart else {
            self.has_tombstones = true;
            return Some(self);
        };
        let place = (i64::try_from(at).ok()?, i64::from(pointer.offset));
        match self.first {
            None => self.first = Some(place),
            // The second pointer.
            Some(first) if first == self.last => {
                let stride = (place.1 - first.1) / (place.0 - first.0);
                self.lines[1] = Line::new(stride).with(first);
            }
            Some(_) => {}
        }
        self.last = place;
        self.segments = self.segments.with(pointer.segment);
        self.lens = self.lens.with(pointer.len);
        self.lines = self.lines.map(|line| line.with(place));
        (bits_of(self.segments.max - self.segments.min) <= BITS_MAX).then_some(self)
    }

    fn of(waiting: &WaitingEntries, entries: usize, stride: i64) -> Self {
        let add = |pointers: Self, at| pointers.with(waiting.apart(at)?, at);
        (0..entries).try_fold(Self::new(stride), add).expect("the packer has added these entries")
    }

    /// The mean distance of neighbouring offsets.
    fn mean_stride(&self) -> i64 {
        let first = self.first.unwrap_or(self.last);
        (self.last.1 - first.1) / (self.last.0 - first.0).max(1)
    }

    /// The line that leaves the fewest bits. At most 32: the constant one has no more.
    #[inline]
    fn best_line(&self) -> Line {
        let [constant, second, before] = self.lines;
        let better = |a: Line, b: Line| if b.bits() < a.bits() { b } else { a };
        better(better(constant, second), before)
    }

    /// Bits of segment, offset and length in a record.
    #[inline]
    fn bits(&self) -> [u32; 3] {
        if !self.exist() {
            return [0; 3];
        }
        let segments = bits_of(self.segments.max - self.segments.min);
        [segments, self.best_line().bits(), bits_of((self.lens.max - self.lens.min).into())]
    }
}

/// Length of a columnar block, header included.
#[inline]
pub(crate) fn block_len(entries: usize, keys: &Keys, pointers: &Pointers) -> usize {
    let tags = if are_numbers(keys.vary, keys.first - keys.prefix_len) { 0 } else { entries };
    let ends = if keys.vary { 2 * entries } else { 0 };
    let kinds = if pointers.has_tombstones { entries.div_ceil(8) } else { 0 };
    let suffixes = keys.total - entries * keys.prefix_len;
    let records = (entries * pointers.bits().iter().sum::<u32>() as usize).div_ceil(8);
    HEADER_LEN + FIXED_LEN + keys.prefix_len + tags + ends + kinds + suffixes + records
}

/// Appends the payload of a columnar block of the first `entries`. `stride` is that of the block before; returns that of this
/// one.
pub(crate) fn encode(waiting: &WaitingEntries, entries: usize, stride: i64, out: &mut Vec<u8>) -> i64 {
    let mut pointers = Pointers::of(waiting, entries, stride);
    let mean_stride = pointers.mean_stride();
    if pointers.exist() && pointers.best_line().bits() > 0 {
        pointers.try_line(Line::new(mean_stride), waiting, entries);
    }
    let prefix_len = common_prefix_len(waiting.key(0), waiting.key(entries - 1)).min(PREFIX_LEN_MAX);
    put_fixed_part(waiting, entries, prefix_len, &pointers, out);
    put_keys(waiting, entries, prefix_len, pointers.has_tombstones, out);
    put_records(waiting, entries, &pointers, out);
    mean_stride
}

impl Pointers {
    /// Takes `line` if it leaves fewer bits than the others.
    fn try_line(&mut self, line: Line, waiting: &WaitingEntries, entries: usize) {
        let line = places(waiting, entries).fold(line, |line, (at, pointer)| line.with(place(at, pointer)));
        if line.bits() < self.best_line().bits() {
            self.lines[0] = line;
        }
    }
}

/// The pointers with their entries' numbers.
fn places(waiting: &WaitingEntries, entries: usize) -> impl Iterator<Item = (usize, Pointer)> {
    (0..entries).filter_map(|at| match waiting.apart(at) {
        Some(Apart::Pointer(pointer)) => Some((at, pointer)),
        _ => None,
    })
}

fn place(at: usize, pointer: Pointer) -> Place {
    (i64::try_from(at).expect("a block has fewer entries"), pointer.offset.into())
}

/// The lowest 32 bits: readers compute offsets modulo 2^32.
fn low_word(number: i64) -> u32 {
    (number & i64::from(u32::MAX)).try_into().expect("32 bits")
}

fn put_fixed_part(
    waiting: &WaitingEntries,
    entries: usize,
    prefix_len: usize,
    pointers: &Pointers,
    out: &mut Vec<u8>,
) {
    let suffix_len = waiting.key(0).len() - prefix_len;
    let varies = varies(waiting, entries);
    let sixteen = |len: usize| u16::try_from(len).expect("a prefix, or a part of a block").to_le_bytes();
    out.extend_from_slice(&sixteen(prefix_len));
    out.extend_from_slice(&sixteen(if varies { 0 } else { suffix_len }));
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    out.push(flag(varies, VARIES) | flag(pointers.has_tombstones, HAS_TOMBSTONES));
    out.extend(pointers.bits().map(|bits| u8::try_from(bits).expect("at most 32")));
    if !pointers.exist() {
        out.extend_from_slice(&[0; 20]);
        return;
    }
    let line = pointers.best_line();
    out.extend_from_slice(&pointers.segments.min.to_le_bytes());
    out.extend_from_slice(&low_word(line.distances.min).to_le_bytes());
    out.extend_from_slice(&low_word(line.stride).to_le_bytes());
    out.extend_from_slice(&pointers.lens.min.to_le_bytes());
}

fn varies(waiting: &WaitingEntries, entries: usize) -> bool {
    let len = waiting.key(0).len();
    (1..entries).any(|i| waiting.key(i).len() != len)
}

/// Appends prefix, tags, ends of keys, kinds and keys.
fn put_keys(
    waiting: &WaitingEntries,
    entries: usize,
    prefix_len: usize,
    has_tombstones: bool,
    out: &mut Vec<u8>,
) {
    let first = waiting.key(0);
    let varies = varies(waiting, entries);
    out.extend_from_slice(&first[..prefix_len]);
    if !are_numbers(varies, first.len() - prefix_len) {
        out.extend(waiting.first(entries).iter().map(|entry| entry.tag));
    }
    let suffixes = (0..entries).map(|i| &waiting.key(i)[prefix_len..]);
    if varies {
        let mut end = 0;
        for suffix in suffixes.clone() {
            end += suffix.len();
            out.extend_from_slice(&u16::try_from(end).expect("a part of a block").to_le_bytes());
        }
    }
    if has_tombstones {
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

fn put_records(waiting: &WaitingEntries, entries: usize, pointers: &Pointers, out: &mut Vec<u8>) {
    let [segment_bits, offset_bits, len_bits] = pointers.bits();
    if segment_bits + offset_bits + len_bits == 0 {
        return;
    }
    let line = pointers.best_line();
    let mut records = BitWriter::default();
    for at in 0..entries {
        let (mut segment, mut distance, mut len) = (0, 0, 0);
        if let Some(Apart::Pointer(pointer)) = waiting.apart(at) {
            segment = pointer.segment - pointers.segments.min;
            distance = (line.distance(place(at, pointer)) - line.distances.min).cast_unsigned();
            len = u64::from(pointer.len - pointers.lens.min);
        }
        records.push(segment, segment_bits);
        records.push(distance, offset_bits);
        records.push(len, len_bits);
    }
    out.extend_from_slice(bits::unpadded(&records.finish()));
}
