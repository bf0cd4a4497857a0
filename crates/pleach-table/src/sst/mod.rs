//! The SST: a sorted file, written once by an [`SstBuilder`], then read through an [`Sst`] and its cursors.
//!
//! # On disk
//! Layout: docs/format/sst.md.

mod builder;
mod cached;
mod cursor;
mod key_buffer;
mod load;
mod open;
mod reader;
mod salvage;
mod stream;
mod verify;

pub use builder::{SstBuilder, SstOptions};
pub use cursor::{CursorMode, SeekStep, SstCursor, Toward};
pub use load::BlockLoad;
pub use reader::Sst;
pub use salvage::{SalvageSst, Salvaged, SstDamage};
