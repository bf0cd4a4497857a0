//! Advice where a block should end, so that a model of the boundaries is small.
//!
//! Two things make a model small: blocks with equal numbers of entries, if the keys are evenly spaced, and wide gaps at
//! boundaries, if they are not. A packer may end a block a little before its page is full. It asks among the last few
//! entries. Keys become codes only when the SST is finished, so gaps are compared as numbers in base 10, 16 or 256.

use pleach_coding::{common_prefix_len, head};

/// Bytes of a page that may be given up for a better cut: 4 %, so that a block of 26 entries or more can end one entry earlier.
pub const GIVEN_UP_MAX: usize = 4096 * 4 / 100;

/// Digits that make a key's number: 16^14 fits 64 bits.
const NUMBER_LEN: usize = 14;

/// How many entries a block should have: `least` or more.
///
/// `keys` are the last key of a block of `least` entries, and the keys behind it up to the first one that does not fit. The
/// packer chooses `least` so that the block is at most [`GIVEN_UP_MAX`] bytes shorter than a full one. `before` is the number of
/// entries in the block before.
///
/// If no gap is wider than 1.5 times another one, the keys are evenly spaced. Then the answer is `before` if that is
/// possible. Otherwise it is where the gap is widest; of equal gaps, where the block is longest.
///
/// # Examples
///
/// ```
/// use pleach_index::cut;
///
/// // 35 entries end with key 1035, 36 entries with 1036. The entry with key 1037 does not fit.
/// assert_eq!(cut(35, Some(35), &[b"1035", b"1036", b"1037"]), 35);
/// assert_eq!(cut(35, Some(35), &[b"1035", b"1036", b"1090"]), 36);
/// ```
pub fn cut(least: usize, before: Option<usize>, keys: &[&[u8]]) -> usize {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return least };
    let shared = common_prefix_len(first, last);
    let windows = keys.iter().map(|key| {
        let rest = key.get(shared..).unwrap_or_default();
        rest.get(..NUMBER_LEN).unwrap_or(rest)
    });
    let base = base(windows.clone());
    let mut numbers = windows.map(|window| number(window, base));
    let mut before_gap = numbers.next().unwrap_or(0);
    let (mut narrowest, mut widest, mut widest_at) = (u64::MAX, 0, 0);
    for (i, number) in numbers.enumerate() {
        let gap = number.saturating_sub(before_gap);
        before_gap = number;
        narrowest = narrowest.min(gap);
        if gap >= widest {
            (widest, widest_at) = (gap, i);
        }
    }
    let most = least + keys.len().saturating_sub(2);
    if let Some(before) = before
        && (least..=most).contains(&before)
        && widest <= narrowest.saturating_add(narrowest / 2)
    {
        return before;
    }
    least + widest_at
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
