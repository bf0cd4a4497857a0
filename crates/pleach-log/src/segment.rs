//! Log segments by name: `{id}.log`, at least six digits, in the store's directory.

use std::path::{Path, PathBuf};

use pleach_env::FileId;

use crate::record_file::FileKind;

/// Log segments as a kind of record file.
pub const LOG_SEGMENT: FileKind = FileKind { magic: *b"PLCHLOG1", version: 3, name: "log segment" };

const SUFFIX: &str = ".log";

/// Path of segment `id` in `dir`.
pub fn segment_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id}{SUFFIX}"))
}

/// The segment with this file name; `None` for names that [`segment_path`] never makes.
pub fn parse_segment_name(name: &str) -> Option<FileId> {
    FileId::parse(name.strip_suffix(SUFFIX)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_other_names_are_refused() {
        for id in [0, 7, 999_999, 1_000_000, u64::MAX] {
            let path = segment_path(Path::new("db"), FileId(id));
            let name = path.file_name().and_then(|n| n.to_str()).unwrap();
            assert_eq!(parse_segment_name(name), Some(FileId(id)));
        }
        for name in [
            "7.log",
            "0000007.log",
            "000007.sst",
            "+00007.log",
            ".log",
            "000007.log~",
            "99999999999999999999.log",
        ] {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }
}
