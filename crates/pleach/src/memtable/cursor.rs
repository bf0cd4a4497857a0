//! A cursor over a memtable: keys in order, each with its newest visible version.
//!
//! It copies one leaf at a time, so it never holds the writer up. A key inserted behind its back is either in the copy
//! or newer than `visible`; either way the cursor shows exactly the state at `visible`.

use std::sync::Arc;

use pleach_log::SeqNo;
use pleach_table::ValueKind;

use super::entry::{self, VersionView};
use super::tree::LeafCopy;
use super::{ArenaRef, Memtable};

/// The cursor. Not on an entry until a seek finds one.
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

    pub(crate) fn kind(&self) -> ValueKind {
        self.on().kind
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.memtable.value(self.on().value_at, self.on().value_len)
    }

    /// The memtable and the place of the value in it, for a handle that outlives the cursor.
    pub(crate) fn value_place(&self) -> (Arc<Memtable>, ArenaRef, usize) {
        (Arc::clone(&self.memtable), self.on().value_at, self.on().value_len)
    }

    fn on(&self) -> &Current {
        self.current.as_ref().expect("the cursor is on an entry")
    }

    /// From `index` on, the first entry with a visible version.
    fn settle_forward(&mut self) {
        loop {
            while self.index < self.leaf.keys.len() {
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
            for &key_at in &self.leaf.keys {
                self.memtable.arena.prefetch(key_at);
            }
        }
    }

    /// Below `index`, the last entry with a visible version.
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
