//! The lower bits of residuals, kept only where a gap needs them.
//!
//! Most residuals of a segment have the fraction that its narrowest gaps ask for. In composite keys some gaps are one code
//! wide, within an order, and others are ten thousand times as wide, between two orders. A wide gap contains a *round*
//! residual, whose lower bits are 0. So residuals are stored without their lower bits; those of the narrow gaps are marked and
//! have theirs here. A search needs them only if a key is as near to a marked boundary as the upper bits tell.
//!
//! # Invariants
//! There are as many lower bits as marks, in the order of blocks. Checked by [`Fine::load`].
//!
//! # On disk
//! Layout: docs/format/sst.md, index block, layout 2.
//!
//! # Cost
//! A bit and a sixteenth for each block, and the lower bits of each mark. One branch in a search, which seldom depends on the
//! key.

use pleach_coding::bits::{BitWriter, PADDING, are_last_bits_zero, gather, mask, padded, unpadded};

use super::line::Shape;

/// Bits a boundary that lower bits apart must save. Arbitrary.
const SAVED_MIN: u64 = 1;
/// Words of marks that share a count.
const COUNTED_WORDS: usize = 8;

/// The lower bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fine {
    /// How many bits are apart; below 64.
    pub(super) bits: u32,
    /// Apart, because few searches read them.
    marked: Box<Marked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Marked {
    /// A bit for each block: whether the boundary before it has lower bits.
    marks: Box<[u64]>,
    /// How many marks there are before each group of words.
    counts: Box<[u32]>,
    /// The lower bits of each mark.
    numbers: Box<[u8]>,
}

impl Fine {
    /// Lower bits of `bits` each: where `marks` are, of the `blocks` blocks, the `numbers`.
    fn new(bits: u32, marks: Vec<u64>, numbers: Box<[u8]>) -> Self {
        let mut count = 0;
        let counts = marks.chunks(COUNTED_WORDS).map(|words| {
            let before = count;
            count += words.iter().map(|word| word.count_ones()).sum::<u32>();
            before
        });
        let counts = counts.collect();
        Self { bits, marked: Box::new(Marked { counts, marks: marks.into(), numbers }) }
    }

    /// Whether the boundary before `block` is above a position whose upper bits are the boundary's and whose lower ones are
    /// `rest`.
    #[cold]
    pub(super) fn is_above(&self, block: u32, rest: u64) -> bool {
        let Marked { marks: words, counts, numbers } = &*self.marked;
        let word = block as usize / 64;
        let Some(marks) = words.get(word) else { return false };
        if marks >> (block % 64) & 1 == 0 {
            return false;
        }
        let group = word / COUNTED_WORDS;
        let before = words.get(group * COUNTED_WORDS..word).unwrap_or_default();
        let count = before.iter().map(|word| word.count_ones()).sum::<u32>()
            + (marks & mask(block % 64)).count_ones()
            + counts.get(group).copied().unwrap_or(0);
        gather(numbers, u64::from(count) * u64::from(self.bits)) & mask(self.bits) > rest
    }

    /// Bytes of memory on the heap.
    pub(super) fn memory(&self) -> usize {
        let Marked { marks, counts, numbers } = &*self.marked;
        size_of::<Marked>() + size_of_val(&**marks) + size_of_val(&**counts) + numbers.len()
    }

    /// Appends the stored form: marks, then numbers.
    pub(super) fn store(&self, blocks: u32, out: &mut Vec<u8>) {
        let marks = self.marked.marks.iter().flat_map(|word| word.to_le_bytes());
        out.extend(marks.take(blocks.div_ceil(8) as usize));
        out.extend_from_slice(unpadded(&self.marked.numbers));
    }

    /// Decodes lower bits of `bits` each from all of `bytes`. `None` if there are not as many as marks, if the first block or
    /// one that does not exist has a mark, or if the bits behind the last ones are not 0.
    pub(super) fn load(bits: u32, blocks: u32, bytes: &[u8]) -> Option<Self> {
        let (marks, numbers) = bytes.split_at_checked(blocks.div_ceil(8) as usize)?;
        let words: Vec<u64> = marks
            .chunks(8)
            .map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
            .collect();
        let count: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let number_bits = count * u64::from(bits);
        let is_whole =
            numbers.len() as u64 == number_bits.div_ceil(8) && are_last_bits_zero(numbers, number_bits);
        let is_inside =
            words.first().is_none_or(|word| word & 1 == 0) && are_last_bits_zero(marks, blocks.into());
        (is_whole && is_inside).then(|| Self::new(bits, words, padded(numbers, PADDING)))
    }
}

/// How many bits are best apart from the residuals of segments with these `shapes` and least and greatest residuals; 0 if that
/// saves less than [`SAVED_MIN`].
pub(super) fn fine_bits(
    shapes: impl Iterator<Item = Shape>,
    residuals: impl Iterator<Item = (u64, u64)>,
) -> u32 {
    let shapes = shapes.filter(|shape| shape.width > 0);
    let bits_max = shapes.map(|shape| shape.fraction.min(shape.width - 1)).min().unwrap_or(0);
    // How many boundaries have so round a residual and no rounder one.
    let mut counts = [0_u64; 65];
    for (least, most) in residuals {
        let zeros = least.checked_sub(1).map_or(64, |below| 63 - (below ^ most).leading_zeros().min(63));
        if let Some(count) = counts.get_mut(zeros as usize) {
            *count += 1;
        }
    }
    let all: u64 = counts.iter().sum();
    let (mut best, mut marked) = ((0, 0), 0);
    for (bits, count) in (1..=bits_max).zip(counts) {
        marked += count;
        best = best.max((u64::from(bits) * (all - marked), bits));
    }
    // Marks take a bit themselves, and counts of marks a sixteenth.
    if best.0 * 16 > (16 * SAVED_MIN + 17) * all { best.1 } else { 0 }
}

/// Lower bits under construction.
pub(super) struct FineBuilder {
    bits: u32,
    marks: Vec<u64>,
    numbers: BitWriter,
}

impl FineBuilder {
    /// For `blocks` blocks.
    pub(super) fn new(bits: u32, blocks: u32) -> Self {
        Self { bits, marks: vec![0; blocks.div_ceil(64) as usize], numbers: BitWriter::default() }
    }

    /// The upper bits of a residual from `least` to `most` for the boundary before `block`.
    pub(super) fn upper(&mut self, block: u32, least: u64, most: u64) -> u64 {
        let upper = most >> self.bits;
        if upper << self.bits >= least {
            return least.div_ceil(1 << self.bits);
        }
        if let Some(word) = self.marks.get_mut(block as usize / 64) {
            *word |= 1 << (block % 64);
        }
        self.numbers.push(least & mask(self.bits), self.bits);
        upper
    }

    pub(super) fn finish(self) -> Fine {
        Fine::new(self.bits, self.marks, self.numbers.finish())
    }
}
