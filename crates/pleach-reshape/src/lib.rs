//! Random inserts into B+tree stores as appends.
//!
//! A B+tree that is larger than memory reads and writes a page for each random insert. This layer gives each pair a *row
//! id* that only grows, so that the store appends; a *map* says which id a key has. After "Optimizing Key-Value Stores for
//! Flash-Based SSDs via Key Reshaping" (Kim and Son, IEEE Access 2021), section III. What is promised and why:
//! `docs/design/0020-key-reshaping.md`.

pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
