//! How positions are divided: not at all, in the halves of a code of 128 bits, or in a head and a *tail* of narrow range.
//!
//! Composite keys have numbers that do not use all their digits: where orders are numbered up to 1 200 000, no key has 2 as
//! the first of seven digits, and codes would have a hole behind each tenant. A model would need a segment for each. A
//! position is found from which on tails have a narrow range; codes then count tails from the least one on. A tail below the
//! range counts as the least one, a tail above it as the greatest: head and tail still order keys as before.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block.
//!
//! # Cost
//! Training looks at a sample of the keys to find the position, and once at all keys to find the range.

use pleach_coding::{Decoder, put_varint};

use super::class::Rank;
use super::train::Keys;
use super::{Class, Set, Snbc, WORD_LEN};

/// Numbers on disk. Never renumber.
const WIDE: u8 = 0;
const TAIL: u8 = 1;

/// Keys among which a tail is looked for, and how few do not show its range.
const SAMPLED: usize = 256;
const SAMPLED_MIN: usize = 64;
/// A tail is used if its range is at most so many parts of the numbers that its positions have. Arbitrary.
const WORTH: [u128; 2] = [3, 4];

/// How positions behind the prefix are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// One part.
    Whole,
    /// Those before `first` are the upper half of a code of 128 bits.
    Wide { first: usize },
    /// The number of those from `first` on is `least` or up to `range` more.
    Tail { first: usize, least: u64, range: u64 },
}

impl Split {
    /// The first position of the second part.
    pub(super) fn first(self) -> Option<usize> {
        match self {
            Self::Whole => None,
            Self::Wide { first } | Self::Tail { first, .. } => Some(first),
        }
    }

    /// The least tail, and the range of tails.
    pub(super) fn tail(self) -> Option<(u64, u64)> {
        match self {
            Self::Whole | Self::Wide { .. } => None,
            Self::Tail { least, range, .. } => Some((least, range)),
        }
    }

    /// Appends the stored form without the first position; nothing if there is one part.
    pub(super) fn store(self, out: &mut Vec<u8>) {
        match self {
            Self::Whole => {}
            Self::Wide { .. } => out.push(WIDE),
            Self::Tail { least, range, .. } => {
                out.push(TAIL);
                put_varint(out, least);
                put_varint(out, range);
            }
        }
    }

    /// Decodes the split whose second part begins at `first`; 0 if there is one part.
    pub(super) fn load(input: &mut Decoder<'_>, first: usize) -> Option<Self> {
        if first == 0 {
            return Some(Self::Whole);
        }
        match input.u8()? {
            WIDE => Some(Self::Wide { first }),
            TAIL => Some(Self::Tail { first, least: input.varint()?, range: input.varint()? }),
            _ => None,
        }
    }
}

/// The same encoder with the tail that has the narrowest range, if one is worth it.
pub(super) fn with_tail(snbc: Snbc, keys: &Keys) -> Snbc {
    let first = first_of_tail(&snbc, keys);
    first.and_then(|first| with_tail_at(&snbc, keys, first)).unwrap_or(snbc)
}

/// The encoder with the tail from position `first` on, if it is worth it.
fn with_tail_at(snbc: &Snbc, keys: &Keys, first: usize) -> Option<Snbc> {
    let classes = snbc.classes.get(snbc.constants()..)?;
    let with = |least, range| {
        let split = Split::Tail { first, least, range };
        Snbc::new(&snbc.prefix, classes, split, snbc.sets.to_vec())
    };
    // All tails are in the range of the positions, so that its parts are those of the keys.
    let numbers = numbers_of(classes.get(first..)?, &snbc.sets)?;
    let parts = with(0, u64::try_from(numbers - 1).ok()?)?;
    let (mut least, mut most) = (u64::MAX, 0);
    keys.each_end(|key| {
        let (_, tail) = parts.parts(key);
        (least, most) = (least.min(tail), most.max(tail));
    });
    let range = most.checked_sub(least)?;
    is_worth(range.into(), numbers).then(|| with(least, range)).flatten()
}

/// The position from which on the sampled keys have the narrowest tails, in parts of what the positions can count; among
/// equals the one with the fewest words.
fn first_of_tail(snbc: &Snbc, keys: &Keys) -> Option<usize> {
    let classes = snbc.classes.get(snbc.constants()..)?;
    let mut bounds = vec![(u128::MAX, 0_u128); classes.len()];
    let mut sampled = 0;
    keys.each_sampled(SAMPLED, |suffix| {
        sampled += 1;
        let ranks = ranks_of(suffix, classes, &snbc.sets);
        let (mut tail, mut numbers) = (0, 1);
        let positions = classes.iter().zip(&ranks).zip(&mut bounds);
        for ((class, rank), (least, most)) in positions.rev() {
            tail += numbers * u128::from(*rank);
            numbers *= u128::from(class.radix(&snbc.sets));
            (*least, *most) = (tail.min(*least), tail.max(*most));
        }
    });
    let mut numbers = 1;
    let mut best: Option<(f64, usize, usize)> = None;
    for (first, (class, (least, most))) in classes.iter().zip(&bounds).enumerate().skip(1).rev() {
        numbers *= u128::from(class.radix(&snbc.sets));
        let range = most.checked_sub(*least)?;
        if !is_worth(range, numbers) {
            continue;
        }
        let words =
            (snbc.constants() + first).div_ceil(WORD_LEN) + (classes.len() - first).div_ceil(WORD_LEN);
        let candidate = (part(range, numbers), words, first);
        if best.is_none_or(|best| candidate < best) {
            best = Some(candidate);
        }
    }
    best.filter(|_| sampled >= SAMPLED_MIN).map(|(.., first)| first)
}

#[expect(clippy::cast_precision_loss, reason = "only for a comparison")]
fn part(range: u128, numbers: u128) -> f64 {
    range as f64 / numbers as f64
}

/// Whether tails of this `range` are worth a split of positions that can count `numbers`.
fn is_worth(range: u128, numbers: u128) -> bool {
    let [parts, of] = WORTH;
    (range + 1) * of <= numbers * parts
}

/// How many numbers `classes` can count; `None` if more than 2^64.
fn numbers_of(classes: &[Class], sets: &[Set]) -> Option<u128> {
    let product = classes.iter().try_fold(1_u128, |product, class| {
        let product = product * u128::from(class.radix(sets));
        (product <= 1 << 64).then_some(product)
    })?;
    Some(product)
}

/// The ranks of `bytes` at the positions of `classes`.
fn ranks_of(bytes: &[u8], classes: &[Class], sets: &[Set]) -> Vec<u64> {
    let mut ranks = vec![0; classes.len()];
    let mut bytes = bytes.iter();
    for (class, rank) in classes.iter().zip(&mut ranks) {
        let Some(byte) = bytes.next() else { break };
        match class.rank(*byte, sets) {
            Rank::Exact(exact) => *rank = exact,
            // Rare among keys at boundaries: what follows hardly matters.
            Rank::Above(below) => *rank = below,
            Rank::Below => break,
        }
    }
    ranks
}
