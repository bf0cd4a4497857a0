//! Where salvaged entries go: into a new store, or nowhere.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use pleach_env::{Error, Result};

use super::manifest::Catalog;
use crate::damage::{DamagedPlace, LostValues};
use crate::db::{DEFAULT_PARTITION, Db, Partition, WriteBatch};
use crate::keys::PartitionId;
use pleach_log::Durability;

/// A batch of this many bytes is committed.
const BATCH_BYTES: usize = 1 << 20;

/// The owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Partition(PartitionId),
    /// An SST without a note; its entries get a partition of their own.
    File(u64),
}

/// The sink.
pub(super) struct Sink<'d> {
    db: Option<&'d Db>,
    batch: Option<WriteBatch>,
    names: BTreeMap<Owner, String>,
    /// Names in use.
    taken: HashSet<String>,
    recovered: Vec<String>,
    partitions: BTreeMap<Owner, Partition>,
    /// Keys whose separated value could not be read, unless they were written later: a value that a newer entry hides may be
    /// gone.
    lost: BTreeMap<(Owner, Vec<u8>), Error>,
}

impl<'d> Sink<'d> {
    /// A sink into a new store, or nowhere.
    pub(super) fn new(db: Option<&'d Db>) -> Self {
        Self {
            db,
            batch: db.map(Db::batch),
            names: BTreeMap::new(),
            taken: HashSet::new(),
            recovered: Vec::new(),
            partitions: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Creates the partitions whose names are known, in the order of their numbers.
    pub(super) fn name_partitions(&mut self, catalog: &Catalog) -> Result<()> {
        for (id, name) in &catalog.names {
            let owner = Owner::Partition(*id);
            self.taken.insert(name.clone());
            self.names.insert(owner, name.clone());
        }
        if !catalog.is_exact {
            return Ok(());
        }
        let Some(db) = self.db else { return Ok(()) };
        let created = db.create_partitions(catalog.names.values())?;
        self.partitions.extend(catalog.names.keys().map(|id| Owner::Partition(*id)).zip(created));
        Ok(())
    }

    /// The name of the owner's partition; a made-up one if it is unknown.
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
        if !self.lost.is_empty() {
            self.lost.remove(&(owner, key.to_vec()));
        }
        let partition = self.open(owner)?;
        let (Some(partition), Some(batch)) = (partition, &mut self.batch) else { return Ok(()) };
        match value {
            Some(value) => batch.put(&partition, key, value),
            None => batch.delete(&partition, key),
        }
        if batch.bytes() >= BATCH_BYTES { self.commit() } else { Ok(()) }
    }

    /// Deletes a key whose separated value could not be read.
    pub(super) fn lose(&mut self, owner: Owner, key: &[u8], error: Error) -> Result<()> {
        self.write(owner, key, None)?;
        self.lost.insert((owner, key.to_vec()), error);
        Ok(())
    }

    /// The places of the values that are lost. `dir` is the store's directory.
    pub(super) fn take_lost(&mut self, dir: &Path) -> Vec<DamagedPlace> {
        let mut lost = LostValues::default();
        for ((owner, key), error) in std::mem::take(&mut self.lost) {
            lost.add(dir, Some(self.name(owner)), &key, error);
        }
        lost.into_places()
    }

    /// Commits the entries of the batch, and begins another.
    pub(super) fn commit(&mut self) -> Result<()> {
        let Some(db) = self.db else { return Ok(()) };
        match self.batch.replace(db.batch()) {
            Some(batch) if !batch.is_empty() => batch.commit(Durability::Buffered),
            _ => Ok(()),
        }
    }

    /// All names, and those that were made up.
    pub(super) fn names(&self) -> (Vec<String>, Vec<String>) {
        (self.names.values().cloned().collect(), self.recovered.clone())
    }
}
