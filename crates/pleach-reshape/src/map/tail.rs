//! The tail of a layer: keys that were published in ascending order, each above all that the map had.
//!
//! Inserts in the order of keys have only such. A place behind the last one costs a comparison, where a tree costs a search, and
//! a checkpoint reads them one after the other.
//!
//! Entries lie in chunks of one size, so that growth copies nothing.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use pleach_coding::common_prefix_len;

use super::layer::{Entry, heap_bytes};
use super::{Bounds, Key};

/// Memory of an entry besides a key that does not fit into it.
pub(super) const TAIL_ENTRY_BYTES: usize = size_of::<(Key, Entry)>();

/// Entries of a chunk, but for the last one.
const CHUNK_LEN: usize = 512;

/// See the module's text.
#[derive(Default)]
pub(super) struct Tail {
    chunks: Vec<Vec<(Key, Entry)>>,
    bytes: usize,
}

impl Tail {
    /// Bytes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What all keys begin with; `None`: there are no keys.
    pub(super) fn common_prefix(&self) -> Option<&[u8]> {
        let first = &self.chunks.first()?.first()?.0;
        let last = &self.chunks.last()?.last()?.0;
        Some(&first[..common_prefix_len(first, last)])
    }

    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_LEN + last.len())
    }

    fn at(&self, index: usize) -> &(Key, Entry) {
        &self.chunks[index / CHUNK_LEN][index % CHUNK_LEN]
    }

    /// Appends an entry if its key is above the last one; whether it is.
    pub(super) fn push(&mut self, key: &[u8], entry: Entry) -> bool {
        let last = self.chunks.last().and_then(|last| last.last());
        if last.is_some_and(|(last, _)| key <= &last[..]) {
            return false;
        }
        self.bytes += TAIL_ENTRY_BYTES + heap_bytes(key);
        let entry = (Key::from_slice(key), entry);
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK_LEN) {
            self.chunks.push(Vec::with_capacity(CHUNK_LEN));
        }
        self.chunks.last_mut().expect("there is one").push(entry);
        true
    }

    /// The index of the first entry whose key compares as greater, or as equal, too, if that `is_included`.
    fn lower_bound(&self, key: &[u8], is_included: bool) -> usize {
        let is_before = |other: &Key| match other[..].cmp(key) {
            Ordering::Less => true,
            Ordering::Equal => !is_included,
            Ordering::Greater => false,
        };
        // Chunks are never empty.
        let chunk = self.chunks.partition_point(|chunk| is_before(&chunk[0].0)).saturating_sub(1);
        let inside =
            self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(|(key, _)| is_before(key)));
        chunk * CHUNK_LEN + inside
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        let index = self.lower_bound(key, true);
        (index < self.len() && self.at(index).0[..] == *key).then_some(index)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.find(key).map(|index| &self.at(index).1)
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.find(key).map(|index| &mut self.chunks[index / CHUNK_LEN][index % CHUNK_LEN].1)
    }

    /// The entries of a range, which is not empty by its bounds.
    pub(super) fn range(&self, (lower, upper): Bounds<'_>) -> TailRange<'_> {
        let first = match lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.lower_bound(key, true),
            Bound::Excluded(key) => self.lower_bound(key, false),
        };
        let end = match upper {
            Bound::Unbounded => self.len(),
            Bound::Included(key) => self.lower_bound(key, false),
            Bound::Excluded(key) => self.lower_bound(key, true),
        };
        TailRange { tail: self, indexes: first..end }
    }
}

/// Entries of a range of a tail.
pub(super) struct TailRange<'t> {
    tail: &'t Tail,
    indexes: Range<usize>,
}

impl<'t> TailRange<'t> {
    fn entry(&self, index: usize) -> (&'t [u8], &'t Entry) {
        let (key, entry) = self.tail.at(index);
        (&key[..], entry)
    }

    pub(super) fn next(&mut self) -> Option<(&'t [u8], &'t Entry)> {
        self.indexes.next().map(|index| self.entry(index))
    }

    pub(super) fn next_back(&mut self) -> Option<(&'t [u8], &'t Entry)> {
        self.indexes.next_back().map(|index| self.entry(index))
    }
}
