//! A cursor over a memtable: keys in order, each with its newest visible version.
//!
//! It copies one leaf at a time, so it never blocks the writer. A key inserted after the copy was made is newer than `visible`,
//! so the cursor shows exactly the state at `visible`.

use std::sync::Arc;

use pleach_log::SeqNo;
use pleach_table::ValueKind;

use super::entry::{self, Place, VersionView};
use super::tree::LeafCopy;
use super::{ArenaRef, Memtable, MemtableValue};

/// So many records of a leaf ahead of the cursor are prefetched (arbitrary: a processor waits for some ten lines at a time).
const RECORDS_AHEAD: usize = 5;
/// Offsets in a record whose cache lines are: those of a key and a small value.
const RECORD_LINES: [usize; 3] = [0, 64, 128];

/// The cursor. Not on an entry until a seek finds one.
#[derive(Clone)]
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    visible: SeqNo,
    leaf: LeafCopy,
    /// Index in `leaf`; `leaf.keys.len()` when not on an entry.
    index: usize,
    current: Option<Current>,
}

#[derive(Clone, Copy)]
struct Current {
    key_at: ArenaRef,
    kind: ValueKind,
    value_at: ArenaRef,
    value_len: usize,
}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>, visible: SeqNo) -> Self {
        let leaf = memtable.tree.first_leaf();
        Self { memtable, visible, leaf, index: 0, current: None }
    }

    /// Moves to the first entry.
    pub(crate) fn seek_first(&mut self) {
        self.leaf = self.memtable.tree.first_leaf();
        self.index = 0;
        self.settle_forward();
    }

    /// Moves to the last entry.
    pub(crate) fn seek_last(&mut self) {
        self.leaf = self.memtable.tree.last_leaf();
        self.index = self.leaf.keys.len();
        self.settle_backward();
    }

    /// Moves to the first entry whose key is `key` or above.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        (self.leaf, self.index) = self.memtable.tree.leaf_at(&self.memtable.arena, key, true);
        self.settle_forward();
    }

    /// Moves to the last entry whose key is below `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) {
        (self.leaf, self.index) = self.memtable.tree.leaf_at(&self.memtable.arena, key, false);
        self.settle_backward();
    }

    /// Asks for the memory that [`MemtableCursor::holds`] will probe first.
    pub(crate) fn prefetch(&self, hash: u64) {
        self.memtable.prefetch(hash);
    }

    /// Whether there is a visible version of `key`. The cursor does not move.
    pub(crate) fn holds(&self, hash: u64, key: &[u8]) -> bool {
        self.memtable.version(hash, key, self.visible).is_some()
    }

    /// Moves one entry up. Requires: on an entry.
    pub(crate) fn next(&mut self) {
        self.index += 1;
        self.settle_forward();
    }

    /// Moves one entry down. Requires: on an entry.
    pub(crate) fn prev(&mut self) {
        self.settle_backward();
    }

    /// Whether the cursor is on an entry.
    pub(crate) fn is_valid(&self) -> bool {
        self.current.is_some()
    }

    /// The partition key. Requires: on an entry.
    pub(crate) fn key(&self) -> &[u8] {
        entry::key(&self.memtable.arena, self.on().key_at)
    }

    /// [`ValueKind::ValuePointer`] if the value is to be separated; it is here all the same.
    pub(crate) fn kind(&self) -> ValueKind {
        self.on().kind
    }

    pub(crate) fn value(&self) -> &[u8] {
        entry::value(&self.memtable.arena, self.on().value_at, self.on().value_len)
    }

    /// Where in the log the value is. Requires: on an entry of kind value pointer.
    pub(crate) fn place(&self) -> Place {
        entry::place(&self.memtable.arena, self.on().value_at)
    }

    /// The value, which may outlive the cursor.
    pub(crate) fn pinned_value(&self) -> MemtableValue {
        MemtableValue::new(&self.memtable, self.on().value_at, self.on().value_len)
    }

    fn on(&self) -> &Current {
        self.current.as_ref().expect("the cursor is on an entry")
    }

    /// Moves to the first entry from `index` on that has a visible version.
    fn settle_forward(&mut self) {
        loop {
            while self.index < self.leaf.keys.len() {
                self.prefetch_record(self.index + RECORDS_AHEAD);
                if self.take(self.index) {
                    return;
                }
                self.index += 1;
            }
            if self.leaf.next == 0 {
                self.current = None;
                return;
            }
            self.leaf = self.memtable.tree.leaf(self.leaf.next);
            self.index = 0;
            (0..RECORDS_AHEAD).for_each(|index| self.prefetch_record(index));
        }
    }

    /// Prefetches the beginning of a record of the leaf.
    #[inline]
    fn prefetch_record(&self, index: usize) {
        if let Some(&key_at) = self.leaf.keys.get(index) {
            for line in RECORD_LINES {
                self.memtable.arena.prefetch(key_at, line);
            }
        }
    }

    /// Moves to the last entry below `index` that has a visible version.
    fn settle_backward(&mut self) {
        loop {
            while self.index > 0 {
                self.index -= 1;
                if self.take(self.index) {
                    return;
                }
            }
            let Some(low) = self.leaf.low else {
                self.current = None;
                return;
            };
            let arena = &self.memtable.arena;
            (self.leaf, self.index) = self.memtable.tree.leaf_at(arena, entry::key(arena, low), false);
        }
    }

    /// Makes entry `index` the current one if it has a visible version. Returns whether it has.
    fn take(&mut self, index: usize) -> bool {
        let key_at = self.leaf.keys[index];
        self.current = entry::visible_version(&self.memtable.arena, key_at, self.visible).map(
            |VersionView { kind, value, value_at, .. }| Current {
                key_at,
                kind,
                value_at,
                value_len: value.len(),
            },
        );
        self.current.is_some()
    }
}
