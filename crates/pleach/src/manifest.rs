//! The manifest: the log of version edits, and the `CURRENT` file that names the one in force.
//!
//! Every edit is synced before anything relies on it. Each open, and a manifest grown long, starts a new file with the
//! whole version as its first edit, and then points `CURRENT` to it by a rename.
//!
//! # Invariants
//! 1. *The only truth*: every prefix of the manifest that ends at a whole edit is a consistent version.
//! 2. *Order*: a new manifest, and its name, are durable before `CURRENT` names it.
//!
//! # On disk
//! Layout: docs/format/manifest.md. Framing is that of the log: docs/format/log.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, OpenOptions, Result};
use pleach_log::{Append, FileKind, FrameOptions, FrameWriter, ManifestHint, RecordBuf, read_frames};

use crate::version::edit::Edit;
use crate::version::{FileTable, Version};

/// Kind of framed file.
const MANIFEST: FileKind = FileKind { magic: *b"PLCHMAN1", version: 1, name: "manifest" };

/// Name of the file that names the manifest.
pub(crate) const CURRENT: &str = "CURRENT";
/// Name under which a new `CURRENT` is written.
pub(crate) const CURRENT_TMP: &str = "CURRENT.tmp";

/// First line of `CURRENT`; the number is the version of the directory's layout.
const CURRENT_HEADER: &str = "pleach 1";

/// `CURRENT` is a few lines; more is damage.
const CURRENT_LEN_MAX: u64 = 256;

/// A manifest at least this long, and [`GROWTH_MAX`] times its first edit, is replaced by a new one.
const REPLACE_LEN_MIN: u64 = 1 << 20;
const GROWTH_MAX: u64 = 8;

/// Path of manifest `id` in `dir`.
pub(crate) fn manifest_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("MANIFEST-{id}"))
}

/// The number in a manifest's file name.
pub(crate) fn parse_manifest_name(name: &str) -> Option<FileId> {
    let digits = name.strip_prefix("MANIFEST-")?;
    let id = FileId(digits.parse().ok()?);
    (format!("{id}") == digits).then_some(id)
}

/// The manifest being written.
pub(crate) struct Manifest {
    writer: FrameWriter,
    record: RecordBuf,
    /// Length after the first edit.
    first_len: u64,
}

impl Manifest {
    /// Writes manifest `id` with `version` as its first edit, makes it durable and points `CURRENT` to it.
    pub(crate) fn create(env: &dyn Env, dir: &Path, id: FileId, version: &Version) -> Result<Self> {
        let path = manifest_path(dir, id);
        let options = FrameOptions {
            kind: MANIFEST,
            id,
            hint: ManifestHint::NONE,
            preallocate: None,
            next_seq: 1,
            durable_seq: 0,
        };
        let writer = FrameWriter::create(env, &path, &options)?;
        let mut manifest = Self { writer, record: RecordBuf::new(), first_len: 0 };
        manifest.append(&version.as_edit())?;
        manifest.first_len = manifest.writer.offset();
        env.sync_dir(dir, "manifest.dir_sync").map_err(|e| Error::io("sync the directory", dir, e))?;
        write_current(env, dir, id)?;
        Ok(manifest)
    }

    /// Appends an edit and makes it durable.
    ///
    /// An error that says so (full disk) leaves the manifest as it was; a failed sync poisons it.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<()> {
        self.record.clear();
        edit.encode(self.record.bytes_mut());
        let first_seq = self.writer.next_seq();
        self.writer.append([Append { record: &mut self.record, first_seq, count: 1 }])?;
        self.writer.sync("manifest.sync")
    }

    /// Whether it is time for a new file.
    pub(crate) fn should_replace(&self) -> bool {
        let len = self.writer.offset();
        self.writer.is_exhausted() || (len > REPLACE_LEN_MIN && len / GROWTH_MAX > self.first_len)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.writer.is_poisoned()
    }

    pub(crate) fn id(&self) -> FileId {
        self.writer.id()
    }

    /// What log segments note of it.
    pub(crate) fn hint(&self) -> ManifestHint {
        ManifestHint { file: self.writer.id(), len: self.writer.durable_len() }
    }
}

fn write_current(env: &dyn Env, dir: &Path, id: FileId) -> Result<()> {
    let (tmp, path) = (dir.join(CURRENT_TMP), dir.join(CURRENT));
    if env.metadata(&tmp).map_err(|e| Error::io("look for", &tmp, e))?.is_some() {
        env.remove_file(&tmp).map_err(|e| Error::io("remove", &tmp, e))?;
    }
    let text = current_text(id);
    let file = env.create_file(&tmp).map_err(|e| Error::io("create", &tmp, e))?;
    file.write_all_at(text.as_bytes(), 0).map_err(|e| Error::io("write", &tmp, e))?;
    file.sync("current.sync").map_err(|e| Error::io("sync", &tmp, e))?;
    env.rename(&tmp, &path).map_err(|e| Error::io("rename to CURRENT", &tmp, e))?;
    env.sync_dir(dir, "current.dir_sync").map_err(|e| Error::io("sync the directory", dir, e))
}

fn current_text(id: FileId) -> String {
    let body = format!("{CURRENT_HEADER}\nMANIFEST-{id}\n");
    let crc = crc32c::crc32c(body.as_bytes());
    format!("{body}crc32c {crc:08x}\n")
}

/// The manifest that `CURRENT` names; `None` when there is no `CURRENT`.
pub(crate) fn read_current(env: &dyn Env, dir: &Path) -> Result<Option<FileId>> {
    let path = dir.join(CURRENT);
    let Some(metadata) = env.metadata(&path).map_err(|e| Error::io("look for", &path, e))? else {
        return Ok(None);
    };
    let damaged = |message: &str| {
        Err(Error::corruption(
            &path,
            0,
            format!("{message}; restore the file, or name the manifest in it by hand"),
        ))
    };
    if metadata.len > CURRENT_LEN_MAX {
        return damaged("CURRENT is longer than any CURRENT is");
    }
    let file = env.open_file(&path, OpenOptions::default()).map_err(|e| Error::io("open", &path, e))?;
    let mut bytes = vec![0; usize::try_from(metadata.len).expect("checked above")];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
    let Ok(text) = std::str::from_utf8(&bytes) else { return damaged("CURRENT is not text") };
    let mut lines = text.lines();
    match lines.next() {
        Some(CURRENT_HEADER) => {}
        Some(other) if other.starts_with("pleach ") && text == current_like(text) => {
            return Err(Error::unsupported(
                &path,
                format!("the store's layout is {other:?}; this build knows {CURRENT_HEADER:?}"),
            ));
        }
        _ => return damaged("CURRENT does not begin as it should"),
    }
    match lines.next().and_then(parse_manifest_name) {
        Some(id) if current_text(id) == text || pleach_env::failpoint::skipped("current.crc") => Ok(Some(id)),
        _ => damaged("CURRENT does not match its checksum"),
    }
}

/// `text` with the checksum that its first two lines ought to have.
fn current_like(text: &str) -> String {
    let body: String = text.split_inclusive('\n').take(2).collect();
    format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

/// Reads manifest `id`: the version it leads to and where its valid part ends.
pub(crate) fn read_manifest(
    env: &Arc<dyn Env>,
    dir: &Path,
    id: FileId,
    files: &mut FileTable,
) -> Result<(Version, u64)> {
    let path = manifest_path(dir, id);
    if env.metadata(&path).map_err(|e| Error::io("look for", &path, e))?.is_none() {
        return Err(Error::corruption(&path, 0, "CURRENT names this manifest, but it is missing"));
    }
    let mut version = Version::empty();
    let recovery = read_frames(env, &path, &MANIFEST, id, 1, &mut |record| {
        let damaged = |message: String| Error::corruption(&path, record.offset, message);
        let edit = Edit::decode(record.payload)
            .ok_or_else(|| damaged("the edit has a valid checksum but makes no sense".to_owned()))?;
        version = version.apply(&edit, files).map_err(|m| damaged(format!("the edit does not fit: {m}")))?;
        Ok(())
    })?;
    if recovery.records == 0 {
        return Err(Error::corruption(&path, recovery.end, "the manifest that CURRENT names holds no edit"));
    }
    version.check_invariants().map_err(|m| Error::corruption(&path, recovery.end, m))?;
    Ok((version, recovery.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_manifests_are_parsed_exactly() {
        assert_eq!(parse_manifest_name("MANIFEST-000007"), Some(FileId(7)));
        assert_eq!(parse_manifest_name("MANIFEST-1234567"), Some(FileId(1_234_567)));
        for name in ["MANIFEST-7", "MANIFEST-", "MANIFEST-+00007", "manifest-000007", "MANIFEST-0000007"] {
            assert_eq!(parse_manifest_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_bytes_of_current() {
        assert_eq!(current_text(FileId(7)), "pleach 1\nMANIFEST-000007\ncrc32c a01b3a2e\n");
    }
}
