//! Random inserts into B+tree stores as appends.
//!
//! A B+tree that is larger than memory reads and writes a page for each random insert. This layer gives each pair a *row
//! id* that only grows, so that the store appends; a *map* says which id a key has. After "Optimizing Key-Value Stores for
//! Flash-Based SSDs via Key Reshaping" (Kim and Son, IEEE Access 2021), section III. What is promised and why:
//! `docs/design/0020-key-reshaping.md`.
//!
//! A program opens a [`store::RowStore`], the B+tree store, and gives it to [`Reshaped::open`], together with a directory for
//! the map. [`Reshaped`] reads and writes pairs; a [`Batch`] is atomic; a [`Snapshot`] is consistent; a [`Range`] comes from
//! either end. [`Options`] say how.
//!
#![cfg_attr(feature = "redb", doc = "```")]
#![cfg_attr(not(feature = "redb"), doc = "```ignore")]
//! # let dir = tempfile::tempdir().unwrap();
//! use pleach_reshape::store::redb::{RedbOptions, RedbStore};
//! use pleach_reshape::{Durability, Options};
//!
//! let rows = RedbStore::open(&dir.path().join("rows"), &RedbOptions::default()).expect("a store");
//! let store = Options::new().open(Box::new(rows), dir.path().join("map"))?;
//! store.put_with(b"alice", b"1", Durability::Sync)?;
//! assert_eq!(store.get(b"alice")?.as_deref(), Some(&b"1"[..]));
//! # Ok::<(), pleach::Error>(())
//! ```
//!
//! `crates/pleach-reshape/examples/random_inserts.rs` is a program that loads redb with and without it.
//!
//! # When to use it
//! For a program that stays with a B+tree store, has more data than memory, and inserts keys in random order: loads are 3.6 to
//! 8.6 times as fast. It costs elsewhere, because a read asks the map and then the store: YCSB A and F over LMDB make 0.45 to 0.8
//! of the plain store's operations, inserts in order over WiredTiger half, and scans are slow until [`Reshaped::recluster`] puts
//! the rows in the order of their keys. A new program is better served by `pleach` itself. `docs/key-reshaping.md` has the
//! figures.
//!
//! # Stores
//! - `store::redb` (feature `redb`, on by default): in Rust. A killed process loses buffered writes behind the last synced one.
//! - `store::lmdb` (feature `lmdb`; needs a C compiler): one writer at a time, as redb. Each commit is synced unless
//!   `LmdbOptions::unsynced_commits` is set.
//! - WiredTiger: the crate `pleach-wiredtiger` in `adapters/wiredtiger`, under the GPL; writers side by side.
//! - Others: implement [`store::RowStore`]. The feature `testing` has the conformance suite and a store in memory.
//!
//! # Upkeep
//! A background job makes checkpoints of the map, so that an open reads few rows; [`Reshaped::close`] makes the last one. A store
//! that was not closed opens as well, after a read of the rows behind the last checkpoint. [`Reshaped::recluster`] is for
//! programs that scan: at times when the store has less to do. [`Reshaped::clean`] is of use with [`Update::Defer`] only, after a
//! crash. [`Reshaped::import`] and [`Reshaped::export`] convert a plain store and back.
//!
//! # Limits
//! Keys have at most 32 KiB, values 512 MiB or what the store allows (see [`limits`]). One process at a time. [`Reshaped`] is
//! `Send + Sync`, and calls block.

mod checkpoint;
mod cleaning;
mod generations;
mod group;
mod handle;
mod ids;
mod in_flight;
mod job;
mod latches;
pub mod limits;
mod map;
mod moves;
mod named;
mod numbers;
mod open;
mod options;
pub mod paper;
mod range;
mod reads;
mod recovery;
mod replaced;
mod row;
mod row_cache;
mod snapshot;
mod sorted;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
mod transfer;
mod verify;
mod versions;
mod write_path;

pub use handle::{Reshaped, Stats};
pub use open::OpenReport;
pub use options::{MapPlace, Options, Stripes, Update};
pub use range::{Range, SnapshotRange};
pub use snapshot::{Pair, Snapshot};
pub use store::Durability;
pub use verify::VerifyReport;
pub use write_path::Batch;
