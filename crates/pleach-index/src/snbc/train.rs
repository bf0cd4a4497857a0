//! Training of an encoder from the keys at block boundaries.
//!
//! The keys between the boundaries are gone when an SST is finished, and they are not needed: encoding is monotone for any
//! key, so an index is exact if it is exact at the boundaries.
//!
//! Of two keys at a boundary, the bytes up to the first difference and a few more are kept. A key that is cut off stands
//! for all keys that begin so: the first key of a block for the least of them, the last key of a block for the greatest.

use pleach_coding::common_prefix_len;

use super::class::number_of;
use super::tail::with_tail;
use super::{Class, POSITIONS_MAX, Set, Snbc, Split};

/// Bytes kept from the first difference on. More would widen the gaps at boundaries by less than a millionth.
const KEPT: usize = 12;
/// Positions behind the last that tells two keys apart: they widen gaps that are one rank wide there. Arbitrary.
const EXTRA_POSITIONS: usize = 2;
/// Of so many boundaries, one may be between keys that differ behind a position that is rarely reached. Arbitrary.
const RARELY: usize = 64;
/// Below so many keys, a digit's position may lack letters by chance.
const FEW: u64 = 64;

/// The keys at the boundaries of an SST's blocks.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// For each boundary: the beginning of the first key, then the rest of the last key from the first difference on.
    bytes: Vec<u8>,
    boundaries: Vec<Boundary>,
    /// Length of the prefix that all keys share.
    shared: usize,
    /// The largest `differ`.
    differ_max: usize,
}

#[derive(Debug)]
struct Boundary {
    /// End in `bytes`.
    end: usize,
    /// Bytes kept of the first key.
    first_len: usize,
    /// Bytes that both keys share.
    differ: usize,
    first_is_whole: bool,
    last_is_whole: bool,
}

/// The keys around one boundary, as far as they are kept.
struct Around<'a> {
    boundary: &'a Boundary,
    first: &'a [u8],
    last_rest: &'a [u8],
}

impl Keys {
    /// Adds a boundary; both keys have `differ` bytes in common. `false` if no encoder can tell the keys apart: then
    /// nothing is kept any more.
    pub(crate) fn push(&mut self, last: &[u8], first: &[u8], differ: usize) -> bool {
        let shared = if self.boundaries.is_empty() {
            differ
        } else {
            common_prefix_len(self.bytes.get(..self.shared).unwrap_or_default(), first).min(differ)
        };
        self.shared = shared;
        self.differ_max = self.differ_max.max(differ);
        if self.differ_max >= shared + POSITIONS_MAX {
            *self = Self::default();
            return false;
        }
        let first_len = first.len().min(differ + KEPT);
        let last_len = last.len().min(differ + KEPT);
        self.bytes.extend_from_slice(first.get(..first_len).unwrap_or_default());
        self.bytes.extend_from_slice(last.get(differ..last_len).unwrap_or_default());
        self.boundaries.push(Boundary {
            end: self.bytes.len(),
            first_len,
            differ,
            first_is_whole: first_len == first.len(),
            last_is_whole: last_len == last.len(),
        });
        true
    }

    /// Number of boundaries.
    pub(crate) fn len(&self) -> usize {
        self.boundaries.len()
    }

    fn iter(&self) -> impl Iterator<Item = Around<'_>> {
        let starts = std::iter::once(0).chain(self.boundaries.iter().map(|boundary| boundary.end));
        starts.zip(&self.boundaries).map(|(start, boundary)| {
            let bytes = self.bytes.get(start..boundary.end).unwrap_or_default();
            let (first, last_rest) = bytes.split_at_checked(boundary.first_len).unwrap_or_default();
            Around { boundary, first, last_rest }
        })
    }

    /// For each boundary, the codes of the last key before it and of the first key behind it. `None` if two are equal.
    pub(crate) fn gaps<C: Ord>(&self, encode: impl Fn(&[u8]) -> C) -> Option<Vec<(C, C)>> {
        let mut last = Vec::new();
        let mut gaps = Vec::with_capacity(self.len());
        for around in self.iter() {
            self.put_last(&around, &mut last);
            let gap = (encode(&last), encode(around.first));
            if gap.0 >= gap.1 {
                return None;
            }
            gaps.push(gap);
        }
        Some(gaps)
    }

    /// Puts the last key before a boundary into `last`; if it was cut off, the greatest one that begins so.
    fn put_last(&self, around: &Around<'_>, last: &mut Vec<u8>) {
        last.clear();
        last.extend_from_slice(around.first.get(..around.boundary.differ).unwrap_or_default());
        last.extend_from_slice(around.last_rest);
        if !around.boundary.last_is_whole {
            last.resize(self.shared + POSITIONS_MAX, 0xff);
        }
    }

    /// Passes both keys of each boundary to `take`.
    pub(super) fn each_end(&self, mut take: impl FnMut(&[u8])) {
        let mut last = Vec::new();
        for around in self.iter() {
            self.put_last(&around, &mut last);
            take(&last);
            take(around.first);
        }
    }

    /// Passes what about `count` of the first keys have behind the shared prefix to `take`.
    pub(super) fn each_sampled(&self, count: usize, mut take: impl FnMut(&[u8])) {
        let step = self.len().div_ceil(count.max(1)).max(1);
        for around in self.iter().step_by(step) {
            take(around.first.get(self.shared..).unwrap_or_default());
        }
    }

    /// The first position behind the shared prefix at which, or behind which, few keys at boundaries differ.
    fn rarely_reached(&self) -> usize {
        let mut counts = vec![0_usize; self.differ_max + 1 - self.shared];
        for boundary in &self.boundaries {
            if let Some(count) = counts.get_mut(boundary.differ - self.shared) {
                *count += 1;
            }
        }
        let mut behind = 0;
        let is_rare = |count: &&usize| {
            behind += **count;
            behind * RARELY <= self.len()
        };
        counts.len() - counts.iter().rev().take_while(is_rare).count()
    }

    /// The bytes that occur at each of the first `count` positions behind the shared prefix.
    fn sets(&self, count: usize) -> Vec<Occurring> {
        let mut occurring = vec![Occurring::default(); count];
        let mut add = |bytes: &[u8], position: usize, is_whole: bool| {
            for (at, byte) in occurring.iter_mut().skip(position).zip(bytes) {
                at.set.insert(*byte);
                at.keys += 1;
            }
            if is_whole && let Some(at) = occurring.get_mut(position + bytes.len()) {
                at.set.ends = true;
            }
        };
        for around in self.iter() {
            let boundary = around.boundary;
            add(around.first.get(self.shared..).unwrap_or_default(), 0, boundary.first_is_whole);
            add(around.last_rest, boundary.differ - self.shared, boundary.last_is_whole);
        }
        occurring
    }
}

/// What occurs at a position.
#[derive(Clone, Copy, Default)]
pub(super) struct Occurring {
    pub(super) set: Set,
    /// How many keys reach it.
    pub(super) keys: u64,
}

impl Occurring {
    /// How many of the bytes are letters and how many are digits in hexadecimal; `None` if there are others.
    fn hexadecimal(&self) -> Option<(u64, u64)> {
        let letters = (b'a'..=b'f').filter(|&byte| self.set.contains(byte)).count() as u64;
        let digits = (b'0'..=b'9').filter(|&byte| self.set.contains(byte)).count() as u64;
        (letters + digits == self.set.len() && !self.set.ends).then_some((letters, digits))
    }

    /// Whether the bytes are likely hexadecimal digits.
    pub(super) fn seems_hexadecimal(&self) -> bool {
        self.hexadecimal().is_some_and(|(letters, digits)| letters >= 3 && digits >= 3)
    }

    /// Whether the position gets the class of hexadecimal digits, in keys that have some.
    pub(super) fn is_of_hexadecimal(&self) -> bool {
        self.set.len() > 1
            && self
                .hexadecimal()
                .is_some_and(|(letters, digits)| letters > 0 || digits <= 3 || self.keys < FEW)
    }

    /// The class of the position; `None` if no byte occurs, or there are too many sets.
    pub(super) fn class(&self, hexadecimal: bool, sets: &mut Vec<Set>) -> Option<Class> {
        let (lowest, highest) = self.set.bounds()?;
        if hexadecimal && self.is_of_hexadecimal() {
            return Some(Class::Hex);
        }
        let span = u64::from(highest - lowest) + 1;
        if self.set.len() * 2 >= span.min(self.keys) && (!self.set.ends || lowest > 0) {
            return Some(Class::Range(lowest - u8::from(self.set.ends), highest));
        }
        number_of(self.set, sets).map(Class::Set)
    }
}

/// The encoder for `keys`; with codes of 128 bits if it is to be `wide`. `None` if its positions do not reach far enough to
/// tell the keys at each boundary apart.
pub(crate) fn train(keys: &Keys, wide: bool) -> Option<Snbc> {
    let first = keys.bytes.get(..keys.shared)?;
    let needed = keys.differ_max + 1 - keys.shared;
    let wanted = (needed + EXTRA_POSITIONS).min(POSITIONS_MAX);
    let occurring = keys.sets(wanted);
    let ranked = [keys.rarely_reached(), wanted].map(|even_from| ranked(&occurring, wide, even_from));
    let Ranked { classes, sets, upper } = ranked.into_iter().find(|ranked| ranked.classes.len() >= needed)?;
    let split = if upper > 0 { Split::Wide { first: upper } } else { Split::Whole };
    let snbc = Snbc::new(first, &classes, split, sets)?;
    Some(if upper > 0 { snbc } else { with_tail(snbc, keys) })
}

/// Classes of positions, as far as they fit a code.
struct Ranked {
    classes: Vec<Class>,
    sets: Vec<Set>,
    /// How many of them are in the upper half of a code of 128 bits.
    upper: usize,
}

/// The classes of `occurring`. Positions from `even_from` on get equally many ranks if they can: that is faster to encode,
/// and the codes that it wastes are below most boundaries.
fn ranked(occurring: &[Occurring], wide: bool, even_from: usize) -> Ranked {
    let hexadecimal = occurring.iter().any(Occurring::seems_hexadecimal);
    let (mut classes, mut sets) = (Vec::new(), Vec::new());
    let (mut upper, mut product) = (0, 1_u128);
    for (no, at) in occurring.iter().enumerate() {
        let Some(mut class) = at.class(hexadecimal, &mut sets) else { break };
        if no >= even_from {
            class = class.widened(if hexadecimal { 16 } else { 10 });
        }
        let radix = u128::from(class.radix(&sets));
        product *= radix;
        if product > 1 << 64 {
            if !wide || upper > 0 {
                break;
            }
            upper = classes.len();
            product = radix;
        }
        classes.push(class);
    }
    // The class that did not fit may have left a set behind.
    keep_used(&mut sets, &classes);
    Ranked { classes, sets, upper }
}

/// Removes the sets behind the last one that `classes` use.
pub(super) fn keep_used(sets: &mut Vec<Set>, classes: &[Class]) {
    let used =
        classes.iter().filter_map(|class| if let Class::Set(no) = class { Some(*no) } else { None }).max();
    sets.truncate(used.map_or(0, |no| usize::from(no) + 1));
}
