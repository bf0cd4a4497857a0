//! The log of Pleach: record files, log segments, group commit and recovery.
//!
//! A write batch becomes a [`RecordBuf`]. A [`CommitQueue`] gathers the batches of waiting threads into groups.
//! [`LogWriter`] appends a group to the current segment in one write and makes it durable if [`Durability`] asks for it.
//! After a crash [`recover`] returns the longest trusted prefix of the batches, or reports that something durable is missing.
//! The manifest is a record file too, written by [`RecordWriter`] and read by [`read_records`].
//!
//! The engine defines the payload of a batch. Here it is bytes that take a number of sequence numbers.
//!
//! # On disk
//! Layout: docs/format/log.md, shown below. Only this crate parses these bytes.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use pleach_env::{Env, FileId, Result};
//! use pleach_log::{Append, LogWriter, ManifestHint, RecordBuf};
//!
//! fn log_one(env: Arc<dyn Env>, dir: &std::path::Path) -> Result<()> {
//!     let mut log = LogWriter::create(env, dir, FileId(1), ManifestHint::NONE, 64 << 20, 0)?;
//!     let mut record = RecordBuf::new();
//!     record.bytes_mut().extend_from_slice(b"put k v");
//!     log.append([Append { record: &mut record, first_seq: 1, count: 1 }])?;
//!     log.sync()
//! }
//! ```
#![cfg_attr(doc, doc = include_str!("../../../docs/format/log.md"))]

mod commit;
mod durability;
mod record_file;
mod recovery;
mod salvage;
mod segment;
mod writer;

pub use commit::CommitQueue;
pub use durability::Durability;
pub use record_file::{
    Append, ChainStart, FILE_HEADER_LEN, FileKind, ManifestHint, PAYLOAD_LEN_MAX, RECORD_HEADER_LEN,
    RecordBuf, RecordFileOptions, RecordWriter, SEQ_MAX, SHORT_HEADER_LEN, SeqNo,
};
pub use recovery::{Record, Recovery, read_records, recover};
pub use salvage::{SalvageReader, Salvaged, salvage_records};
pub use segment::{LOG_SEGMENT, parse_segment_name, segment_path};
pub use writer::{LogWriter, PendingSync, RetiredSegments};
