//! World: the expected content of a store, as a map of maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::action::Op;

/// Names of the partitions that the rigs use. The first one is in every store.
pub(crate) const NAMES: [&str; 5] = ["default", "apple", "pear", "quince", "medlar"];

/// Keys and values of one partition.
pub(crate) type Entries = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

/// All partitions with their contents. Clones share the partitions that they do not change.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) partitions: BTreeMap<&'static str, Arc<Entries>>,
}

impl World {
    /// A new store.
    pub(crate) fn new() -> Self {
        Self { partitions: [(NAMES[0], Arc::default())].into() }
    }

    /// Whether its partitions have exactly these names.
    pub(crate) fn has_names(&self, names: &[String]) -> bool {
        self.partitions.len() == names.len()
            && names.iter().all(|name| self.partitions.contains_key(name.as_str()))
    }

    pub(crate) fn has(&self, slot: usize) -> bool {
        self.partitions.contains_key(NAMES[slot])
    }

    /// The content of the partition. Requires: the partition is present.
    pub(crate) fn entries(&self, slot: usize) -> &Arc<Entries> {
        &self.partitions[NAMES[slot]]
    }

    /// Numbers of the present partitions.
    pub(crate) fn slots(&self) -> Vec<usize> {
        (0..NAMES.len()).filter(|slot| self.has(*slot)).collect()
    }

    /// Requires: the partitions of `ops` are present.
    pub(crate) fn write(&mut self, ops: &[Op]) {
        for op in ops {
            let entries =
                self.partitions.get_mut(NAMES[op.slot]).expect("writes go to partitions that are there");
            let entries = Arc::make_mut(entries);
            match &op.value {
                Some(value) => entries.insert(Arc::clone(&op.key), Arc::clone(value)),
                None => entries.remove(&op.key),
            };
        }
    }

    pub(crate) fn create(&mut self, slot: usize) {
        self.partitions.entry(NAMES[slot]).or_default();
    }

    pub(crate) fn drop_partition(&mut self, slot: usize) {
        self.partitions.remove(NAMES[slot]);
    }
}
