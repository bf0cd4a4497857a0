//! Header of a record file: its kind, its id, and how much of the manifest was durable when it was created.
//!
//! # On disk
//! Layout: docs/format/log.md, "File header". The fields of its first 64 bytes keep their places in every format version:
//! otherwise an old build would call a newer file damaged. The stamp behind them is in `stamp`.

use std::path::Path;

use pleach_coding::{u32_at, u64_at};
use pleach_env::{Error, FileId, Result, failpoint};

use super::stamp::{STAMP_AT, STAMP_LEN};

/// Length of the header of a record file, the stamp included: where its first record starts.
pub const FILE_HEADER_LEN: usize = STAMP_AT + STAMP_LEN;

/// Length of the part that is written once.
const FIXED_LEN: usize = STAMP_AT;

/// Bytes of that part that its checksum covers: all before it.
const CHECKED_LEN: usize = FIXED_LEN - 4;

/// One kind of record file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKind {
    /// First eight bytes of every file of this kind.
    pub magic: [u8; 8],
    /// Format version that this build writes, and the only one that it reads.
    pub version: u32,
    /// Its name in messages: "log segment".
    pub name: &'static str,
}

/// How many bytes of which manifest were durable when a segment was created.
///
/// Hints are ordered by file, then by length. At least the largest one in the log's segments must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestHint {
    /// The manifest.
    pub file: FileId,
    /// How many of its bytes were durable.
    pub len: u64,
}

impl ManifestHint {
    /// Nothing is known: for the manifest itself and for tests.
    pub const NONE: Self = Self { file: FileId(0), len: 0 };
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) id: FileId,
    pub(crate) hint: ManifestHint,
}

/// What the first bytes of a file are.
#[derive(Debug)]
pub(crate) enum HeaderState {
    Whole(FileHeader),
    /// Nothing, zeros, or part of a header, as a crash during creation leaves them. The text is for messages.
    Torn(&'static str),
}

impl FileHeader {
    /// The manifest hint, if there is one.
    pub(crate) fn known_hint(&self) -> Option<ManifestHint> {
        Some(self.hint).filter(|&hint| hint != ManifestHint::NONE)
    }

    /// The header of a new file: without a stamp.
    pub(crate) fn encode(&self, kind: &FileKind) -> [u8; FILE_HEADER_LEN] {
        let mut bytes = [0; FILE_HEADER_LEN];
        bytes[0..8].copy_from_slice(&kind.magic);
        bytes[8..12].copy_from_slice(&kind.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.hint.file.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.hint.len.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CHECKED_LEN]);
        bytes[CHECKED_LEN..FIXED_LEN].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Judges the first bytes ([`FILE_HEADER_LEN`], or all there are) of the file `id` at `path`.
    pub(crate) fn decode(bytes: &[u8], kind: &FileKind, id: FileId, path: &Path) -> Result<HeaderState> {
        let started = bytes.iter().zip(&kind.magic).take_while(|(a, b)| a == b).count();
        if started < kind.magic.len() {
            if bytes[started..].iter().all(|&b| b == 0) {
                return Ok(HeaderState::Torn("zeros in place of its header"));
            }
            let found = bytes[..bytes.len().min(kind.magic.len())].escape_ascii();
            let expected = kind.magic.escape_ascii();
            return Err(Error::corruption(
                path,
                0,
                format!("expected a {} with magic {expected}, found {found}", kind.name),
            ));
        }
        let shorter = HeaderState::Torn("a file shorter than its header");
        let Some(fixed) = bytes.first_chunk::<FIXED_LEN>() else { return Ok(shorter) };
        if crc32c::crc32c(&fixed[..CHECKED_LEN]) != u32_at(fixed, CHECKED_LEN)
            && !failpoint::skipped("log.header.crc")
        {
            return Ok(HeaderState::Torn("a header with a wrong checksum"));
        }
        let header = Self::decode_checked(fixed, kind, id, path)?;
        Ok(if bytes.len() < FILE_HEADER_LEN { shorter } else { HeaderState::Whole(header) })
    }

    fn decode_checked(bytes: &[u8; FIXED_LEN], kind: &FileKind, id: FileId, path: &Path) -> Result<Self> {
        let version = u32_at(bytes, 8);
        if version > kind.version {
            let message = format!(
                "{} has format version {version}, which is newer than this build knows ({}); open it with a newer build",
                kind.name, kind.version
            );
            return Err(Error::unsupported(path, message));
        }
        if (1..kind.version).contains(&version) {
            let message = format!(
                "{} has format version {version}, which is older than this build can read ({}); dump the store with the \
                 older build that wrote it, and load it with this one",
                kind.name, kind.version
            );
            return Err(Error::unsupported(path, message));
        }
        let header = Self {
            id: FileId(u64_at(bytes, 16)),
            hint: ManifestHint { file: FileId(u64_at(bytes, 24)), len: u64_at(bytes, 32) },
        };
        if header.id != id {
            let message = format!("expected the {} with id {id}, found id {}", kind.name, header.id);
            return Err(Error::corruption(path, 16, message));
        }
        if version == 0 || u32_at(bytes, 12) != 0 || bytes[40..CHECKED_LEN].iter().any(|&b| b != 0) {
            let message = format!("expected version {} and zeros in reserved bytes", kind.version);
            return Err(Error::corruption(path, 8, message));
        }
        Ok(header)
    }
}
