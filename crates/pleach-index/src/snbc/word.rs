//! Eight neighbouring bytes of a key and their ranks, found together.
//!
//! The bytes are one 64-bit number, the first byte on top. Ranks of ranges and of hexadecimal digits come from a few
//! operations on that number (SIMD within a register). Each rank is then multiplied by the weight of its position. The
//! eight products do not depend on each other, unlike the steps of Horner's rule.

use super::class::{Class, Rank, Set};
#[cfg(target_arch = "x86_64")]
use super::lanes::Lanes;

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
    /// Hexadecimal digits and ranges.
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
    /// 0xff at places of hexadecimal digits, and at places of positions.
    hex: u64,
    used: u64,
    sum: Sum,
}

/// How ranks become a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    /// The ranks are digits of one base.
    Digits {
        base: Base,
        /// 0xff at the places of the digits.
        mask: u64,
        /// What the number counts.
        scale: u64,
    },
    /// The same, by vector instructions.
    #[cfg(target_arch = "x86_64")]
    Lanes(Lanes),
    /// What a rank counts at each place.
    Weights([u64; WORD_LEN]),
}

/// A base, and the multipliers that join digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// At most 16: two digits fit one byte. The base, then the multipliers of even and of odd pairs.
    Small([u64; 3]),
    /// The base, its square, and its fourth power.
    Any([u64; 3]),
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
        let in_ascii = |class: &Class| matches!(class, Class::Range(_, 0..=0x7f) | Class::Hex);
        let is_ascii = classes.iter().all(in_ascii);
        let kind = if classes.iter().any(|class| matches!(class, Class::Set(_))) || (hexadecimal && !is_ascii)
        {
            Kind::Tables
        } else if hexadecimal {
            Kind::Hex
        } else if is_ascii {
            Kind::Ascii
        } else if classes.iter().all(|class| *class == Class::Range(0, 0xff)) {
            Kind::Any
        } else {
            Kind::Ranges
        };
        // Bytes of no position have any rank, and weight 0.
        let any = if is_ascii { 0x7f } else { 0xff };
        let mut bytes = [[0; WORD_LEN], [any; WORD_LEN], [0; WORD_LEN], [0; WORD_LEN]];
        let mut all_weights = [0; WORD_LEN];
        for (i, (class, weight)) in classes.iter().zip(weights).enumerate() {
            let (lowest, highest, hex) = match *class {
                Class::Range(lowest, highest) => (lowest, highest, 0),
                Class::Hex => (b'0', b'f', 0xff),
                Class::Set(_) => (0, 0xff, 0),
            };
            for (of, byte) in bytes.iter_mut().zip([lowest, highest, hex, 0xff]) {
                of[skipped + i] = byte;
            }
            all_weights[skipped + i] = *weight;
        }
        let [lowest, highest, hex, used] = bytes.map(number);
        let sum = Sum::digits(skipped, classes, weights).unwrap_or(Sum::Weights(all_weights));
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
            used,
            sum,
        }
    }

    /// The word of the same `classes`, by vector instructions if there are any for it.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn in_lanes(mut self, classes: &[Class], weights: &[u64]) -> Self {
        if let Some(scale) = weights.last()
            && classes.iter().all(|class| !matches!(class, Class::Set(_)))
        {
            let mut bases = [0; WORD_LEN];
            for (base, class) in bases.iter_mut().skip(self.skipped.into()).zip(classes) {
                *base = class.radix(&[]);
            }
            self.sum = Lanes::new(bases, *scale).map_or(self.sum, Sum::Lanes);
        }
        self
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn in_lanes(self, _classes: &[Class], _weights: &[u64]) -> Self {
        self
    }

    /// Where the bytes of the word end in a key, if it is encoded in lanes.
    pub(super) fn lanes_end(&self) -> usize {
        match self.sum {
            #[cfg(target_arch = "x86_64")]
            Sum::Lanes(_) => self.offset as usize + WORD_LEN,
            _ => usize::MAX,
        }
    }

    /// `sum` and the number of the word. `None` if a byte has no rank of its own, if the key ends before, or if the word has no
    /// lanes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call costs a tenth of a search")]
    pub(super) fn encode_in_lanes(&self, key: &[u8], sum: u64) -> Option<u64> {
        let bytes = number(*key.get(self.offset as usize..)?.first_chunk()?);
        match &self.sum {
            #[cfg(target_arch = "x86_64")]
            Sum::Lanes(lanes) => Some(sum.wrapping_add(lanes.number(bytes, self.lowest, self.hex)?)),
            _ => None,
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
        #[cfg(target_arch = "x86_64")]
        if let Sum::Lanes(lanes) = &self.sum {
            return lanes.number(bytes, self.lowest, self.hex);
        }
        self.sum_of_ranks(bytes, || tables(self))
    }

    /// As [`Word::encode`], of ranks that are found in a register or in tables.
    #[inline(never)]
    fn sum_of_ranks(&self, bytes: u64, tables: impl Fn() -> Option<u64>) -> Option<u64> {
        let ranks = match self.kind {
            Kind::Any => bytes,
            Kind::Ascii => self.ranks_in_ascii(bytes)?,
            Kind::Ranges => self.ranks_in_ranges(bytes)?,
            Kind::Hex => self.ranks_of_hex(bytes)?,
            Kind::Tables => return tables(),
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
        (self.outside_ascii(bytes) == 0).then(|| bytes.wrapping_sub(self.lowest))
    }

    /// Not 0 if a byte is outside its range, which is within ASCII.
    #[inline]
    fn outside_ascii(&self, bytes: u64) -> u64 {
        let below = !((bytes | HIGHS) - self.lowest);
        let above = (bytes & !HIGHS) + (!HIGHS - self.highest);
        (bytes & self.used | below | above) & HIGHS
    }

    #[inline]
    fn ranks_in_ranges(&self, bytes: u64) -> Option<u64> {
        let outside = !at_least(bytes, self.lowest) | !at_least(self.highest, bytes);
        (outside & HIGHS == 0).then(|| bytes.wrapping_sub(self.lowest))
    }

    /// Ranks of lower-case hexadecimal digits, and of ranges within ASCII.
    #[inline]
    fn ranks_of_hex(&self, bytes: u64) -> Option<u64> {
        let digits = (bytes & (0x0f * ONES)) + ((bytes >> 6) & ONES) * 9;
        let letters = ((digits + 6 * ONES) >> 4) & ONES;
        let canonical = digits + 0x30 * ONES + letters * (0x61 - 0x3a);
        let wrong = (canonical ^ bytes) & self.hex | self.outside_ascii(bytes);
        (wrong == 0).then(|| digits & self.hex | bytes.wrapping_sub(self.lowest) & !self.hex)
    }

    #[inline]
    fn weighted(&self, ranks: u64) -> u64 {
        match &self.sum {
            Sum::Digits { base, mask, scale } => base.number(ranks & mask).wrapping_mul(*scale),
            #[cfg(target_arch = "x86_64")]
            Sum::Lanes(_) => unreachable!("they need no ranks"),
            Sum::Weights(weights) => {
                let ranks = bytes_of(ranks).map(u64::from);
                let products = ranks.iter().zip(weights).map(|(rank, weight)| rank.wrapping_mul(*weight));
                products.fold(0, u64::wrapping_add)
            }
        }
    }

    #[inline(never)]
    pub(super) fn sum_of_tables(
        &self,
        key: &[u8],
        classes: &[Class],
        weights: &[u64],
        sets: &[Set],
        tables: &[Table],
    ) -> Option<u64> {
        let first = self.offset as usize + usize::from(self.skipped);
        let bytes = key.get(first..).unwrap_or_default();
        let mut sum = 0_u64;
        for ((byte, class), weight) in bytes.iter().zip(classes).zip(weights) {
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

    /// Where the first position is in the key.
    pub(super) fn start(&self) -> usize {
        self.offset as usize + usize::from(self.skipped)
    }
}

impl Sum {
    /// The digits of `classes`, which are behind `skipped` places. `None` if they have no common base; how many ranks the first
    /// one has does not matter. Constants may lead: their rank is 0.
    fn digits(skipped: usize, classes: &[Class], weights: &[u64]) -> Option<Self> {
        if classes.iter().any(|class| matches!(class, Class::Set(_))) {
            return None;
        }
        let radix = |class: &Class| class.radix(&[]);
        let constants = classes.iter().take_while(|class| radix(class) == 1).count();
        let digits = classes.get(constants..)?;
        let base = radix(digits.last()?);
        let scale = *weights.last()?;
        let mut weight = scale;
        for (class, &expected) in digits.iter().zip(weights.get(constants..)?).skip(1).rev() {
            if radix(class) != base || weight != expected {
                return None;
            }
            weight = weight.wrapping_mul(base);
        }
        let is_last = skipped + classes.len() == WORD_LEN;
        let first = digits.first().filter(|_| is_last)?;
        let mask = u64::MAX >> (8 * (skipped + constants));
        let square = base * base;
        let base = if base.max(radix(first)) <= 16 {
            Base::Small([base, square * square + (1 << 32), square * square * square + (square << 32)])
        } else {
            Base::Any([base, square, square.wrapping_mul(square)])
        };
        Some(Self::Digits { base, mask, scale })
    }
}

impl Base {
    /// The number of digits: neighbours are joined in all pairs at once, then pairs, then fours.
    #[inline]
    fn number(&self, digits: u64) -> u64 {
        const PAIRS: u64 = 0x0000_00ff_0000_00ff;
        const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
        const FOURS: u64 = 0x0000_ffff_0000_ffff;
        match *self {
            Self::Small([base, even, odd]) => {
                // Every second byte, from the top on, is a pair.
                let pairs = digits.wrapping_mul(base).wrapping_add(digits << 8);
                let even = (pairs >> 8 & PAIRS).wrapping_mul(even);
                let odd = (pairs >> 24 & PAIRS).wrapping_mul(odd);
                even.wrapping_add(odd) >> 32
            }
            Self::Any([base, square, fourth]) => {
                let pairs = (digits >> 8 & EVEN) * base + (digits & EVEN);
                let fours = (pairs >> 16 & FOURS) * square + (pairs & FOURS);
                (fours >> 32).wrapping_mul(fourth).wrapping_add(fours & 0xffff_ffff)
            }
        }
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
