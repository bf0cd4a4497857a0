//! The manifest: the log of version edits, and the `CURRENT` file that names the one in force.
//!
//! Every edit is synced before anything relies on it. Each open starts a new manifest, and so does the next edit once the
//! manifest has grown long. The first edit of a manifest is the whole version. When it is durable, a rename makes
//! `CURRENT` name the new manifest.
//!
//! # Invariants
//! 1. *The only truth*: every prefix of the manifest that ends at a whole edit is a consistent version.
//! 2. *Order*: a new manifest, and its name, are durable before `CURRENT` names it.
//! 3. *Closed*: a close notes in `CURRENT` where manifest and log end, after both are durable. An open begins with a new
//!    manifest and a new `CURRENT`, so an open store has no such note.
//!
//! # On disk
//! Layout: docs/format/manifest.md; of `CURRENT`: docs/format/directory.md. The records are those of the log:
//! docs/format/log.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};
use pleach_log::{
    Append, FileKind, ManifestHint, RecordBuf, RecordFileOptions, RecordWriter, SeqNo, read_records,
};

use crate::options::Thresholds;
use crate::version::edit::Edit;
use crate::version::{FileTable, Version};

mod current;
pub(crate) use current::{CURRENT, CURRENT_TMP, Closed, Current, Layout, read_current, sync_rename};

/// Kind of record file.
pub(crate) const MANIFEST: FileKind = FileKind { magic: *b"PLCHMAN1", version: 4, name: "manifest" };

/// Space is reserved in steps of this many bytes, so that an edit that frees space finds room on a full disk.
const RESERVE_STEP: u64 = 16 << 10;

/// Path of manifest `id` in `dir`.
pub(crate) fn manifest_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("MANIFEST-{id}"))
}

/// The number in a manifest's file name.
pub(crate) fn parse_manifest_name(name: &str) -> Option<FileId> {
    FileId::parse(name.strip_prefix("MANIFEST-")?)
}

/// How manifest `id` begins.
pub(crate) fn record_file_options(id: FileId) -> RecordFileOptions {
    RecordFileOptions {
        kind: MANIFEST,
        id,
        hint: ManifestHint::NONE,
        preallocate: Some(RESERVE_STEP),
        next_seq: 1,
        durable_seq: 0,
    }
}

/// Why there is no new manifest.
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// Whether `CURRENT` may name the new manifest all the same.
    pub(crate) is_in_doubt: bool,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// The manifest being written.
pub(crate) struct Manifest {
    writer: RecordWriter,
    record: RecordBuf,
    /// Length after the first edit.
    first_len: u64,
    layout: Layout,
}

impl Manifest {
    /// Writes manifest `id` with `version` as its first edit, makes it durable and makes `CURRENT` name it. After an error
    /// the file is removed, unless `CURRENT` may name it.
    pub(crate) fn create(
        env: &dyn Env,
        dir: &Path,
        (id, layout): (FileId, Layout),
        version: &Version,
    ) -> Result<Self, Failed> {
        let prepared = Self::prepare(env, dir, (id, layout), version).inspect_err(|_| discard(env, dir, id));
        let manifest = prepared.map_err(|error| Failed { error, is_in_doubt: false })?;
        if let Err(error) = current::rename_tmp(env, dir) {
            // A shortage is noticed before anything is renamed.
            let is_in_doubt = !error.is_shortage();
            if !is_in_doubt {
                discard(env, dir, id);
            }
            return Err(Failed { error, is_in_doubt });
        }
        sync_rename(env, dir).map_err(|error| Failed { error, is_in_doubt: true })?;
        Ok(manifest)
    }

    /// Everything up to the renaming of `CURRENT.tmp`.
    fn prepare(env: &dyn Env, dir: &Path, (id, layout): (FileId, Layout), version: &Version) -> Result<Self> {
        let writer = RecordWriter::create(env, &manifest_path(dir, id), &record_file_options(id))?;
        let mut manifest = Self { writer, record: RecordBuf::new(), first_len: 0, layout };
        manifest.append(&version.as_edit())?;
        manifest.first_len = manifest.writer.offset();
        env.sync_dir(dir, "manifest.dir_sync").map_err(|e| Error::io("sync the directory", dir, e))?;
        current::write_tmp(env, dir, &Current { layout, manifest: id, closed: None })?;
        Ok(manifest)
    }

    /// Length after the first edit, which holds the whole version.
    pub(crate) fn first_len(&self) -> u64 {
        self.first_len
    }

    /// Whether it takes no more edits, after too many failures.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.writer.is_exhausted()
    }

    /// Appends an edit and makes it durable.
    ///
    /// A shortage, such as a full disk, leaves the manifest as it was; a failed sync poisons it.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<()> {
        self.record.clear();
        edit.encode(self.record.bytes_mut());
        let first_seq = self.writer.next_seq();
        let appended = self.writer.append([Append { record: &mut self.record, first_seq, count: 1 }]);
        if appended.is_err() {
            // The caller removes the files that the edit names, so a crash must not bring the edit back: a fence overwrites
            // its beginning. If the disk has no space for even the fence, the edit did not fit either and is no whole record.
            let _poisoned_if_not_durable = self.writer.settle_fence();
        }
        appended?;
        self.writer.sync("manifest.sync")
    }

    /// Whether it is time for a new file.
    pub(crate) fn should_replace(&self, thresholds: &Thresholds) -> bool {
        let len = self.writer.offset();
        let is_long = len > thresholds.manifest_len && len / thresholds.manifest_growth > self.first_len;
        self.is_exhausted() || is_long
    }

    /// Notes in `CURRENT` that the store is closed with everything up to `last_seq` durable. The next open reports missing
    /// bytes of manifest or log as damage; without the note it would take them for a torn tail. `layout` is that of what the
    /// store holds now.
    pub(crate) fn note_closed(
        &self,
        env: &dyn Env,
        dir: &Path,
        layout: Layout,
        last_seq: SeqNo,
    ) -> Result<()> {
        let closed = Closed { manifest_len: self.writer.durable_len(), last_seq };
        current::write_tmp(env, dir, &Current { layout, manifest: self.id(), closed: Some(closed) })?;
        current::rename_tmp(env, dir)?;
        sync_rename(env, dir)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.writer.is_poisoned()
    }

    pub(crate) fn id(&self) -> FileId {
        self.writer.id()
    }

    /// The layout that `CURRENT` states while the store is open.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Its hint in log segments.
    pub(crate) fn hint(&self) -> ManifestHint {
        ManifestHint { file: self.writer.id(), len: self.writer.durable_len() }
    }
}

/// Removes a new manifest that `CURRENT` does not name. Best effort: the next open does it too.
fn discard(env: &dyn Env, dir: &Path, id: FileId) {
    for path in [manifest_path(dir, id), dir.join(CURRENT_TMP)] {
        let _stays_for_the_next_open = env.remove_file(&path);
    }
}

/// Reads manifest `id`: the version it leads to and where its valid part ends.
pub(crate) fn read_manifest(
    env: &Arc<dyn Env>,
    dir: &Path,
    id: FileId,
    files: &mut FileTable,
) -> Result<(Version, u64)> {
    let path = manifest_path(dir, id);
    if env.metadata(&path).map_err(|e| Error::io("look for the file", &path, e))?.is_none() {
        return Err(Error::corruption(&path, 0, "CURRENT names this manifest, but it is missing"));
    }
    let mut version = Version::empty();
    let recovery = read_records(env, &path, &MANIFEST, id, 1, &mut |record| {
        let damaged = |message: String| Error::corruption(&path, record.offset, message);
        let edit = Edit::decode(record.payload)
            .ok_or_else(|| damaged("the edit has a valid checksum but cannot be decoded".to_owned()))?;
        let applied = version.apply(&edit, files, &[]);
        let (next, changes) = applied.map_err(|m| damaged(format!("the edit does not fit: {m}")))?;
        version = next;
        files.install(changes);
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
}
