//! Record files: a header of 96 bytes, then records. Log segments and the manifest are record files.
//!
//! [`RecordWriter`] appends records, `RecordReader` walks them and, where the walk ends, looks for later ones;
//! `crate::recovery` judges what the two find. A record file is written once from its start to its end by one writer
//! and never opened for writing again.
//!
//! # Invariants
//! 1. *One truth per offset.* Every byte offset of a file holds at most one version of a record, except after a failed
//!    append; there a fence of a higher epoch is made durable before anything else is written. `RecordWriter::append`.
//! 2. *Own address.* A record's checksum covers its file and offset, so a misdirected or stale block is not a record.
//!    A long record's header begins with a tag that follows from file and offset, so that a search finds headers without
//!    a look at anything else, whatever the payloads are.
//! 3. *Contiguous numbers.* A record starts at the sequence number after its predecessor's last. Both ends check; a short
//!    record does not state its number, and its checksum is right for that number only.
//!
//! # On disk
//! Layout: docs/format/log.md.

mod buffer;
mod claims;
mod file_header;
mod reader;
mod record_header;
mod resync;
mod search;
mod stamp;
#[cfg(test)]
mod tests;
mod writer;

pub use buffer::{Append, RecordBuf};
pub use file_header::{FILE_HEADER_LEN, FileKind, ManifestHint};
pub(crate) use reader::{Found, Opened, RecordReader};
pub use record_header::{PAYLOAD_LEN_MAX, RECORD_HEADER_LEN, SEQ_MAX, SHORT_HEADER_LEN, SeqNo};
pub(crate) use record_header::{RecordHeader, RecordKind};
pub(crate) use search::Remains;
pub(crate) use stamp::Stamp;
pub use writer::{RecordFileOptions, RecordWriter};
