//! Scans: sources (memtables and runs) merged into one sorted sequence, in either direction.

mod merge;
mod range;
mod run_cursor;
mod seek_loads;
mod seek_reads;
mod source;

pub(crate) use merge::{Direction, Merge, PassedValues, SeekTo};
pub use range::{Chunk, ChunkFuture, Cursor, Range, RangeChunks};
pub(crate) use run_cursor::RunReads;
pub(crate) use source::SourceCursor;
