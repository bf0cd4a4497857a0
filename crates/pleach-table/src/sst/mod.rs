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
mod read_ahead;
mod reader;
mod salvage;
mod scan_hints;
mod stream;
mod verify;
mod window;
mod window_read;

pub use builder::{SstBuilder, SstOptions};
pub use cursor::{CursorMode, SeekStep, SstCursor, Toward};
pub use load::BlockLoad;
pub use reader::Sst;
pub use salvage::{SalvageSst, Salvaged, SstDamage};
pub use scan_hints::{CursorHints, ScanHints};
pub use window_read::{BackgroundReads, WindowRead};
