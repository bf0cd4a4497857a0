//! The pure model: blocks are cut where lines say, so there are no residuals and no separators.
//!
//! A segment is a line that covers a given number of blocks. They span equally many codes, as many as possible while no block
//! exceeds a page. The next segment begins where the last block ends. Empty blocks count, for a block's number is its place in
//! the file.

use crate::blocks::{PAGE, VALUE_LEN, len_of};

/// Bytes of a segment: the start, the codes of a block, and the number of the first block.
pub(crate) const SEGMENT_BYTES: usize = 8 + 8 + 4;
/// Halvings when the codes of a block are looked for.
const HALVINGS: usize = 128;
/// Larger widths that are tried after halving, each less than the one before by a 256th: wider blocks may fit by luck.
const TRIALS: u128 = 48;

/// Numbers of blocks and of segments if each segment covers `blocks_per_segment` blocks. `None` if the keys of one code exceed a
/// page.
pub(crate) fn cut(keys: &[Vec<u8>], codes: &[u128], blocks_per_segment: usize) -> Option<(usize, usize)> {
    let (mut from, mut blocks, mut segments) = (0, 0, 0);
    while from < keys.len() {
        let segment = Segment { keys: &keys[from..], codes: &codes[from..], blocks: blocks_per_segment };
        let Cut { keys, blocks: more } = segment.widest()?;
        from += keys;
        blocks += more;
        segments += 1;
    }
    Some((blocks, segments))
}

/// A segment that begins with the first of `keys`.
struct Segment<'a> {
    keys: &'a [Vec<u8>],
    codes: &'a [u128],
    blocks: usize,
}

/// How many keys a segment has, and in how many blocks: fewer than wanted only where the keys end.
#[derive(Clone, Copy)]
struct Cut {
    keys: usize,
    blocks: usize,
}

impl Segment<'_> {
    /// The segment with the widest blocks that was found.
    fn widest(&self) -> Option<Cut> {
        let span = self.codes[self.codes.len() - 1] - self.codes[0] + 1;
        let mut cut = self.cut(1)?;
        let (mut low, mut high) = (1, span + 1);
        for _ in 0..HALVINGS {
            // Halves the ratio while it is large, then the difference.
            let middle = if high / low > 4 { low * (high / low).isqrt() } else { low.midpoint(high) };
            if middle == low || high - low < low >> 10 {
                break;
            }
            match self.cut(middle) {
                Some(wider) => (low, cut) = (middle, wider),
                None => high = middle,
            }
        }
        let wider = (1..TRIALS).rev().map(|trial| low + (low >> 8) * trial);
        wider.filter(|&width| width > low && width <= span).find_map(|width| self.cut(width)).or(Some(cut))
    }

    /// The segment with blocks of `width` codes; `None` if one exceeds a page.
    fn cut(&self, width: u128) -> Option<Cut> {
        let Self { keys, codes, .. } = *self;
        let (mut from, mut last) = (0, 0);
        while from < keys.len() {
            let block = (codes[from] - codes[0]) / width;
            if block >= self.blocks as u128 {
                return Some(Cut { keys: from, blocks: self.blocks });
            }
            let end = (block + 1).saturating_mul(width);
            let within = codes[from..].iter().take_while(|&&code| code - codes[0] < end);
            let to = from + within.take(PAGE / VALUE_LEN + 1).count();
            if len_of(&keys[from..to], VALUE_LEN) > PAGE {
                return None;
            }
            (from, last) = (to, block);
        }
        Some(Cut { keys: from, blocks: usize::try_from(last).ok()? + 1 })
    }
}
