//! SSTs of Pleach: immutable sorted files of entries, and the cache of their blocks.
//!
//! An [`SstBuilder`] takes entries in key order, packs them into blocks and returns an [`SstSummary`], which the store's
//! manifest keeps. An [`Sst`] is the open file: index and filter are in memory, and blocks are read through the
//! [`FrameCache`]. It returns [`BlockRef`]s, which pin the memory of their blocks. An [`SstCursor`] walks the entries in
//! either direction. The layout of the file is in docs/format/sst.md.
//!
//! Keys are opaque bytes compared bytewise; an SST holds a key at most once. An entry is a put, a tombstone, or a
//! pointer to a value elsewhere ([`ValueKind`]).
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use pleach_env::{Env, FileId, SimEnv};
//! use pleach_table::{CursorMode, FrameCache, Sst, SstBuilder, SstCursor, SstOptions, ValueKind, key_hash};
//!
//! # fn main() -> pleach_env::Result<()> {
//! let env: Arc<dyn Env> = SimEnv::new(1);
//! env.create_dir_all(Path::new("/db")).expect("a new machine has space");
//! let (path, id, seed) = (Path::new("/db/000001.sst"), FileId(1), 0);
//!
//! let mut builder = SstBuilder::create(&env, path, id, SstOptions::default())?;
//! for (key, value) in [(b"apple", b"red"), (b"grape", b"sea")] {
//!     builder.add(key, ValueKind::Put, value, key_hash(seed, key))?;
//! }
//! let summary = builder.finish()?;
//!
//! let cache = FrameCache::new(1 << 20);
//! let sst = Arc::new(Sst::open(&env, path, id, Some(&summary), cache, false)?);
//! let (kind, block, value) = sst.get(b"apple", key_hash(seed, b"apple"))?.expect("it was added");
//! assert_eq!((kind, &block[value]), (ValueKind::Put, b"red".as_slice()));
//!
//! let mut cursor = SstCursor::new(sst, CursorMode::Cached);
//! cursor.seek(b"banana")?;
//! assert!(cursor.valid() && cursor.key() == b"grape" && cursor.value() == b"sea");
//! # Ok(())
//! # }
//! ```

mod block;
mod codec;
mod crc;
mod extents;
mod filter;
mod footer;
mod frame;
mod hash;
mod lz4;
mod pointer_bytes;
mod properties;
mod sizes;
mod sst;
mod summary;
mod value_kind;
mod value_place;

pub use codec::Codec;
pub use filter::{Filter, false_positive_rate, probes_for};
pub use frame::{AlignedBuffer, BlockRef, FrameCache, FrameCacheStats, Warmth};
pub use hash::key_hash;
pub use lz4::{Lz4Packer, may_unpack_to, packed_len_max, unpack};
pub use pleach_index::{Encoders, IndexChoice, IndexKind, Obstacle, SearchStage};
pub use pointer_bytes::PointerBytes;
pub use sizes::{KEY_LEN_MAX, NOTE_LEN_MAX, VALUE_LEN_MAX};
pub use sst::{
    BackgroundReads, BlockLoad, CursorHints, CursorMode, SalvageSst, Salvaged, ScanHints, SeekStep, Sst,
    SstBuilder, SstCursor, SstDamage, SstOptions, Toward, WindowRead,
};
pub use summary::SstSummary;
pub use value_kind::ValueKind;
pub use value_place::ValuePlace;
