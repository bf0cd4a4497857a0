//! The log of Pleach: record files, log segments, group commit and recovery.
//!
//! A write batch becomes a [`RecordBuf`]; a [`CommitQueue`] gathers the batches of waiting threads into groups;
//! [`LogWriter`] appends a group to the current segment in one write and makes it durable when [`Durability`] asks
//! for it; after a crash [`recover`] hands back the longest prefix of the batches that may be trusted, or says that
//! something durable is missing. The manifest uses the same files through [`RecordWriter`] and [`read_records`].
//!
//! The meaning of a batch's payload is the engine's business: here it is bytes that take a number of sequence numbers.
//!
//! # On disk
//! Layout: docs/format/log.md, shown below. This crate owns the bytes; nobody else parses them.
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
    Append, FILE_HEADER_LEN, FileKind, ManifestHint, PAYLOAD_LEN_MAX, RECORD_HEADER_LEN, RecordBuf,
    RecordFileOptions, RecordWriter, SEQ_MAX, SHORT_HEADER_LEN, SeqNo,
};
pub use recovery::{FileRecovery, Record, Recovery, read_records, recover};
pub use salvage::{SalvageReader, Salvaged, SalvagedHeader, salvage_records};
pub use segment::{LOG_SEGMENT, parse_segment_name, segment_path};
pub use writer::{LogWriter, PendingSync, RetiredSegments};
