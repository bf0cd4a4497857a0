//! The line of a block's keys: a model from a key's number to its place, with the greatest error that it has.
//!
//! # Invariants
//! 1. *Ascending*: a greater number has no lower place. So the error at the block's keys bounds the error at all others.
//!
//! # Origin
//! `LearnedKV`, section 4.4, has such models over its whole key list. Departure: one line for each block, in the block; which
//! block has a key is known from the index.

/// The line. Any values are safe: a wrong line hides keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyLine {
    /// Places that a distance of 2^`shift` takes, in 2^-32.
    pub(super) slope: u32,
    /// Greatest distance of a key's place from the one that the line gives.
    pub(super) error: u16,
    /// Lower bits of distances that do not count, below 64.
    pub(super) shift: u8,
}

impl KeyLine {
    /// The line through the first and the last of `numbers`, which ascend.
    pub(super) fn fit(count: usize, numbers: impl Iterator<Item = u64>, last: u64) -> Self {
        let mut numbers = numbers.peekable();
        let first = numbers.peek().copied().unwrap_or(last);
        let span = last - first;
        let shift = (64 - span.leading_zeros()).saturating_sub(32);
        let slope = ((count as u64 - 1) << 32) / (span >> shift).max(1);
        let mut line = Self {
            slope: u32::try_from(slope).unwrap_or(u32::MAX),
            error: 0,
            shift: u8::try_from(shift).expect("at most 32"),
        };
        let errors = numbers.enumerate().map(|(place, number)| line.place(number - first).abs_diff(place));
        let error = errors.max().unwrap_or(0);
        line.error = u16::try_from(error).unwrap_or(u16::MAX);
        line
    }

    /// About the place of the number that is `distance` above the first.
    #[inline]
    pub(super) fn place(self, distance: u64) -> usize {
        let place = (u128::from(distance >> self.shift) * u128::from(self.slope)) >> 32;
        usize::try_from(place).unwrap_or(usize::MAX)
    }
}

/// Longest part of a key that is a number.
pub(super) const NUMBER_LEN_MAX: usize = 8;

/// The lowest `len` bytes, at most 8.
#[inline]
pub(super) fn lowest_bytes(len: usize) -> u64 {
    if len == 0 { 0 } else { u64::MAX >> (64 - 8 * len) }
}

/// The number whose order is that of the bytes.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "keys are compared from their first byte on")]
pub(super) fn big_endian(bytes: [u8; NUMBER_LEN_MAX]) -> u64 {
    u64::from_be_bytes(bytes)
}

/// The last `len` bytes of `key` as a number. Requires: it has so many, and they are at most 8.
#[inline]
pub(super) fn number_at_end(key: &[u8], len: usize) -> u64 {
    match key.last_chunk() {
        Some(eight) => big_endian(*eight) & lowest_bytes(len),
        None => padded_number(&key[key.len() - len..], len),
    }
}

/// The first `len` bytes of `suffix` as a number, at most 8; zeros where it is shorter.
#[inline]
pub(super) fn padded_number(suffix: &[u8], len: usize) -> u64 {
    let mut bytes = [0; NUMBER_LEN_MAX];
    let given = suffix.len().min(len);
    bytes[..given].copy_from_slice(&suffix[..given]);
    if len == 0 { 0 } else { big_endian(bytes) >> (64 - 8 * len) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_error_bounds_the_place_of_every_number(
            numbers in proptest::collection::btree_set(any::<u64>(), 1..300),
            scale in 0u32..64,
            others in proptest::collection::vec(any::<u64>(), 50),
        ) {
            let numbers: Vec<u64> =
                numbers.into_iter().map(|n| n >> scale).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            let (first, last) = (numbers[0], *numbers.last().unwrap());
            let line = KeyLine::fit(numbers.len(), numbers.iter().copied(), last);
            prop_assert!(line.shift < 64);
            for number in others.iter().map(|n| n >> scale).chain(numbers.iter().copied()) {
                let rank = numbers.partition_point(|&n| n <= number).saturating_sub(1);
                let place = line.place(number.saturating_sub(first)).min(numbers.len() - 1);
                let error = usize::from(line.error);
                prop_assert!((place.saturating_sub(error + 1)..=place + error).contains(&rank));
            }
        }
    }

    #[test]
    fn evenly_spaced_numbers_have_an_error_of_at_most_one() {
        for step in [1, 3, 1000, 1 << 40] {
            let line = KeyLine::fit(1000, (0..1000).map(|i| i * step), 999 * step);
            assert!(line.error <= 1, "step {step}");
        }
    }
}
