//! Pleach: an embeddable, ordered key-value store for SSDs.
//!
//! A [`Db`] is a store in a directory. It holds [`Partition`]s: independent, ordered key spaces that share one log and one
//! memtable and can each be dropped at once. Keys and values are bytes; keys are ordered bytewise. A [`WriteBatch`] is
//! atomic over any partitions. A [`Snapshot`] is a consistent view of all of them. A [`Range`] iterates over entries from
//! either end. A [`Value`] is read without a copy. All [`Options`] have defaults.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("data");
//! use pleach::{Db, Durability};
//!
//! let db = Db::open(path)?;
//! let users = db.partition("users")?;
//! users.put(b"alice", b"1")?;
//! assert_eq!(users.get(b"alice")?.as_deref(), Some(&b"1"[..]));
//!
//! let mut batch = db.batch();
//! batch.put(&users, b"bob", b"2");
//! batch.delete(&users, b"alice");
//! batch.commit(Durability::Sync)?;
//!
//! for entry in users.range("a".."c") {
//!     let (key, value) = entry?;
//!     assert_eq!((&key[..], &value[..]), (&b"bob"[..], &b"2"[..]));
//! }
//! db.drop_partition(users)?;
//! # Ok::<(), pleach::Error>(())
//! ```
//!
//! # Durability
//! With [`Durability::Buffered`] a write returns when the operating system has it: it survives a killed process. With
//! [`Durability::Sync`] it returns when it is on the medium: it survives a power cut. After any crash the store holds exactly
//! the first n write batches, and these include every batch that was durable. docs/testing.md describes the tests.
//!
//! # Reads that do not block
//! [`Partition::get_async`], [`Partition::get_many_async`], the same calls of a [`Snapshot`], and [`Range::into_chunks`] read
//! by futures, which any executor can poll: while the device reads, the thread is free for other tasks.
//! `crates/pleach/examples/async_reads.rs` is a program that uses them. Writes, opens, flushes and closes block their thread.
//!
//! - *Start*: nothing happens before the first poll. A get reads the newest state of its first poll. What is in memory is ready
//!   at the first poll.
//! - *Drop*: a future can be dropped, or forgotten, at any time. A read that has begun ends without it, and its block goes to
//!   the cache, if the read fills it; a read that has not begun is not made, unless others want the block. A future holds a
//!   handle of the store, so a forgotten one keeps the store open until [`Db::close`], and some of its memory until the process
//!   ends.
//! - *Time*: gets have no time limit unless [`ReadOptions::timeout`] sets one; they then fail with [`ErrorKind::TimedOut`].
//!   Chunks of ranges have none.
//! - *Close*: [`Db::close`] waits for the reads in flight. A future that was waiting returns its answer or
//!   [`ErrorKind::Closed`]; one that begins later returns `Closed`.
//! - *Errors*: those of the blocking calls. A failed read is the error of all that wait for its block; the next get reads again.
//! - *Threads*: [`Options::read_driver`] says who reads. The task that polls checks the block and searches in it. With
//!   [`ReadDriver::Blocking`] it also reads, so it blocks its thread.
//! - *Limits*: up to 128 keys of a [`GetManyFuture`] wait for blocks at the same time. A ring has up to 128 reads of a store's
//!   gets in flight, threads have up to 16 in the whole process. Further reads wait for their turn.
//!
//! # Tracing
//! With the feature `tracing` a store reports its cold paths as spans and events of the `tracing` crate. Each name in the table
//! is also the target, so a filter like `pleach::flush=info` selects one of them. Names and fields are stable. Reads and
//! writes report nothing, except for writes that wait. A subscriber must not use the store that reports.
//!
//! | name | what, level | fields |
//! |---|---|---|
//! | `pleach::open` | span, info: opening, recovery included | `path` |
//! | `pleach::recovery` | event, info: the log was recovered | `records`, `bytes` of the batches; `torn_segment`, `torn_offset` of the torn tail, if there was one |
//! | `pleach::flush` | span, info: one memtable is written as SSTs | `memtable_bytes`, `last_seq`; at its end `outputs` (SSTs), `written_bytes` |
//! | `pleach::compaction` | span, debug: one step of a compaction, which makes at most one SST | `partition` (number), `stage` of the output, `inputs` (runs); at its end `outputs` (SSTs written or moved), `written_bytes` |
//! | `pleach::stall` | event, warn: a write waited for a flush | `waited_ms` |
//! | `pleach::slowdown` | event, debug: a write was slowed down because background work is behind | `waited_ms` |
//! | `pleach::partition_created`, `pleach::partition_dropped` | events, info | `partition` (number), `name` |
//! | `pleach::close` | span, info: closing | `path` |
//! | `pleach::close_failed` | event, error: a close failed; also the close of a dropped handle, which returns no error | `error` |
//! | `pleach::poisoned` | event, error, once: the store refuses writes until it is opened again | `error` |
//! | `pleach::shortage` | event, error: a flush or compaction found the disk full or no descriptor left; it is retried later | `error` |
//! | `pleach::value_file_damaged` | event, error, once for each file of separated values that is damaged or cannot be read: conversions and relocation leave it as it is | `error` |
//! | `pleach::cleaning_failed` | event, warning: the space of what was deleted is not taken back now | `error` |
//! | `pleach::job_panicked` | event, error: a panic in a background job | `job`, `panic` |
//!
//! # Process-wide effects
//! The first open for writing installs a handler of `SIGBUS`. It makes an error of a failed access to a mapped log or SST, and
//! gives every other bus error to the handler of before (docs/design/0018-mapped-log.md). A program that installs its own handler
//! later should pass on what it does not know; a thread that writes should not block this signal.
//!
//! A process may fork before it opens a store. After the open a child must not use the handles of its parent: the threads of the
//! store are not in it.
//!
//! # Limits
//! Keys have at most 1 MiB, values at most 512 MiB, batches at most 1 GiB (see [`limits`]). One process at a time can have
//! a store open, or several for reading only.

mod attached;
mod context;
mod damage;
mod db;
mod file_names;
mod filter_policy;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod keys;
pub mod limits;
mod loads;
mod lookup;
mod manifest;
mod memory_shares;
mod memtable;
mod operations;
mod options;
mod picker;
mod read_options;
mod repair;
mod scan;
mod shape;
mod shown;
mod state;
mod stats;
mod status;
#[cfg(test)]
mod tests;
mod tombstone_spans;
mod trace;
mod training;
mod trash;
mod upkeep;
mod value;
mod value_reads;
mod values;
mod version;
mod version_set;
mod write_path;

pub use damage::DamagedPlace;
pub use db::{Db, GetFuture, GetManyFuture, Partition, Snapshot, VerifyReport, WriteBatch, destroy};
pub use keys::{Key, PartitionId};
pub use options::{Options, Thresholds};
pub use pleach_env::{Error, ErrorKind, ReadDriver, Result};
pub use pleach_log::Durability;
pub use read_options::{ReadOptions, ReadPolicy};
pub use repair::{RepairProgress, RepairReport, repair, survey};
pub use scan::{Chunk, ChunkFuture, Cursor, Range, RangeChunks};
pub use shape::{Conversion, Shape};
pub use stats::{PartitionStats, SizeEstimate, Stats};
pub use training::LearnedIndex;
pub use value::Value;

/// The environment a store runs in: the machine, its memory alone, or a simulator for tests.
pub mod env {
    pub use pleach_env::*;
}
