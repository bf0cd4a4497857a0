//! Training of an encoder from separators alone, so that codes tell what is below a separator from what is not.
//!
//! A separator is a point: of the keys around it nothing is known. So all keys below it must have smaller codes than the
//! separator itself. They have, if its last byte has a rank above 0: [`crate::from_separators`] has the argument. Where that
//! byte is the lowest of its position, a rank is reserved below it, as for keys that end there.
//!
//! Codes reach as many positions as make the index small. Each further position makes residuals wider. A separator that is
//! longer than the codes reach is kept as it is.

use super::class::Rank;
use super::train::{Occurring, keep_used};
use super::{Class, POSITIONS_MAX, Set, Snbc, Split};
use crate::separators::Separators;

/// Of so many boundaries, one may have a separator that is longer than codes reach.
const LONG_MAX: usize = 16;
/// Bytes of a separator that is kept, besides its own.
const KEPT_OVERHEAD: usize = 8;
/// A position that one of so many separators reaches gets all ranks of its digits: a lookup is slow at a byte without a
/// rank. Arbitrary.
const SELDOM: u64 = 8;

/// The separators of an SST.
pub(crate) struct Points {
    /// A prefix that all of them share. Every separator is longer.
    pub(crate) prefix: Vec<u8>,
    /// What is behind the prefix, one separator behind the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Points {
    /// The points of `separators`; `None` if there is none, or one is empty.
    pub(crate) fn new(separators: &Separators) -> Option<Self> {
        let mut prefix = separators.prefix().to_vec();
        // Only the first separator can be the shared prefix.
        let mut first = None;
        separators.for_each(|head, _| first = first.or(Some(head.is_empty())));
        let moved = if first? { Some(prefix.pop()?) } else { None };
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(separators.blocks() as usize));
        separators.for_each(|head, tail| {
            bytes.extend(moved);
            bytes.extend_from_slice(head);
            bytes.extend_from_slice(tail);
            ends.push(bytes.len());
        });
        Some(Self { prefix, bytes, ends })
    }

    /// Number of separators.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// What each separator has behind the prefix.
    pub(crate) fn suffixes(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }
}

/// An alphabet, and the lowest byte with which a separator ends there.
#[derive(Clone, Copy, Default)]
struct Ending {
    occurring: Occurring,
    lowest_last: Option<u8>,
}

impl Ending {
    /// The class of the position, in which bytes that end a separator have ranks above 0.
    fn class(&self, hexadecimal: bool, separators: usize, sets: &mut Vec<Set>) -> Option<Class> {
        let mut occurring = self.occurring;
        let is_above = |byte: u8| self.lowest_last.is_none_or(|last| byte < last);
        if hexadecimal && occurring.is_of_hexadecimal() && is_above(b'0') {
            return Some(Class::Hex);
        }
        let (lowest, _) = occurring.set.bounds()?;
        occurring.set.ends = !is_above(lowest);
        let class = occurring.class(false, sets)?;
        let digits = if hexadecimal { 16 } else { 10 };
        let radix = class.radix(sets);
        let is_seldom = occurring.keys * SELDOM < separators as u64;
        let is_wide = radix * 2 >= u64::from(digits);
        Some(if is_seldom || is_wide { class.widened(digits) } else { class })
    }
}

/// The encoder for `points`, and how many bytes behind the prefix its codes tell apart. `None` if too many separators are
/// longer than 64 bits reach.
pub(crate) fn train_at_points(points: &Points) -> Option<(Snbc, usize)> {
    let endings = endings(points);
    let hexadecimal = endings.iter().any(|at| at.occurring.seems_hexadecimal());
    let mut long = Long::of(points);
    let (mut classes, mut sets) = (Vec::new(), Vec::new());
    let (mut product, mut best) = (1_u128, None);
    for (no, ending) in endings.iter().enumerate() {
        let Some(class) = ending.class(hexadecimal, points.len(), &mut sets) else { break };
        product *= u128::from(class.radix(&sets));
        // One more than the largest code is a number too.
        if product >= 1 << 64 {
            break;
        }
        classes.push(class);
        long.leave_out(no + 1);
        let code_bits = (128 - (product - 1).leading_zeros()) as usize;
        let bits = points.len() * code_bits + long.bits(points.len());
        if long.count * LONG_MAX <= points.len() && best.is_none_or(|(least, _)| bits < least) {
            best = Some((bits, no + 1));
        }
    }
    let (_, reach) = best?;
    classes.truncate(reach);
    keep_used(&mut sets, &classes);
    debug_assert!(
        points.suffixes().all(|suffix| is_told_apart(suffix, &classes, &sets)),
        "ranks of last bytes"
    );
    Snbc::new(&points.prefix, &classes, Split::Whole, sets).map(|encoder| (encoder, reach))
}

/// Whether the last byte of a separator that codes reach has a rank above 0.
fn is_told_apart(suffix: &[u8], classes: &[Class], sets: &[Set]) -> bool {
    let Some((last, before)) = suffix.split_last() else { return false };
    let class = classes.get(before.len());
    class.is_none_or(|class| matches!(class.rank(*last, sets), Rank::Exact(1..)))
}

/// The alphabets of all positions that separators reach.
fn endings(points: &Points) -> Vec<Ending> {
    let longest = points.suffixes().map(<[u8]>::len).max().unwrap_or(0);
    let mut endings = vec![Ending::default(); longest.min(POSITIONS_MAX)];
    for suffix in points.suffixes() {
        for (at, byte) in endings.iter_mut().zip(suffix) {
            at.occurring.set.insert(*byte);
            at.occurring.keys += 1;
        }
        if let Some((last, before)) = suffix.split_last()
            && let Some(at) = endings.get_mut(before.len())
        {
            at.lowest_last = Some(at.lowest_last.map_or(*last, |lowest| lowest.min(*last)));
        }
    }
    endings
}

/// The separators that are longer than codes reach.
struct Long {
    /// Number and bytes of the separators of each length.
    by_len: Vec<(usize, usize)>,
    count: usize,
    bytes: usize,
}

impl Long {
    fn of(points: &Points) -> Self {
        let mut by_len = vec![(0, 0); POSITIONS_MAX + 1];
        let mut bytes = 0;
        for suffix in points.suffixes() {
            let len = suffix.len() + KEPT_OVERHEAD;
            bytes += len;
            if let Some(of_len) = by_len.get_mut(suffix.len()) {
                *of_len = (of_len.0 + 1, of_len.1 + len);
            }
        }
        Self { by_len, count: points.len(), bytes }
    }

    /// Leaves out the separators of `reach` bytes.
    fn leave_out(&mut self, reach: usize) {
        let (count, bytes) = self.by_len.get(reach).copied().unwrap_or_default();
        self.count -= count;
        self.bytes -= bytes;
    }

    /// Bits that they take, and the bit of each boundary that marks them.
    fn bits(&self, boundaries: usize) -> usize {
        8 * self.bytes + if self.count > 0 { boundaries } else { 0 }
    }
}
