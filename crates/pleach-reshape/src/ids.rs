//! Row ids: generation, stripe and sequence as one number, and the allocator that gives them without a lock.
//!
//! A *stripe* is a counter of its own, so that writers of several threads append at several places. A *generation* is a set
//! of tables; when its sequences are exhausted, rows move to the next one. The id says both, so that the map needs no more
//! than 8 bytes for a place.
//!
//! # Invariants
//! 1. Unique: no id is given twice in a generation, also after a crash, if the map may name it. The open goes on behind the
//!    last row of each stripe and behind what the map's records say.
//! 2. First: sequences begin at 1, because some stores know no record 0.
//!
//! # Concurrency
//! Counters are atomics. They are replaced, for a new generation, while no writer holds an id that is not published.

use std::sync::atomic::{AtomicU64, Ordering};

use pleach::env::sync::{Mutex, OwnLine};

use crate::map::Key;
use crate::options::Stripes;
use crate::store::{Place, Table};

/// Bits of a sequence in an [`Id`].
const SEQUENCE_BITS: u32 = 56;
/// Bits of a stripe in an [`Id`].
const STRIPE_BITS: u32 = 7;
/// Most stripes, the one of moved rows included.
pub(crate) const STRIPES_MAX: usize = 1 << STRIPE_BITS;
/// The first sequence of a stripe.
const SEQUENCE_FIRST: u64 = 1;

/// A row's id in all tables: a bit of the generation, a stripe, a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u64);

impl Id {
    pub(crate) fn new(generation: u64, stripe: usize, sequence: u64) -> Self {
        Self((generation & 1) << 63 | (stripe as u64) << SEQUENCE_BITS | sequence)
    }

    /// Whether it is of this generation, if it is of this one or the one before.
    pub(crate) fn is_of(self, generation: u64) -> bool {
        self.0 >> 63 == generation & 1
    }

    pub(crate) fn stripe(self) -> usize {
        (self.0 >> SEQUENCE_BITS) as usize & (STRIPES_MAX - 1)
    }

    pub(crate) fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }
}

/// How ids become places. Fixed when a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Stripes of writers. Moved rows have one more.
    pub(crate) stripes: usize,
    pub(crate) sequence_bits: u32,
    /// Whether each stripe has a table of its own.
    pub(crate) has_tables: bool,
}

impl Layout {
    pub(crate) fn new(stripes: Stripes, sequence_bits: u32) -> Self {
        let (stripes, has_tables) = match stripes {
            Stripes::One => (1, false),
            Stripes::Ranges(count) => (count, false),
            Stripes::Tables(count) => (count, true),
        };
        Self { stripes, sequence_bits, has_tables }
    }

    /// The stripe of moved rows.
    pub(crate) fn stripe_of_moves(self) -> usize {
        self.stripes
    }

    /// Stripes, that of moved rows included.
    pub(crate) fn stripe_count(self) -> usize {
        self.stripes + 1
    }

    /// The greatest sequence of a stripe.
    pub(crate) fn sequence_last(self) -> u64 {
        (1 << self.sequence_bits) - 1
    }

    pub(crate) fn place(self, id: Id) -> Place {
        self.place_of(id.0 >> 63, id.stripe(), id.sequence())
    }

    fn place_of(self, generation: u64, stripe: usize, sequence: u64) -> Place {
        let table = self.table(generation, stripe);
        let id = if self.has_tables { sequence } else { (stripe as u64) << self.sequence_bits | sequence };
        Place { table, id }
    }

    fn table(self, generation: u64, stripe: usize) -> Table {
        let stripe = if self.has_tables { stripe } else { 0 };
        let number = (stripe << 1) as u64 | generation & 1;
        Table(u16::try_from(number).expect("there are at most 128 stripes"))
    }

    /// Whether moved rows lie in a table.
    pub(crate) fn has_moves(self, table: Table) -> bool {
        !self.has_tables || table == self.table(u64::from(table.0 & 1), self.stripe_of_moves())
    }

    /// The tables of a generation.
    pub(crate) fn tables(self, generation: u64) -> Vec<Table> {
        let count = if self.has_tables { self.stripe_count() } else { 1 };
        (0..count).map(|stripe| self.table(generation, stripe)).collect()
    }

    /// Table, and first and last id, of a stripe from `sequence` on.
    pub(crate) fn stripe_range(self, generation: u64, stripe: usize, sequence: u64) -> (Table, u64, u64) {
        let first = self.place_of(generation, stripe, sequence.max(SEQUENCE_FIRST));
        (first.table, first.id, self.place_of(generation, stripe, self.sequence_last()).id)
    }

    /// The id of a row of a generation's stripe that stands under `id` in its table.
    pub(crate) fn id_in(self, generation: u64, stripe: usize, id: u64) -> Id {
        Id::new(generation, stripe, id & self.sequence_last())
    }
}

/// The allocator of one generation's ids.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(crate) layout: Layout,
    pub(crate) generation: u64,
    /// Per stripe: the next sequence. May exceed the last one; then the stripe is exhausted.
    next: Box<[OwnLine<AtomicU64>]>,
    /// The generation before, while rows of it may be there.
    pub(crate) previous: Option<Previous>,
}

/// What is known of the generation before while its rows move to the present one.
#[derive(Debug)]
pub(crate) struct Previous {
    /// The next sequences.
    pub(crate) next: Vec<u64>,
    /// The *edge*: rows of keys up to it, inclusive, have moved, and those that are still in the old tables are dead. It is
    /// never ahead of the store's.
    edge: Mutex<Option<Key>>,
}

impl Previous {
    pub(crate) fn new(next: Vec<u64>, edge: Option<Key>) -> Self {
        Self { next, edge: Mutex::new(edge) }
    }

    pub(crate) fn edge(&self) -> Option<Key> {
        self.edge.lock().clone()
    }

    /// Requires: all rows up to this key are published at their new places.
    pub(crate) fn set_edge(&self, key: Key) {
        *self.edge.lock() = Some(key);
    }
}

/// Whether a key is at or below an edge.
pub(crate) fn is_behind(edge: Option<&Key>, key: &[u8]) -> bool {
    edge.is_some_and(|edge| key <= &edge[..])
}

impl Allocator {
    pub(crate) fn new(layout: Layout, generation: u64, next: &[u64], previous: Option<Previous>) -> Self {
        let counter = |sequence: &u64| OwnLine(AtomicU64::new((*sequence).max(SEQUENCE_FIRST)));
        Self { layout, generation, next: next.iter().map(counter).collect(), previous }
    }

    /// The first of `count` ids in a row, from `stripe` or, if that has too few left, from another stripe. `None` if no stripe
    /// has so many. While rows of the generation before move, their stripe is theirs alone. With a `count` of 0
    /// it takes none, and the id is nobody's.
    pub(crate) fn take(&self, stripe: usize, count: u64) -> Option<Id> {
        if count == 0 {
            return Some(Id::new(self.generation, stripe, 0));
        }
        let of_moves = self.layout.stripe_of_moves();
        let is_kept = |other: &usize| *other != of_moves || stripe == of_moves || self.previous.is_none();
        let stripes = (stripe..self.next.len()).chain(0..stripe).filter(is_kept);
        let sequence = |stripe: usize| Some((stripe, self.take_from(stripe, count)?));
        let (stripe, sequence) = stripes.into_iter().find_map(sequence)?;
        Some(Id::new(self.generation, stripe, sequence))
    }

    fn take_from(&self, stripe: usize, count: u64) -> Option<u64> {
        let end = self.layout.sequence_last() + 1;
        let next = &self.next[stripe].0;
        // Sequentially consistent, with the slots of writers in flight: a checkpoint that reads this counter and then the
        // slots must see the slot of each writer whose ids it has seen.
        let mut sequence = next.load(Ordering::SeqCst);
        while sequence + count <= end {
            match next.compare_exchange_weak(sequence, sequence + count, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(sequence),
                Err(actual) => sequence = actual,
            }
        }
        None
    }

    /// Per stripe the smallest sequence that was never given.
    pub(crate) fn next(&self) -> Vec<u64> {
        self.next.iter().map(|next| next.0.load(Ordering::SeqCst)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(stripes: Stripes, bits: u32) -> Allocator {
        let layout = Layout::new(stripes, bits);
        Allocator::new(layout, 0, &vec![0; layout.stripe_count()], None)
    }

    #[test]
    fn places_of_all_layouts_are_distinct_and_come_back() {
        for stripes in [Stripes::One, Stripes::Ranges(5), Stripes::Tables(5)] {
            let layout = Layout::new(stripes, 10);
            let mut places = std::collections::BTreeSet::new();
            for generation in [6, 7] {
                for stripe in 0..layout.stripe_count() {
                    for sequence in [1, 2, 1023] {
                        let id = Id::new(generation, stripe, sequence);
                        let place = layout.place(id);
                        assert!(places.insert(place), "{place:?}");
                        assert_eq!(layout.id_in(generation, stripe, place.id), id);
                        assert!(layout.tables(generation).contains(&place.table));
                        assert!(id.is_of(generation) && !id.is_of(generation + 1));
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_stripe_takes_from_the_others_until_all_are_full() {
        let allocator = allocator(Stripes::Ranges(2), 4);
        assert_eq!(allocator.take(1, 15), Some(Id::new(0, 1, 1)));
        assert_eq!(allocator.take(1, 10), Some(Id::new(0, 2, 1)));
        assert_eq!(allocator.take(1, 10), Some(Id::new(0, 0, 1)));
        assert_eq!(allocator.take(1, 6), None);
        assert_eq!(allocator.take(1, 5), Some(Id::new(0, 2, 11)));
        assert_eq!(allocator.next(), [11, 16, 16]);
        assert_eq!(allocator.take(0, 16), None, "more than a stripe has");
    }
}
