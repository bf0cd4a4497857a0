//! Where salvaged entries go: into a new store, or nowhere.

use std::collections::{BTreeMap, HashSet};

use pleach_env::Result;

use super::manifest::Known;
use crate::db::{DEFAULT_PARTITION, Db, Partition, WriteBatch};
use crate::keys::PartitionId;
use pleach_log::Durability;

/// A batch of this many bytes is committed.
const BATCH_BYTES: usize = 1 << 20;

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Partition(PartitionId),
    /// An SST that does not say whose it is.
    File(u64),
}

/// See the module's text.
pub(super) struct Sink<'d> {
    db: Option<&'d Db>,
    batch: Option<WriteBatch>,
    names: BTreeMap<Owner, String>,
    /// Names in use.
    taken: HashSet<String>,
    recovered: Vec<String>,
    partitions: BTreeMap<Owner, Partition>,
}

impl<'d> Sink<'d> {
    pub(super) fn into_store(db: &'d Db) -> Self {
        Self { db: Some(db), batch: Some(db.batch()), ..Self::nowhere() }
    }

    pub(super) fn nowhere() -> Self {
        Self {
            db: None,
            batch: None,
            names: BTreeMap::new(),
            taken: HashSet::new(),
            recovered: Vec::new(),
            partitions: BTreeMap::new(),
        }
    }

    /// Creates the partitions whose names are known, in the order of their numbers.
    pub(super) fn name_partitions(&mut self, known: &Known) -> Result<()> {
        for (id, name) in &known.names {
            let owner = Owner::Partition(*id);
            self.taken.insert(name.clone());
            self.names.insert(owner, name.clone());
        }
        if !known.is_exact {
            return Ok(());
        }
        let Some(db) = self.db else { return Ok(()) };
        let created = db.create_partitions(known.names.values())?;
        self.partitions.extend(known.names.keys().map(|id| Owner::Partition(*id)).zip(created));
        Ok(())
    }

    /// The name of a partition; a made-up one where it is not known.
    pub(super) fn name(&mut self, owner: Owner) -> String {
        if let Some(name) = self.names.get(&owner) {
            return name.clone();
        }
        let (mut name, is_known) = match owner {
            Owner::Partition(PartitionId(0)) => (DEFAULT_PARTITION.to_owned(), true),
            Owner::Partition(id) => (format!("recovered-{id}"), false),
            Owner::File(id) => (format!("recovered-file-{id}"), false),
        };
        while !self.taken.insert(name.clone()) {
            name.push('-');
        }
        if !is_known {
            self.recovered.push(name.clone());
        }
        self.names.insert(owner, name.clone());
        name
    }

    fn open(&mut self, owner: Owner) -> Result<Option<Partition>> {
        let Some(db) = self.db else {
            self.name(owner);
            return Ok(None);
        };
        if let Some(partition) = self.partitions.get(&owner) {
            return Ok(Some(partition.clone()));
        }
        let partition = db.partition(&self.name(owner))?;
        self.partitions.insert(owner, partition.clone());
        Ok(Some(partition))
    }

    /// Puts an entry, or with no value deletes it.
    pub(super) fn write(&mut self, owner: Owner, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let partition = self.open(owner)?;
        let (Some(partition), Some(batch)) = (partition, &mut self.batch) else { return Ok(()) };
        match value {
            Some(value) => batch.put(&partition, key, value),
            None => batch.delete(&partition, key),
        }
        if batch.bytes() >= BATCH_BYTES { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<()> {
        let Some(db) = self.db else { return Ok(()) };
        match self.batch.replace(db.batch()) {
            Some(batch) if !batch.is_empty() => batch.commit(Durability::Buffered),
            _ => Ok(()),
        }
    }

    /// Commits what waits.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.commit()
    }

    /// All names, and those that were made up.
    pub(super) fn names(&self) -> (Vec<String>, Vec<String>) {
        (self.names.values().cloned().collect(), self.recovered.clone())
    }
}
