//! Pleach's rivals: each engine in a module of its own, behind `pleach_bench::Engine`. The benchmark's command
//! (`main.rs`) and the interface for C (`capi`) list them by [`engines`]. How each is configured, and why: docs/benchmarks.md.

#[cfg(test)]
mod conformance;
mod fjall;
mod group;
mod indexed;
#[cfg(leveldb)]
mod leveldb;
mod lmdb;
mod prefix;
mod quiet;
mod redb;
mod reshaped;
mod rocksdb;
#[cfg(wiredtiger)]
mod wiredtiger;

use pleach_bench::{
    EngineFactory, PLEACH, PLEACH_FOREST, PLEACH_INLINE, PLEACH_LEVELED, PLEACH_SEPARATED, REFERENCE,
};

/// All engines, in the order in which they are listed.
pub fn engines() -> Vec<EngineFactory> {
    let mut engines = vec![
        PLEACH,
        PLEACH_SEPARATED,
        PLEACH_INLINE,
        PLEACH_FOREST,
        PLEACH_LEVELED,
        rocksdb::LEVELLED,
        rocksdb::UNIVERSAL,
        rocksdb::BLOB,
        rocksdb::BLOB_SPACE,
        #[cfg(leveldb)]
        leveldb::factory(),
        lmdb::LMDB,
        redb::REDB,
        fjall::FJALL,
        fjall::FJALL_BLOB,
        #[cfg(wiredtiger)]
        wiredtiger::factory(),
        #[cfg(wiredtiger)]
        wiredtiger::lsm(),
        indexed::LMDB,
        indexed::REDB,
        #[cfg(wiredtiger)]
        indexed::wiredtiger(),
    ];
    engines.extend(reshaped::factories());
    engines.push(REFERENCE);
    engines
}
