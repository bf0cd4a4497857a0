//! Class of a position: which bytes have a rank of their own there, and which rank a byte has.
//!
//! The end of a key counts as a symbol below every byte. It always has rank 0. A range that begins one byte below the
//! lowest occurring byte therefore tells keys that end at the position from those that go on; the byte below the range
//! then shares the rank of the end, which keeps the order.

use pleach_coding::{Decoder, Malformed};

/// Numbers on disk. Never renumber.
const RANGE: u8 = 1;
const HEX: u8 = 2;
const SET: u8 = 3;
const SET_WITH_ENDS: u8 = 4;

/// Distinct sets of one encoder; a number of a set has 8 bits.
const SETS_MAX: usize = 256;

/// How the bytes of one position are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// All bytes from the first to the second, both included, by their distance from the first.
    Range(u8, u8),
    /// Lower-case hexadecimal digits.
    Hex,
    /// The bytes of the set with this number.
    Set(u8),
}

/// Rank of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// The symbol has a rank of its own.
    Exact(u64),
    /// The symbol is absent, and the next symbol below it has this rank.
    Above(u64),
    /// The symbol is absent and below all others.
    Below,
}

/// A set of bytes that is no range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// One bit for each byte that occurs.
    pub(super) bits: [u64; 4],
    /// Whether keys end here. The end has rank 0, and bytes have ranks from 1.
    pub(super) ends: bool,
}

impl Set {
    /// Whether `byte` is in it.
    pub(super) fn contains(&self, byte: u8) -> bool {
        self.bits.get(usize::from(byte >> 6)).is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }

    /// Adds `byte`.
    pub(super) fn insert(&mut self, byte: u8) {
        if let Some(word) = self.bits.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Its lowest and highest byte; `None` if it is empty.
    pub(super) fn bounds(&self) -> Option<(u8, u8)> {
        let lowest = (0..=255).find(|&byte| self.contains(byte))?;
        let highest = (0..=255).rev().find(|&byte| self.contains(byte))?;
        Some((lowest, highest))
    }

    /// How many of its bytes are below `byte`.
    fn below(&self, byte: u8) -> u64 {
        let whole = self.bits.iter().take(usize::from(byte >> 6)).map(|word| word.count_ones());
        let part = self.bits.get(usize::from(byte >> 6)).map_or(0, |word| word & ((1 << (byte & 63)) - 1));
        u64::from(whole.sum::<u32>() + part.count_ones())
    }

    pub(super) fn rank(&self, byte: u8) -> Rank {
        let rank = self.below(byte) + u64::from(self.ends);
        match rank.checked_sub(1) {
            _ if self.contains(byte) => Rank::Exact(rank),
            Some(below) => Rank::Above(below),
            None => Rank::Below,
        }
    }
}

impl Class {
    /// A range of `radix` ranks that contains this one, if it is a smaller range; otherwise the class itself.
    pub(super) fn widened(self, radix: u8) -> Self {
        match self {
            Self::Range(b'0'.., ..=b'9') if radix == 10 => Self::Range(b'0', b'9'),
            Self::Range(lowest, highest) if highest - lowest < radix && lowest <= 0xff - radix => {
                Self::Range(lowest, lowest + (radix - 1))
            }
            class => class,
        }
    }

    /// Number of ranks.
    pub(super) fn radix(self, sets: &[Set]) -> u64 {
        match self {
            Self::Range(lowest, highest) => u64::from(highest.saturating_sub(lowest)) + 1,
            Self::Hex => 16,
            Self::Set(no) => sets.get(usize::from(no)).map_or(1, |set| set.len() + u64::from(set.ends)),
        }
    }

    /// Rank of `byte`.
    pub(super) fn rank(self, byte: u8, sets: &[Set]) -> Rank {
        match self {
            Self::Range(lowest, _) if byte < lowest => Rank::Below,
            Self::Range(lowest, highest) if byte > highest => Rank::Above(u64::from(highest - lowest)),
            Self::Range(lowest, _) => Rank::Exact(u64::from(byte - lowest)),
            Self::Hex => match byte {
                0..b'0' => Rank::Below,
                b'0'..=b'9' => Rank::Exact(u64::from(byte - b'0')),
                b':'..b'a' => Rank::Above(9),
                b'a'..=b'f' => Rank::Exact(u64::from(byte - b'a') + 10),
                _ => Rank::Above(15),
            },
            Self::Set(no) => sets.get(usize::from(no)).map_or(Rank::Below, |set| set.rank(byte)),
        }
    }
}

/// Appends the stored form of `classes`: how often a class repeats, its kind, its bytes.
pub(super) fn encode(classes: &[Class], sets: &[Set], out: &mut Vec<u8>) {
    for equal in classes.chunk_by(|a, b| a == b) {
        out.push(u8::try_from(equal.len()).expect("an encoder has at most 255 positions"));
        match equal.first() {
            Some(Class::Range(lowest, highest)) => out.extend_from_slice(&[RANGE, *lowest, *highest]),
            Some(Class::Set(no)) => {
                let set = sets.get(usize::from(*no)).expect("a class refers to a set of its encoder");
                out.push(if set.ends { SET_WITH_ENDS } else { SET });
                out.extend(set.bits.iter().flat_map(|word| word.to_le_bytes()));
            }
            _ => out.push(HEX),
        }
    }
}

/// Decodes `count` classes and their sets from the front of `input`, of which `offset` tells the place.
pub(super) fn decode(
    input: &mut Decoder<'_>,
    count: usize,
    offset: &impl Fn(&Decoder<'_>) -> usize,
) -> Result<(Vec<Class>, Vec<Set>), Malformed> {
    let (mut classes, mut sets) = (Vec::with_capacity(count), Vec::new());
    while classes.len() < count {
        let at = offset(input);
        let (class, repeats) = take(input, &mut sets).ok_or(Malformed::new(at, "a class of a position"))?;
        if repeats == 0 || classes.len() + repeats > count {
            return Err(Malformed::new(at, "as many positions as there are").found(repeats as u64));
        }
        classes.extend(std::iter::repeat_n(class, repeats));
    }
    Ok((classes, sets))
}

/// The next class and how often it repeats.
fn take(input: &mut Decoder<'_>, sets: &mut Vec<Set>) -> Option<(Class, usize)> {
    let repeats = usize::from(input.u8()?);
    let class = match input.u8()? {
        RANGE => {
            let [lowest, highest] = input.array()?;
            (lowest <= highest).then_some(Class::Range(lowest, highest))?
        }
        HEX => Class::Hex,
        kind @ (SET | SET_WITH_ENDS) => {
            let mut set = Set { bits: [0; 4], ends: kind == SET_WITH_ENDS };
            for word in &mut set.bits {
                *word = u64::from_le_bytes(input.array()?);
            }
            if set.bits == [0; 4] {
                return None;
            }
            Class::Set(number_of(set, sets)?)
        }
        _ => return None,
    };
    Some((class, repeats))
}

/// Number of `set` among `sets`, to which it is added if it is missing. `None` if there are too many.
pub(super) fn number_of(set: Set, sets: &mut Vec<Set>) -> Option<u8> {
    let known = sets.iter().position(|&known| known == set);
    if known.is_none() {
        if sets.len() == SETS_MAX {
            return None;
        }
        sets.push(set);
    }
    u8::try_from(known.unwrap_or(sets.len() - 1)).ok()
}
