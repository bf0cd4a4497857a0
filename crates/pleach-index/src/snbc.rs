//! String-number base coding (SNBC): keys as numbers, in their order.
//!
//! The prefix that all trained keys share is stripped. At each position behind it, the bytes that occur have ranks. The
//! ranks are the digits of a number whose base changes from position to position. Positions that would overflow the
//! number are left out, so different keys may have one code.
//!
//! Positions have two parts if the number of the later ones, the *tail*, has a narrow range: in `tenant/order`, numbers of
//! orders below 1 200 000 take 7 digits. Then a tail counts from the least one on, and the number before counts ranges of
//! tails. So codes have no hole behind each tenant.
//!
//! # Invariants
//! 1. *Monotone*: `a <= b` implies `encode(a) <= encode(b)`, for any byte strings. A byte without a rank takes the rank below
//!    it, and all later positions take their highest rank; if no rank is below it, they take their lowest. A key that ends
//!    early goes on with lowest ranks. Tested with any bytes.
//! 2. *One answer*: the fast way (whole words) and the slow way (byte by byte) agree on keys that the fast way accepts.
//!    Tested.
//!
//! # Cost
//! 208 bytes of memory for each 8 positions, and 552 for each set of bytes that is neither a range nor hexadecimal digits.
//!
//! # Origin
//! Google's learned index in Bigtable (Abu-Libdeh et al., 2020), quoted by `TridentKV` 3.2. Departures: ranks of the bytes
//! that occur instead of the range from the least to the greatest byte, which wastes codes on hexadecimal digits; one
//! encoder for an SST instead of greedy groups. Figures of both are in design/0011.

#![deny(clippy::indexing_slicing)]

mod class;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod points;
mod tail;
mod train;
#[expect(clippy::indexing_slicing, reason = "places within eight bytes")]
mod word;

use pleach_coding::{Decoder, Malformed, put_varint};
use smallvec::SmallVec;

use self::class::Rank;
pub(crate) use self::class::{Class, Set};
pub(crate) use self::points::{Points, train_at_points};
pub(crate) use self::tail::Split;
pub(crate) use self::train::{Keys, train};
use self::word::{Table, WORD_LEN, Word};

/// Most positions behind the prefix.
pub(crate) const POSITIONS_MAX: usize = 255;

/// The encoder of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snbc {
    /// The prefix that all trained keys share.
    prefix: Box<[u8]>,
    /// The part of the prefix, a multiple of eight bytes, that is compared apart. Words cover the rest as constants.
    compared: usize,
    /// Classes of all positions that words cover, and what a rank counts there.
    classes: Box<[Class]>,
    weights: Box<[u64]>,
    sets: Box<[Set]>,
    tables: Box<[Table]>,
    /// In place, because a search begins with them.
    words: SmallVec<[Word; 2]>,
    /// A key that is at least so long can be encoded in lanes. No key is, if a word has none.
    lanes_end: usize,
    /// Number of the first position of the second part; 0 if there is one part.
    second_from: u8,
    is_wide: bool,
    /// Words of the first part: of the upper 64 bits, or before the tail.
    upper_words: usize,
    /// Least tail, and the range of tails. Without a tail, 0 and the largest number of the second part, or of all.
    least: u64,
    range: u64,
}

impl Snbc {
    /// The encoder of keys with `prefix`, then `classes`, which are divided by `split`. `None` if a part overflows.
    pub(crate) fn new(prefix: &[u8], classes: &[Class], split: Split, sets: Vec<Set>) -> Option<Self> {
        let compared = prefix.len() / WORD_LEN * WORD_LEN;
        let constants = prefix.get(compared..)?.iter().map(|&byte| Class::Range(byte, byte));
        let constant_count = prefix.len() - compared;
        let all: Box<[Class]> = constants.chain(classes.iter().copied()).collect();
        let upper = split.first().map_or(0, |first| first + constant_count);
        let (upper_classes, lower_classes) = all.split_at_checked(upper)?;
        let (lower_weights, lower_max) = weights_of(lower_classes, &sets, 1)?;
        let (least, range) = split.tail().unwrap_or((0, lower_max));
        let upper_unit = if split.tail().is_some() { u128::from(range) + 1 } else { 1 };
        if least.checked_add(range)? > lower_max {
            return None;
        }
        let (mut weights, _) = weights_of(upper_classes, &sets, upper_unit)?;
        let mut words: SmallVec<_> = words_of(compared, 0, upper_classes, &weights).collect();
        let upper_words = words.len();
        words.extend(words_of(compared + upper, upper, lower_classes, &lower_weights));
        // Memory counts the words, not what a growing list has left over.
        words.shrink_to_fit();
        weights.extend(lower_weights);
        Some(Self {
            prefix: prefix.into(),
            compared,
            tables: sets.iter().map(table).collect(),
            sets: sets.into(),
            classes: all,
            weights: weights.into(),
            lanes_end: words.iter().map(Word::lanes_end).max().unwrap_or(0),
            words,
            second_from: u8::try_from(split.first().unwrap_or(0)).ok()?,
            is_wide: matches!(split, Split::Wide { .. }),
            upper_words,
            least,
            range,
        })
    }

    /// Whether codes have 128 bits.
    pub(crate) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// How positions are divided.
    fn split(&self) -> Split {
        let first = self.second_from.into();
        match first {
            0 => Split::Whole,
            _ if self.is_wide => Split::Wide { first },
            _ => Split::Tail { first, least: self.least, range: self.range },
        }
    }

    /// The code of `key`.
    ///
    /// Requires: codes have 64 bits.
    #[inline]
    pub(crate) fn encode(&self, key: &[u8]) -> u64 {
        if key.len() < self.lanes_end {
            return self.encode_by_parts(key);
        }
        if self.has_prefix(key)
            && let Some((first, second)) = self.words.split_at_checked(self.upper_words)
            && let Some(upper) = first.iter().try_fold(0_u64, |sum, word| word.encode_in_lanes(key, sum))
            && let Some(tail) =
                second.iter().try_fold(self.least.wrapping_neg(), |sum, word| word.encode_in_lanes(key, sum))
            && tail <= self.range
        {
            return upper.wrapping_add(tail);
        }
        self.narrow(self.encode_slowly(key))
    }

    /// As [`Snbc::encode`], of a key that ends early, or where a word has no vector instructions.
    #[inline(never)]
    fn encode_by_parts(&self, key: &[u8]) -> u64 {
        self.narrow(self.parts(key))
    }

    /// The numbers of both parts of `key`.
    #[inline]
    pub(super) fn parts(&self, key: &[u8]) -> (u64, u64) {
        if self.has_prefix(key)
            && let Some((upper, lower)) = self.words.split_at_checked(self.upper_words)
            && let Some(upper) = self.sum(upper, key)
            && let Some(lower) = self.sum(lower, key)
        {
            return (upper, lower);
        }
        self.encode_slowly(key)
    }

    /// The code of 64 bits of both parts: a tail out of range counts as the nearest one within.
    #[inline]
    fn narrow(&self, (upper, tail): (u64, u64)) -> u64 {
        upper.wrapping_add(tail.saturating_sub(self.least).min(self.range))
    }

    /// Positions of the prefix that words cover.
    fn constants(&self) -> usize {
        self.prefix.len() - self.compared
    }

    /// The code of `key`, in 128 bits.
    #[inline]
    pub(crate) fn encode_wide(&self, key: &[u8]) -> u128 {
        let (upper, lower) = self.parts(key);
        self.joined(upper, lower)
    }

    #[inline]
    fn joined(&self, upper: u64, lower: u64) -> u128 {
        u128::from(upper) * (u128::from(self.range) + 1) + u128::from(lower)
    }

    #[inline]
    fn has_prefix(&self, key: &[u8]) -> bool {
        let Some((prefix, _)) = self.prefix.split_at_checked(self.compared) else { return false };
        let Some(start) = key.get(..self.compared) else { return false };
        prefix.as_chunks::<WORD_LEN>().0.iter().zip(start.as_chunks().0).all(|(a, b)| a == b)
    }

    /// The number of `words`; `None` if a byte has no rank of its own.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call costs a tenth of a search")]
    fn sum(&self, words: &[Word], key: &[u8]) -> Option<u64> {
        let mut sum = 0_u64;
        for word in words {
            sum = sum.wrapping_add(word.encode(key, |word| self.sum_of_tables(word, key))?);
        }
        Some(sum)
    }

    #[inline(never)]
    fn sum_of_tables(&self, word: &Word, key: &[u8]) -> Option<u64> {
        let first = usize::from(word.first);
        let (classes, weights) = (self.classes.get(first..)?, self.weights.get(first..)?);
        let count = usize::from(word.positions).min(classes.len());
        word.sum_of_tables(key, classes.get(..count)?, weights, &self.sets, &self.tables)
    }

    /// The same encoder without vector instructions.
    #[cfg(test)]
    #[expect(clippy::indexing_slicing, reason = "a test's")]
    fn in_registers(mut self) -> Self {
        self.lanes_end = usize::MAX;
        for word in &mut self.words {
            let places = usize::from(word.first)..usize::from(word.first) + usize::from(word.positions);
            *word =
                Word::new(word.start(), places.start, &self.classes[places.clone()], &self.weights[places]);
        }
        self
    }

    /// The largest numbers of both parts; a second one beyond all tails.
    fn largest(&self) -> (u64, u64) {
        let counts = self.words.iter().take(self.upper_words).map(|word| usize::from(word.positions));
        let positions = self.classes.iter().zip(&self.weights).take(counts.sum());
        let ranks = positions.map(|(class, weight)| (class.radix(&self.sets) - 1).wrapping_mul(*weight));
        (ranks.fold(0, u64::wrapping_add), self.range.saturating_add(self.least))
    }

    /// The numbers of both parts, byte by byte.
    #[cold]
    #[inline(never)]
    fn encode_slowly(&self, key: &[u8]) -> (u64, u64) {
        let compared = self.prefix.get(..self.compared).unwrap_or_default();
        let start = key.get(..self.compared).unwrap_or(key);
        match start.cmp(compared) {
            std::cmp::Ordering::Less => return (0, 0),
            std::cmp::Ordering::Greater => return self.largest(),
            std::cmp::Ordering::Equal => {}
        }
        let mut sums = [0_u64, 0];
        let mut positions = self.classes.iter().zip(&self.weights);
        for (i, word) in self.words.iter().enumerate() {
            let half = usize::from(i >= self.upper_words);
            let bytes = key.get(word.start()..).unwrap_or_default();
            let mut bytes = bytes.iter();
            for (class, weight) in positions.by_ref().take(word.positions.into()) {
                let Some(&byte) = bytes.next() else { return sums.into() };
                let (rank, exact) = match class.rank(byte, &self.sets) {
                    Rank::Below => return sums.into(),
                    Rank::Exact(rank) => (rank, true),
                    Rank::Above(rank) => (rank, false),
                };
                let Some(sum) = sums.get_mut(half) else { continue };
                *sum = sum.wrapping_add(rank.wrapping_mul(*weight));
                if !exact {
                    // All later positions take their highest rank. A weight of 2^64 is stored as 0.
                    let unit = if half == 0 && !self.is_wide { self.range.wrapping_add(1) } else { 1 };
                    *sum = sum.wrapping_add(weight.wrapping_sub(unit));
                    let [upper, lower] = sums;
                    let largest = self.range.saturating_add(self.least);
                    return (upper, if half == 0 { largest } else { lower });
                }
            }
        }
        sums.into()
    }
}

impl Snbc {
    /// Bytes of memory, those of this struct included.
    pub(crate) fn memory(&self) -> usize {
        let words = if self.words.spilled() { size_of_val(&*self.words) } else { 0 };
        size_of::<Self>()
            + words
            + self.prefix.len()
            + size_of_val(&*self.classes)
            + size_of_val(&*self.weights)
            + size_of_val(&*self.sets)
            + size_of_val(&*self.tables)
    }

    /// Appends the stored form.
    pub(crate) fn store(&self, out: &mut Vec<u8>) {
        let classes = self.classes.get(self.constants()..).unwrap_or_default();
        put_varint(out, self.prefix.len() as u64);
        out.extend_from_slice(&self.prefix);
        out.push(u8::try_from(classes.len()).expect("at most 255 positions"));
        out.push(self.second_from);
        class::encode(classes, &self.sets, out);
        self.split().store(out);
    }

    /// Decodes an encoder from the front of `input`; `offset` tells how far `input` has come.
    pub(crate) fn load(
        input: &mut Decoder<'_>,
        offset: impl Fn(&Decoder<'_>) -> usize,
    ) -> Result<Self, Malformed> {
        let at = offset(input);
        let prefix = input.bytes().filter(|prefix| prefix.len() <= PREFIX_LEN_MAX);
        let prefix = prefix.ok_or(Malformed::new(at, "a prefix no longer than a key"))?;
        let at = offset(input);
        let [count, first] = input.array().ok_or(Malformed::new(at, "numbers of positions"))?;
        let (classes, sets) = class::decode(input, count.into(), &offset)?;
        let split = Split::load(input, first.into());
        let split = split.ok_or(Malformed::new(offset(input), "how positions are divided"))?;
        let snbc = Self::new(prefix, &classes, split, sets);
        snbc.ok_or(Malformed::new(at, "positions that fit a code"))
    }
}

/// Longest prefix: a key's largest length.
const PREFIX_LEN_MAX: usize = (1 << 20) + 4;

/// What a rank counts at each position of `classes`, the last one `unit`, and the largest number; `None` if it exceeds 64 bits.
fn weights_of(classes: &[Class], sets: &[Set], unit: u128) -> Option<(Vec<u64>, u64)> {
    let mut weights = vec![0; classes.len()];
    let mut product = unit;
    for (weight, class) in weights.iter_mut().zip(classes).rev() {
        *weight = low_bits(product);
        product *= u128::from(class.radix(sets));
        if product > 1 << 64 {
            return None;
        }
    }
    Some((weights, low_bits(product - unit)))
}

/// The words of `classes`, of which the first is number `first` and at `start` in a key.
fn words_of(start: usize, first: usize, classes: &[Class], weights: &[u64]) -> impl Iterator<Item = Word> {
    let chunks = classes.chunks(WORD_LEN).zip(weights.chunks(WORD_LEN));
    chunks.enumerate().map(move |(i, (classes, weights))| {
        Word::new(start + i * WORD_LEN, first + i * WORD_LEN, classes, weights).in_lanes(classes, weights)
    })
}

/// The lower 64 bits.
#[expect(clippy::cast_possible_truncation, reason = "2^64 becomes 0, on purpose")]
fn low_bits(number: u128) -> u64 {
    number as u64
}

/// The ranks of all bytes in `set`.
fn table(set: &Set) -> Table {
    let mut table = [0; 256];
    let mut rank = u16::from(set.ends);
    for (byte, entry) in (0..=255).zip(&mut table) {
        if set.contains(byte) {
            *entry = rank << 1 | 1;
            rank += 1;
        }
    }
    table
}

#[cfg(test)]
mod tests;
