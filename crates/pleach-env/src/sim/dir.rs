//! A simulated directory: its current names, its durable names, and the pending changes between them.
//!
//! Each pending change persists or not on its own; a removal can persist without the creation before it. Real file systems
//! order changes of names in their journal, but not against the *data* of other files. A store that survives every subset of
//! changes survives every order. A crash applies a subset in the order of the changes. A removal acts only if the name still
//! stands for the inode that was removed.
//!
//! # Invariants
//! 1. The durable names with all pending operations applied are the current names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::crash::Chooser;
use super::inode::Ino;

/// A file name within its directory; shared, because every crash image has it.
pub(super) type Name = Arc<str>;

type Names = BTreeMap<Name, Ino>;

/// One change of a directory that no sync has made durable yet: a creation, a removal, or both (a rename).
#[derive(Clone)]
struct Change {
    ino: Ino,
    removed: Option<Name>,
    created: Option<Name>,
}

impl Change {
    fn apply(&self, names: &mut Names) {
        if let Some(name) = self.removed.as_ref().filter(|name| names.get(*name) == Some(&self.ino)) {
            names.remove(name);
        }
        if let Some(name) = &self.created {
            names.insert(Arc::clone(name), self.ino);
        }
    }
}

/// The files of one directory. The disk keeps the directories in it.
#[derive(Clone, Default)]
pub(super) struct Dir {
    current: Names,
    durable: Names,
    pending: Vec<Change>,
}

impl Dir {
    /// The inode that `name` stands for now.
    pub(super) fn get(&self, name: &str) -> Option<Ino> {
        self.current.get(name).copied()
    }

    /// The names seen now, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = (&Name, Ino)> {
        self.current.iter().map(|(name, ino)| (name, *ino))
    }

    /// Requires: `name` is free.
    pub(super) fn create(&mut self, name: &str, ino: Ino) {
        self.record(Change { ino, removed: None, created: Some(name.into()) });
    }

    /// Requires: `name` stands for `ino`.
    pub(super) fn remove(&mut self, name: &str, ino: Ino) {
        self.record(Change { ino, removed: Some(name.into()), created: None });
    }

    /// Requires: `from` stands for `ino` and differs from `to`.
    pub(super) fn rename(&mut self, from: &str, to: &str, ino: Ino) {
        self.record(Change { ino, removed: Some(from.into()), created: Some(to.into()) });
    }

    fn record(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// Makes the current names durable. Returns the inodes that may have lost their last name.
    pub(super) fn sync(&mut self) -> Vec<Ino> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.durable, self.current.clone());
        let mut candidates: Vec<Ino> = before.into_values().collect();
        candidates.extend(self.pending.drain(..).map(|change| change.ino));
        candidates
    }

    /// Whether a crash changes nothing.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether some crash could leave `ino` with a name.
    pub(super) fn may_name(&self, ino: Ino) -> bool {
        self.current.values().chain(self.durable.values()).any(|&i| i == ino)
            || self.pending.iter().any(|change| change.ino == ino)
    }

    /// The directory after a crash that keeps the changes that `chooser` chooses.
    pub(super) fn crash(&self, chooser: &mut Chooser) -> Self {
        let mut names = self.durable.clone();
        for change in &self.pending {
            if chooser.keeps_name(change.created.is_some(), change.removed.is_some()) {
                change.apply(&mut names);
            }
        }
        Self { current: names.clone(), durable: names, pending: Vec::new() }
    }
}
