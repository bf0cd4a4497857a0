//! The reference engine: ordered maps behind a lock, without files. It checks the benchmark itself and shows the benchmark's
//! own cost; it is not a rival.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{
    Capabilities, Direction, Engine, EngineConfig, EngineFactory, EngineStats, Removal, Result, Scan, Session,
};

/// The factory of the reference engine.
pub const REFERENCE: EngineFactory = EngineFactory {
    name: "reference",
    about: "ordered maps of the standard library in memory, behind one lock; to check the benchmark",
    capabilities: Capabilities {
        direct_reads: false,
        compression: false,
        atomic_batches: false,
        native_get_many: false,
        async_get: false,
        compaction: false,
        partition_removal: Removal::Native,
    },
    open,
};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// All partitions.
struct Maps {
    partitions: RwLock<Vec<Entries>>,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.no_tuning_left()?;
    Ok(Box::new(Maps { partitions: RwLock::new(vec![Entries::new(); config.partitions]) }))
}

impl Maps {
    fn read(&self) -> RwLockReadGuard<'_, Vec<Entries>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Entries>> {
        self.partitions.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Maps {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(MapsSession { maps: self }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        self.write()[partition].clear();
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> Result<EngineStats> {
        Ok(EngineStats::default())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct MapsSession<'a> {
    maps: &'a Maps,
}

impl Session for MapsSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.maps.write()[partition].insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        self.maps.write()[partition].remove(key);
        Ok(())
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let partitions = self.maps.read();
        let value = partitions[partition].get(key);
        Ok(value.map(|value| read(value)).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let partitions = self.maps.read();
        let entries = &partitions[scan.partition];
        let from = scan.from.map_or(Bound::Unbounded, Bound::Included);
        let mut range: Box<dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>> = match scan.direction {
            Direction::Forward => Box::new(entries.range::<[u8], _>((from, Bound::Unbounded))),
            Direction::Reverse => Box::new(entries.range::<[u8], _>((Bound::Unbounded, from)).rev()),
        };
        let _stopped_at = range.by_ref().take(scan.limit).find(|(key, value)| !visit(key, value));
        Ok(())
    }
}
