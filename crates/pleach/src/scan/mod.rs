//! Scans: sources (memtables and runs) merged into one sorted sequence, in either direction.

mod cursor;
mod merge;
mod range;
mod run_cursor;
mod seek_loads;
mod seek_reads;

pub(crate) use cursor::SourceCursor;
pub(crate) use merge::{Direction, Merge, PassedValues, SeekTo};
pub use range::{Chunk, ChunkFuture, Range, RangeChunks};
pub(crate) use run_cursor::RunReads;
