//! A simulated directory: the names seen now, the durable ones, and the operations in between.
//!
//! Each pending operation persists or not on its own, in particular a removal without the creation before it: the
//! real file systems order them in their journal, but against the *data* of other files they order nothing, and a
//! store that survives every subset survives every order. Applying a subset keeps the operations' order and acts only
//! where the name still stands for the inode that the operation meant.
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

/// One change of a directory that no sync has made durable yet.
#[derive(Clone)]
enum Change {
    Create { name: Name, ino: Ino },
    Remove { name: Name, ino: Ino },
    Rename { from: Name, to: Name, ino: Ino },
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Change::Create { name, ino } => {
                names.insert(Arc::clone(name), *ino);
            }
            Change::Remove { name, ino } => remove_if(names, name, *ino),
            Change::Rename { from, to, ino } => {
                remove_if(names, from, *ino);
                names.insert(Arc::clone(to), *ino);
            }
        }
    }
}

fn remove_if(names: &mut Names, name: &Name, ino: Ino) {
    if names.get(name) == Some(&ino) {
        names.remove(name);
    }
}

/// The files of one directory. Directories within it are the disk's business.
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
        self.record(Change::Create { name: name.into(), ino });
    }

    /// Requires: `name` stands for `ino`.
    pub(super) fn remove(&mut self, name: &str, ino: Ino) {
        self.record(Change::Remove { name: name.into(), ino });
    }

    /// Requires: `from` stands for `ino` and differs from `to`.
    pub(super) fn rename(&mut self, from: &str, to: &str, ino: Ino) {
        self.record(Change::Rename { from: from.into(), to: to.into(), ino });
    }

    fn record(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// Makes the current names durable. Returns the inodes that may have lost their last name by that.
    pub(super) fn sync(&mut self) -> Vec<Ino> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.durable, self.current.clone());
        let mut candidates: Vec<Ino> = before.into_values().collect();
        for change in self.pending.drain(..) {
            let (Change::Create { ino, .. } | Change::Remove { ino, .. } | Change::Rename { ino, .. }) =
                change;
            candidates.push(ino);
        }
        candidates
    }

    /// Whether a crash changes nothing.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether some crash could leave `ino` with a name.
    pub(super) fn may_name(&self, ino: Ino) -> bool {
        self.current.values().chain(self.durable.values()).any(|&i| i == ino)
            || self.pending.iter().any(|change| {
                let (Change::Create { ino: i, .. }
                | Change::Remove { ino: i, .. }
                | Change::Rename { ino: i, .. }) = change;
                *i == ino
            })
    }

    /// The directory after a crash in which the medium keeps the changes that `chooser` says.
    pub(super) fn crash(&self, chooser: &mut Chooser) -> Self {
        let mut names = self.durable.clone();
        for change in &self.pending {
            let kept = match change {
                Change::Create { .. } => chooser.creation(),
                Change::Remove { .. } => chooser.removal(),
                Change::Rename { .. } => chooser.rename(),
            };
            if kept {
                change.apply(&mut names);
            }
        }
        Self { current: names.clone(), durable: names, pending: Vec::new() }
    }
}
