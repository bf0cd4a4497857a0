//! Names of the files of SSTs and of separated values.
//!
//! # On disk
//! docs/format/directory.md.

use std::path::{Path, PathBuf};

use pleach_env::FileId;

/// Path of SST `id` in `dir`.
pub(crate) fn sst_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id}.sst"))
}

/// The number in an SST's file name.
pub(crate) fn parse_sst_name(name: &str) -> Option<FileId> {
    FileId::parse(name.strip_suffix(".sst")?)
}

/// Path of value file `id` in `dir`.
pub(crate) fn values_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id}.val"))
}

/// The number in a value file's name.
pub(crate) fn parse_values_name(name: &str) -> Option<FileId> {
    FileId::parse(name.strip_suffix(".val")?)
}
