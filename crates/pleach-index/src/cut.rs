//! Advice where a block should end, so that a model of the boundaries is small.
//!
//! Two things make a model small: blocks with equal numbers of entries, if the keys are evenly spaced, and wide gaps at
//! boundaries, if they are not. [`Cuts`] says which. A packer may end a block a little before its page is full: it asks
//! behind which of the last few entries. Keys become codes only when the SST is finished, so gaps are compared as numbers in
//! base 10, 16 or 256.

use pleach_coding::{common_prefix_len, head};

/// Bytes of a page that may be given up for a better cut: 4 %, so that a block of 26 entries or more can end one entry earlier.
pub const GIVEN_UP_MAX: usize = 4096 * 4 / 100;

/// Digits that make a key's number: 16^14 fits 64 bits.
const NUMBER_LEN: usize = 14;

/// Of so many boundaries, one may have gaps of different widths around it while the keys count as evenly spaced. Arbitrary.
const UNEVEN_MAX: u64 = 8;
/// So many more may have: the first blocks say little.
const UNEVEN_FREE: u64 = 8;

/// Advice for the blocks of an SST, one after the other.
///
/// # Examples
///
/// ```
/// use pleach_index::Cuts;
///
/// let mut cuts = Cuts::default();
/// cuts.end_block(35);
/// // 35 entries end with key 1035, 36 entries with 1036. The entry with key 1037 does not fit.
/// assert_eq!(cuts.advise(35, &[b"1035", b"1036", b"1037"]), 35);
/// assert_eq!(cuts.advise(35, &[b"1035", b"1036", b"1090"]), 36);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Cuts {
    /// The number of entries in the block before.
    before: Option<usize>,
    /// Blocks for which there was advice, and those of them with gaps of different widths at the end.
    advised: u64,
    uneven: u64,
}

impl Cuts {
    /// How many entries a block should have: `least` or more.
    ///
    /// `keys` are the last key of a block of `least` entries, and the keys behind it up to the first one that does not fit. The
    /// packer chooses `least` so that the block is at most [`GIVEN_UP_MAX`] bytes shorter than a full one.
    ///
    /// The answer is where the gap is widest; of equal gaps, where the block is longest. But if no gap is wider than 1.5 times
    /// another one, it is the number of entries in the block before, if that is possible and it was so at most ends of blocks:
    /// then the keys are evenly spaced. If it was not so, such gaps count as equal.
    pub fn advise(&mut self, least: usize, keys: &[&[u8]]) -> usize {
        let gaps = Gaps::between(keys);
        let is_even = gaps.widest <= gaps.narrowest.saturating_add(gaps.narrowest / 2);
        self.advised += 1;
        self.uneven += u64::from(!is_even);
        let most = least + keys.len().saturating_sub(2);
        let counts_as_even = self.uneven.saturating_sub(UNEVEN_FREE) * UNEVEN_MAX <= self.advised;
        match self.before {
            Some(before) if is_even && counts_as_even && (least..=most).contains(&before) => before,
            _ if is_even && !counts_as_even => most,
            _ => least + gaps.widest_at,
        }
    }

    /// Tells that a block ended, with so many entries.
    pub fn end_block(&mut self, entries: usize) {
        self.before = Some(entries);
    }
}

/// The gaps between neighbouring keys.
struct Gaps {
    narrowest: u64,
    widest: u64,
    /// Number of the widest one; of equal ones, the last.
    widest_at: usize,
}

impl Gaps {
    fn between(keys: &[&[u8]]) -> Self {
        let mut gaps = Self { narrowest: u64::MAX, widest: 0, widest_at: 0 };
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return gaps };
        let shared = common_prefix_len(first, last);
        let windows = keys.iter().map(|key| {
            let rest = key.get(shared..).unwrap_or_default();
            rest.get(..NUMBER_LEN).unwrap_or(rest)
        });
        let base = base(windows.clone());
        let mut numbers = windows.map(|window| number(window, base));
        let mut before = numbers.next().unwrap_or(0);
        for (i, number) in numbers.enumerate() {
            let gap = number.saturating_sub(before);
            before = number;
            gaps.narrowest = gaps.narrowest.min(gap);
            if gap >= gaps.widest {
                (gaps.widest, gaps.widest_at) = (gap, i);
            }
        }
        gaps
    }
}

/// The base in which all bytes are digits.
fn base<'a>(windows: impl Iterator<Item = &'a [u8]>) -> u64 {
    // A bit for each base in which the byte is a digit.
    let bases_of = |byte: &u8| match byte {
        b'0'..=b'9' => 0b11,
        b'a'..=b'f' => 0b10,
        _ => 0,
    };
    match windows.flatten().fold(0b11, |bases, byte| bases & bases_of(byte)) {
        0b11 => 10,
        0b10 => 16,
        _ => 256,
    }
}

/// The first bytes as a number: of [`NUMBER_LEN`] digits, or of eight bytes in base 256.
fn number(bytes: &[u8], base: u64) -> u64 {
    if base == 256 {
        return head(bytes);
    }
    let mut digits = [b'0'; NUMBER_LEN];
    for (digit, byte) in digits.iter_mut().zip(bytes) {
        *digit = *byte;
    }
    let value = |byte: u8| if byte >= b'a' { byte - b'a' + 10 } else { byte - b'0' };
    digits.iter().fold(0, |number, &byte| number * base + u64::from(value(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(least: usize, before: Option<usize>, keys: &[&[u8]]) -> usize {
        Cuts { before, ..Cuts::default() }.advise(least, keys)
    }

    #[test]
    fn keys_with_many_wide_gaps_keep_no_count() {
        let (even, uneven): ([&[u8]; 3], [&[u8]; 3]) = ([b"a/1", b"a/2", b"a/3"], [b"a/1", b"a/8", b"a/9"]);
        let mut cuts = Cuts::default();
        for _ in 0..10 {
            cuts.end_block(35);
            assert_eq!(cuts.advise(35, &even), 35);
        }
        for _ in 0..12 {
            assert_eq!(cuts.advise(35, &uneven), 35);
        }
        assert_eq!(cuts.advise(35, &even), 36);
    }

    #[test]
    fn evenly_spaced_keys_keep_the_count() {
        // The step from 1039 to 1040 changes two digits, but it is no wider.
        assert_eq!(cut(35, Some(36), &[b"1038", b"1039", b"1040", b"1041"]), 36);
        assert_eq!(cut(35, Some(37), &[b"1038", b"1039", b"1040", b"1041"]), 37);
        assert_eq!(cut(10, Some(10), &[b"k0f", b"k10", b"k11"]), 10);
        assert_eq!(cut(10, Some(10), &[&[7, 0xff], &[8, 0], &[8, 1]]), 10);
    }

    #[test]
    fn a_count_out_of_reach_makes_the_longest_block() {
        assert_eq!(cut(35, Some(30), &[b"1038", b"1039", b"1040", b"1041"]), 37);
        assert_eq!(cut(35, None, &[b"1038", b"1039", b"1040"]), 36);
    }

    #[test]
    fn the_widest_gap_wins() {
        assert_eq!(cut(35, Some(36), &[b"1000", b"1500", b"1501"]), 35);
        assert_eq!(cut(35, Some(35), &[b"t1/o2/001", b"t1/o2/002", b"t1/o7/000"]), 36);
        assert_eq!(cut(35, Some(35), &[b"ab", b"abc", b"b"]), 36);
    }

    #[test]
    fn one_choice_is_taken() {
        assert_eq!(cut(1, None, &[b"a", b"b"]), 1);
        assert_eq!(cut(3, Some(1), &[]), 3);
    }
}
