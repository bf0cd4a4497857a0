//! SST of Pleach: immutable sorted files of entries, and the frames their blocks are cached in.
//!
//! An [`SstBuilder`] takes entries in key order, packs them into blocks and gives an [`SstSummary`], which the store's
//! manifest keeps. An [`Sst`] is the open file: index and filter are in memory, blocks are read through the
//! [`FrameCache`] and handed out as [`BlockRef`]s, which pin the memory they lie in. An [`SstCursor`] walks the entries
//! in either direction. The layout of the file stands in docs/format/sst.md.
//!
//! Keys are opaque bytes compared bytewise; a key stands at most once in an SST. An entry is a put, a tombstone, or a
//! pointer to a value that is kept elsewhere ([`ValueKind`]).

mod block;
mod codec;
mod crc;
mod extents;
mod filter;
mod footer;
mod frame;
mod hash;
mod kind;
mod limits;
mod properties;
mod sst;
mod summary;

pub use codec::Codec;
pub use filter::{false_positive_rate, probes_for};
pub use frame::{BlockRef, FrameCache, FrameCacheStats};
pub use hash::key_hash;
pub use kind::ValueKind;
pub use limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
pub use sst::{CursorMode, Sst, SstBuilder, SstCursor, SstOptions};
pub use summary::SstSummary;
