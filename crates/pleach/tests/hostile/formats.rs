//! Other format versions: files with right checksums are refused as unsupported, not as damaged, and do not change.

use std::path::Path;
use std::sync::LazyLock;

use pleach::ErrorKind;

use crate::fixture::{DIR, FileKind, Fixture};

static STORE: LazyLock<Fixture> = LazyLock::new(|| Fixture::build(9, false));

/// The kind of the error of an open after `change` was applied to the first file of `kind`.
fn error_after(kind: FileKind, change: impl FnOnce(&mut Vec<u8>)) -> (ErrorKind, bool) {
    let env = STORE.machine();
    let file = STORE.files.iter().rfind(|file| file.kind() == kind).expect("there is one");
    let mut bytes = file.bytes.clone();
    change(&mut bytes);
    env.write_file(&file.path(), &bytes);
    let error = STORE.options(&env).open(DIR).expect_err("it is to be refused");
    assert_eq!(env.read_file(&file.path()).expect("it stays"), bytes);
    assert_eq!(env.op_count(), 0, "nothing was written");
    (error.kind(), error.path() == Some(&file.path()))
}

const UNSUPPORTED: (ErrorKind, bool) = (ErrorKind::Unsupported, true);

#[test]
fn a_newer_layout_is_unsupported() {
    let found = error_after(FileKind::Current, |bytes| {
        let body = "pleach 3\nMANIFEST-000007\nand what we cannot know\n";
        *bytes = format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes())).into_bytes();
    });
    assert_eq!(found, UNSUPPORTED);
}

/// Sets the version in the header of a record file.
fn set_record_file_version(bytes: &mut [u8], version: u32) {
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn another_manifest_version_is_unsupported() {
    for version in [1, 99] {
        let found = error_after(FileKind::Manifest, |bytes| set_record_file_version(bytes, version));
        assert_eq!(found, UNSUPPORTED, "version {version}");
    }
}

#[test]
fn another_log_version_is_unsupported() {
    for version in [1, 99] {
        let found = error_after(FileKind::Log, |bytes| set_record_file_version(bytes, version));
        assert_eq!(found, UNSUPPORTED, "version {version}");
    }
}

#[test]
fn another_sst_version_is_unsupported() {
    for version in [1u16, 99] {
        let found = error_after(FileKind::Sst, |bytes| {
            let footer = bytes.len() - 64;
            bytes[footer + 4..footer + 6].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[footer + 4..]);
            bytes[footer..footer + 4].copy_from_slice(&crc.to_le_bytes());
        });
        assert_eq!(found, UNSUPPORTED, "version {version}");
    }
}

#[test]
fn the_names_in_the_store_are_the_documented_ones() {
    let env = STORE.machine();
    for name in env.file_names(Path::new(DIR)) {
        let suffixes = [".log", ".sst", ".val"].into_iter();
        let stem = suffixes
            .filter_map(|suffix| name.strip_suffix(suffix))
            .chain(name.strip_prefix("MANIFEST-"))
            .next();
        let documented = name == "LOCK"
            || name == "RESERVE"
            || name == "CURRENT"
            || stem.is_some_and(|digits| digits.len() == 6);
        assert!(documented, "{name}");
    }
}
