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

mod checkpoint;
mod cleaning;
mod generations;
mod group;
mod handle;
mod ids;
mod in_flight;
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
