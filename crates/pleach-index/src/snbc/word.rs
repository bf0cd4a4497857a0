//! Eight neighbouring bytes of a key and their ranks, found together.
//!
//! The bytes are one 64-bit number, the first byte on top. Ranks of ranges and of hexadecimal digits come from a few
//! operations on that number (SIMD within a register). Each rank is then multiplied by the weight of its position. The
//! eight products do not depend on each other, unlike the steps of Horner's rule.

use super::class::{Class, Rank, Set};

/// One byte of 0x01, 0x06, 0x0f and so on at each place.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
/// Bytes of a word.
pub(super) const WORD_LEN: usize = 8;

/// How the ranks of a word are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All bytes have ranks.
    Any,
    /// Ranges within ASCII.
    Ascii,
    Ranges,
    /// Hexadecimal digits and constants.
    Hex,
    Tables,
}

/// The positions of eight bytes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Where the bytes begin in the key.
    offset: u32,
    kind: Kind,
    /// Leading bytes that belong to the word before, or to no position.
    pub(super) skipped: u8,
    /// Number of positions.
    pub(super) positions: u8,
    /// Number of the first position in the encoder.
    pub(super) first: u16,
    /// Lowest byte of each place. A key that ends early goes on with them.
    lowest: u64,
    /// Highest byte of each place.
    highest: u64,
    /// 0xff at places of hexadecimal digits, and at constants.
    hex: u64,
    constant: u64,
    /// What a rank counts at each place.
    weights: [u64; WORD_LEN],
    /// If all places have equally many ranks, the ranks are a number in that base.
    base: Option<Base>,
}

/// A base, and how the number is found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    /// The base, its square, and its fourth power.
    powers: [u64; 3],
    /// What the number counts.
    scale: u64,
    /// 0xff at the places of the digits.
    digits: u64,
    /// Bits behind the last digit.
    shift: u32,
}

/// Ranks of every byte in a set: `rank << 1 | 1` if it is in the set.
pub(super) type Table = [u16; 256];

impl Word {
    /// The word of `classes`, of which the first is number `first` in the encoder and at `start` in the key.
    ///
    /// Requires: at most eight classes, each with its weight.
    pub(super) fn new(start: usize, first: usize, classes: &[Class], weights: &[u64]) -> Self {
        // A word that ends with its last position is whole in every key that reaches that far.
        let end = start + classes.len();
        let offset = end.saturating_sub(WORD_LEN);
        let skipped = start - offset;
        let hexadecimal = classes.contains(&Class::Hex);
        let constant = |class: &Class| matches!(class, Class::Range(lowest, highest) if lowest == highest);
        let kind = if classes.iter().any(|class| matches!(class, Class::Set(_))) {
            Kind::Tables
        } else if !hexadecimal {
            let is_ascii = classes.iter().all(|class| matches!(class, Class::Range(_, 0..=0x7f)));
            let is_any = classes.iter().all(|class| *class == Class::Range(0, 0xff));
            if is_any {
                Kind::Any
            } else if is_ascii {
                Kind::Ascii
            } else {
                Kind::Ranges
            }
        } else if classes.iter().all(|class| *class == Class::Hex || constant(class)) {
            Kind::Hex
        } else {
            Kind::Tables
        };
        // Bytes of no position have any rank, and weight 0.
        let any = if kind == Kind::Ascii { 0x7f } else { 0xff };
        let mut bytes = [[0; WORD_LEN], [any; WORD_LEN], [0; WORD_LEN], [0; WORD_LEN]];
        let mut all_weights = [0; WORD_LEN];
        for (i, (class, weight)) in classes.iter().zip(weights).enumerate() {
            let (lowest, highest, hex, constant) = match *class {
                Class::Range(lowest, highest) if lowest == highest => (lowest, highest, 0, 0xff),
                Class::Range(lowest, highest) => (lowest, highest, 0, 0),
                Class::Hex => (b'0', b'f', 0xff, 0),
                Class::Set(_) => (0, 0xff, 0, 0),
            };
            for (of, byte) in bytes.iter_mut().zip([lowest, highest, hex, constant]) {
                of[skipped + i] = byte;
            }
            all_weights[skipped + i] = *weight;
        }
        let [lowest, highest, hex, constant] = bytes.map(number);
        let short = |n: usize| u8::try_from(n).expect("at most eight");
        Self {
            offset: u32::try_from(offset).expect("a key has fewer than 2^32 bytes"),
            kind,
            skipped: short(skipped),
            positions: short(classes.len()),
            first: u16::try_from(first).expect("an encoder has fewer than 300 positions"),
            lowest,
            highest,
            hex,
            constant,
            weights: all_weights,
            base: Base::of(skipped, classes, weights),
        }
    }

    /// The sum of ranks and weights; `None` if a byte has no rank of its own. `tables` finds the sum of a word with sets.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call costs a tenth of a search")]
    pub(super) fn encode(&self, key: &[u8], tables: impl Fn(&Self) -> Option<u64>) -> Option<u64> {
        let bytes = match key.get(self.offset as usize..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => number(*bytes),
            None => self.padded(key),
        };
        let ranks = match self.kind {
            Kind::Any => bytes,
            Kind::Ascii => self.ranks_in_ascii(bytes)?,
            Kind::Ranges => self.ranks_in_ranges(bytes)?,
            Kind::Hex => self.ranks_of_hex(bytes)?,
            Kind::Tables => return tables(self),
        };
        Some(self.weighted(ranks))
    }

    /// The bytes of a key that ends within the word, then the lowest bytes.
    #[inline(never)]
    fn padded(&self, key: &[u8]) -> u64 {
        let rest = key.len().saturating_sub(self.offset as usize);
        if rest == 0 {
            return self.lowest;
        }
        let missing = 8 * (WORD_LEN - rest);
        let rest_mask = u64::MAX << missing;
        let bytes = match key.last_chunk() {
            Some(last) => number(*last) << missing,
            None => pleach_coding::head(key.get(self.offset as usize..).unwrap_or_default()),
        };
        bytes & rest_mask | self.lowest & !rest_mask
    }

    #[inline]
    fn ranks_in_ascii(&self, bytes: u64) -> Option<u64> {
        let below = !((bytes | HIGHS) - self.lowest);
        let above = (bytes & !HIGHS) + (!HIGHS - self.highest);
        ((bytes | below | above) & HIGHS == 0).then(|| bytes.wrapping_sub(self.lowest))
    }

    #[inline]
    fn ranks_in_ranges(&self, bytes: u64) -> Option<u64> {
        let outside = !at_least(bytes, self.lowest) | !at_least(self.highest, bytes);
        (outside & HIGHS == 0).then(|| bytes.wrapping_sub(self.lowest))
    }

    /// Ranks of lower-case hexadecimal digits; at other places there are constants.
    #[inline]
    fn ranks_of_hex(&self, bytes: u64) -> Option<u64> {
        let digits = (bytes & (0x0f * ONES)) + ((bytes >> 6) & ONES) * 9;
        let letters = ((digits + 6 * ONES) >> 4) & ONES;
        let canonical = digits + 0x30 * ONES + letters * (0x61 - 0x3a);
        let outside = !at_least(bytes, self.lowest) | !at_least(self.highest, bytes);
        // The letters behind `f` would have ranks from 16 on.
        let wrong = (canonical ^ bytes | digits & (0x10 * ONES)) & self.hex | outside & HIGHS & !self.hex;
        (wrong == 0).then_some(digits & self.hex)
    }

    #[inline]
    fn weighted(&self, ranks: u64) -> u64 {
        if let Some(base) = &self.base {
            return base.number(ranks);
        }
        let ranks = bytes_of(ranks);
        let mut sum = 0_u64;
        for (rank, weight) in ranks.iter().zip(&self.weights) {
            sum = sum.wrapping_add(u64::from(*rank).wrapping_mul(*weight));
        }
        sum
    }

    #[inline(never)]
    pub(super) fn sum_of_tables(
        &self,
        key: &[u8],
        classes: &[Class],
        sets: &[Set],
        tables: &[Table],
    ) -> Option<u64> {
        let first = self.offset as usize + usize::from(self.skipped);
        let bytes = key.get(first..).unwrap_or_default();
        let mut sum = 0_u64;
        for ((byte, class), weight) in bytes.iter().zip(classes).zip(self.weights()) {
            let rank = match *class {
                Class::Set(no) => {
                    let entry = tables.get(usize::from(no)).and_then(|table| table.get(usize::from(*byte)));
                    let entry = entry.copied().unwrap_or(0);
                    (entry & 1 == 1).then_some(u64::from(entry >> 1))?
                }
                class => match class.rank(*byte, sets) {
                    Rank::Exact(rank) => rank,
                    _ => return None,
                },
            };
            sum = sum.wrapping_add(rank.wrapping_mul(*weight));
        }
        Some(sum)
    }

    /// Weights of the positions.
    pub(super) fn weights(&self) -> &[u64] {
        self.weights.get(usize::from(self.skipped)..).unwrap_or_default()
    }

    /// Where the first position is in the key.
    pub(super) fn start(&self) -> usize {
        self.offset as usize + usize::from(self.skipped)
    }
}

impl Base {
    /// The base of `classes`, which are behind `skipped` places. Constants may lead: their rank is 0.
    fn of(skipped: usize, classes: &[Class], weights: &[u64]) -> Option<Self> {
        let radix = |class: &Class| class.radix(&[]);
        let constants = classes.iter().take_while(|class| radix(class) == 1).count();
        let base = radix(classes.get(constants)?);
        let scale = *weights.last()?;
        let mut weight = scale;
        for (class, &expected) in classes.iter().zip(weights).skip(constants).rev() {
            if radix(class) != base || weight != expected || matches!(class, Class::Set(_)) {
                return None;
            }
            weight = weight.wrapping_mul(base);
        }
        let square = base * base;
        let shift = 8 * (WORD_LEN - skipped - classes.len());
        let digits = (u64::MAX >> (8 * (skipped + constants))) >> shift << shift;
        let shift = u32::try_from(shift).expect("below 64");
        Some(Self { powers: [base, square, square.wrapping_mul(square)], scale, digits, shift })
    }

    /// The number of digits. Neighbours are joined in all pairs at once, then pairs, then fours.
    #[inline]
    fn number(&self, ranks: u64) -> u64 {
        const BYTES: u64 = 0x00ff_00ff_00ff_00ff;
        const PAIRS: u64 = 0x0000_ffff_0000_ffff;
        let [base, square, fourth] = self.powers;
        let digits = (ranks & self.digits) >> self.shift;
        let pairs = (digits >> 8 & BYTES) * base + (digits & BYTES);
        let fours = (pairs >> 16 & PAIRS) * square + (pairs & PAIRS);
        let number = (fours >> 32).wrapping_mul(fourth).wrapping_add(fours & 0xffff_ffff);
        number.wrapping_mul(self.scale)
    }
}

/// The highest bit of each byte is set if the byte of `a` is at least that of `b`.
#[inline]
fn at_least(a: u64, b: u64) -> u64 {
    let low_bits = (a | HIGHS) - (b & !HIGHS);
    (a & !b) | (!(a ^ b) & low_bits)
}

#[inline]
#[expect(clippy::big_endian_bytes, reason = "the first byte of a key counts most")]
fn number(bytes: [u8; WORD_LEN]) -> u64 {
    u64::from_be_bytes(bytes)
}

#[inline]
#[expect(clippy::big_endian_bytes, reason = "as in `number`")]
fn bytes_of(number: u64) -> [u8; WORD_LEN] {
    number.to_be_bytes()
}
