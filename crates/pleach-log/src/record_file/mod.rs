//! Record files: a header of 96 bytes, then records. Log segments and the manifest are record files.
//!
//! [`RecordWriter`] appends records. `RecordReader` follows their chain and searches for later records behind its end;
//! `crate::recovery` decides what they mean. One writer writes a record file from start to end; the file is never opened for
//! writing again.
//!
//! # Invariants
//! 1. *One record per offset.* Every byte is written once, except after a failed append: there a fence of a higher epoch
//!    overwrites the failed record and is made durable before anything else is written. See `RecordWriter::append`.
//! 2. *Own address.* A record's checksum covers its file and offset, so a misdirected or stale block is not a record.
//!    A long record's header begins with a tag computed from file and offset, so a search finds headers for any payloads.
//! 3. *Contiguous numbers.* A record starts at the sequence number after its predecessor's last. Writer and reader check it.
//!    A short record does not store its number; its checksum covers it.
//!
//! # On disk
//! Layout: docs/format/log.md.

mod buffer;
mod claims;
mod file_header;
mod reach;
mod reader;
mod record_header;
mod resync;
mod search;
mod stamp;
#[cfg(test)]
mod tests;
mod writer;

pub use buffer::{Append, RecordBuf};
pub(crate) use file_header::HeaderState;
pub use file_header::{FILE_HEADER_LEN, FileKind, ManifestHint};
pub(crate) use reader::{Found, RecordReader};
pub use record_header::{ChainStart, PAYLOAD_LEN_MAX, RECORD_HEADER_LEN, SEQ_MAX, SHORT_HEADER_LEN, SeqNo};
pub(crate) use record_header::{RecordHeader, RecordKind};
pub(crate) use search::LaterRecord;
pub(crate) use stamp::Stamp;
pub use writer::{RecordFileOptions, RecordWriter};
