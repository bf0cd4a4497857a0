//! The manifest: the log of version edits, and the `CURRENT` file that names the one in force.
//!
//! Every edit is synced before anything relies on it. Each open, and a manifest grown long, starts a new file with the
//! whole version as its first edit, and then points `CURRENT` to it by a rename.
//!
//! # Invariants
//! 1. *The only truth*: every prefix of the manifest that ends at a whole edit is a consistent version.
//! 2. *Order*: a new manifest, and its name, are durable before `CURRENT` names it.
//! 3. *Closed*: `CURRENT` says how far manifest and log had got only after all of that is durable, and says it no more
//!    once the store is open: opening begins with a new manifest and a new `CURRENT`.
//!
//! # On disk
//! Layout: docs/format/manifest.md; of `CURRENT`: docs/format/directory.md. The records are those of the log:
//! docs/format/log.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, OpenOptions, Result, failpoint};
use pleach_log::{
    Append, FileKind, ManifestHint, RecordBuf, RecordFileOptions, RecordWriter, SeqNo, read_records,
};

use crate::version::edit::Edit;
use crate::version::{FileTable, Version};

/// Kind of record file.
pub(crate) const MANIFEST: FileKind = FileKind { magic: *b"PLCHMAN1", version: 4, name: "manifest" };

/// Name of the file that names the manifest.
pub(crate) const CURRENT: &str = "CURRENT";
/// Name under which a new `CURRENT` is written.
pub(crate) const CURRENT_TMP: &str = "CURRENT.tmp";

/// First line of `CURRENT`; the number is the version of the directory's layout.
const CURRENT_HEADER: &str = "pleach 1";

/// `CURRENT` is a few lines; more is damage.
const CURRENT_LEN_MAX: u64 = 256;

/// Space is reserved in steps of this many bytes, so that an edit that frees space finds room on a full disk.
const RESERVE_STEP: u64 = 16 << 10;

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
}

impl Manifest {
    /// Writes manifest `id` with `version` as its first edit, makes it durable and points `CURRENT` to it. What it leaves
    /// behind where that fails is only what `CURRENT` may name.
    pub(crate) fn create(env: &dyn Env, dir: &Path, id: FileId, version: &Version) -> Result<Self, Failed> {
        let prepared = Self::prepare(env, dir, id, version).inspect_err(|_| discard(env, dir, id));
        let manifest = prepared.map_err(|error| Failed { error, is_in_doubt: false })?;
        if let Err(error) = rename_current(env, dir) {
            // A shortage is noticed before anything is renamed.
            let is_in_doubt = !error.is_shortage();
            if !is_in_doubt {
                discard(env, dir, id);
            }
            return Err(Failed { error, is_in_doubt });
        }
        sync_current(env, dir).map_err(|error| Failed { error, is_in_doubt: true })?;
        Ok(manifest)
    }

    /// Everything up to the renaming of `CURRENT.tmp`.
    fn prepare(env: &dyn Env, dir: &Path, id: FileId, version: &Version) -> Result<Self> {
        let writer = RecordWriter::create(env, &manifest_path(dir, id), &record_file_options(id))?;
        let mut manifest = Self { writer, record: RecordBuf::new(), first_len: 0 };
        manifest.append(&version.as_edit())?;
        manifest.first_len = manifest.writer.offset();
        env.sync_dir(dir, "manifest.dir_sync").map_err(|e| Error::io("sync the directory", dir, e))?;
        write_current_tmp(env, dir, &Current { manifest: id, closed: None })?;
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
    /// An error that says so (full disk) leaves the manifest as it was; a failed sync poisons it.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<()> {
        self.record.clear();
        edit.encode(self.record.bytes_mut());
        let first_seq = self.writer.next_seq();
        let appended = self.writer.append([Append { record: &mut self.record, first_seq, count: 1 }]);
        if appended.is_err() {
            // The caller goes on as if the edit were nowhere, and removes the files it names: a crash must not bring it
            // back. Where not even the fence finds room, too little of the edit is there to be found.
            let _poisoned_if_not_durable = self.writer.settle_fence();
        }
        appended?;
        self.writer.sync("manifest.sync")
    }

    /// Whether it is time for a new file.
    pub(crate) fn should_replace(&self) -> bool {
        let len = self.writer.offset();
        let is_long = len > REPLACE_LEN_MIN && len / GROWTH_MAX > self.first_len;
        // Tests cannot wait for a mebibyte of edits.
        let is_long_for_tests = failpoint::skipped("tune.short_manifests") && len > self.first_len + 100;
        self.is_exhausted() || is_long || is_long_for_tests
    }

    /// Notes in `CURRENT` that the store is closed with everything up to `last_seq` durable. From then on whatever is
    /// missing from manifest or log is damage, however much the rest looks like a torn tail.
    pub(crate) fn note_closed(&self, env: &dyn Env, dir: &Path, last_seq: SeqNo) -> Result<()> {
        let closed = Closed { manifest_len: self.writer.durable_len(), last_seq };
        write_current_tmp(env, dir, &Current { manifest: self.id(), closed: Some(closed) })?;
        rename_current(env, dir)?;
        sync_current(env, dir)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.writer.is_poisoned()
    }

    pub(crate) fn id(&self) -> FileId {
        self.writer.id()
    }

    /// Its hint in log segments.
    pub(crate) fn hint(&self) -> ManifestHint {
        ManifestHint { file: self.writer.id(), len: self.writer.durable_len() }
    }
}

/// The content of `CURRENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    /// The manifest in force.
    pub(crate) manifest: FileId,
    /// How far things had got, if the store was closed and not opened since.
    pub(crate) closed: Option<Closed>,
}

/// The durable state when the store was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Bytes of the manifest.
    pub(crate) manifest_len: u64,
    /// The last write.
    pub(crate) last_seq: SeqNo,
}

impl Current {
    fn encode(&self) -> String {
        let closed = self.closed.map_or_else(String::new, Closed::encode);
        with_checksum(&format!("{CURRENT_HEADER}\nMANIFEST-{}\n{closed}", self.manifest))
    }

    /// Requires: the first line and the checksum have been looked at.
    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines().skip(1);
        let manifest = parse_manifest_name(lines.next()?)?;
        let closed = lines.next().and_then(|line| line.strip_prefix("closed ")).and_then(Closed::decode);
        Some(Self { manifest, closed })
    }
}

impl Closed {
    fn encode(self) -> String {
        format!("closed {} {}\n", self.manifest_len, self.last_seq)
    }

    fn decode(numbers: &str) -> Option<Self> {
        let (manifest_len, last_seq) = numbers.split_once(' ')?;
        Some(Self { manifest_len: manifest_len.parse().ok()?, last_seq: last_seq.parse().ok()? })
    }
}

fn with_checksum(body: &str) -> String {
    let crc = crc32c::crc32c(body.as_bytes());
    format!("{body}crc32c {crc:08x}\n")
}

/// Writes the next `CURRENT` under another name, and makes it durable.
fn write_current_tmp(env: &dyn Env, dir: &Path, current: &Current) -> Result<()> {
    let tmp = dir.join(CURRENT_TMP);
    if env.metadata(&tmp).map_err(|e| Error::io("look for", &tmp, e))?.is_some() {
        env.remove_file(&tmp).map_err(|e| Error::io("remove", &tmp, e))?;
    }
    let file = env.create_file(&tmp).map_err(|e| Error::io("create", &tmp, e))?;
    file.write_all_at(current.encode().as_bytes(), 0).map_err(|e| Error::io("write", &tmp, e))?;
    file.sync("current.sync").map_err(|e| Error::io("sync", &tmp, e))
}

fn rename_current(env: &dyn Env, dir: &Path) -> Result<()> {
    let tmp = dir.join(CURRENT_TMP);
    env.rename(&tmp, &dir.join(CURRENT)).map_err(|e| Error::io("rename to CURRENT", &tmp, e))
}

fn sync_current(env: &dyn Env, dir: &Path) -> Result<()> {
    env.sync_dir(dir, "current.dir_sync").map_err(|e| Error::io("sync the directory", dir, e))
}

/// Removes what a manifest that nothing names has left. Best effort: the next open does it too.
fn discard(env: &dyn Env, dir: &Path, id: FileId) {
    for path in [manifest_path(dir, id), dir.join(CURRENT_TMP)] {
        let _stays_for_the_next_open = env.remove_file(&path);
    }
}

/// The content of `CURRENT`; `None` when there is no `CURRENT`.
pub(crate) fn read_current(env: &dyn Env, dir: &Path) -> Result<Option<Current>> {
    let path = dir.join(CURRENT);
    let Some(metadata) = env.metadata(&path).map_err(|e| Error::io("look for", &path, e))? else {
        return Ok(None);
    };
    if metadata.len > CURRENT_LEN_MAX {
        return Err(damaged_current(&path, "CURRENT is longer than any CURRENT is"));
    }
    let file = env.open_file(&path, OpenOptions::default()).map_err(|e| Error::io("open", &path, e))?;
    let mut bytes = vec![0; usize::try_from(metadata.len).expect("checked above")];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
    parse_current(&path, &bytes).map(Some)
}

fn parse_current(path: &Path, bytes: &[u8]) -> Result<Current> {
    let damaged = |message| Err(damaged_current(path, message));
    let Ok(text) = std::str::from_utf8(bytes) else { return damaged("CURRENT is not text") };
    let last_line = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
    let is_whole = with_checksum(&text[..last_line]) == text || failpoint::skipped("current.crc");
    match text.lines().next() {
        Some(CURRENT_HEADER) => {}
        Some(other) if other.starts_with("pleach ") && is_whole => {
            return Err(Error::unsupported(path, other_layout(other)));
        }
        _ => return damaged("CURRENT does not begin as it should"),
    }
    if !is_whole {
        return damaged("CURRENT does not match its checksum");
    }
    match Current::decode(text) {
        Some(current) if current.encode() == text || failpoint::skipped("current.crc") => Ok(current),
        _ => damaged("CURRENT has a valid checksum but makes no sense"),
    }
}

/// Advice about a layout that is not this build's.
fn other_layout(line: &str) -> String {
    let number = |line: &str| line.strip_prefix("pleach ")?.parse::<u64>().ok();
    let advice = if number(line).is_some_and(|found| Some(found) < number(CURRENT_HEADER)) {
        "an older build wrote it: dump the store with that one and load it with this one"
    } else {
        "a newer build wrote it: open the store with that one"
    };
    format!("the store's layout is {line:?}, this build knows {CURRENT_HEADER:?}; {advice}")
}

fn damaged_current(path: &Path, message: &str) -> Error {
    let message = format!("{message}; restore the file, or name the manifest in it by hand");
    Error::corruption(path, 0, message)
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
    let recovery = read_records(env, &path, &MANIFEST, id, 1, &mut |record| {
        let damaged = |message: String| Error::corruption(&path, record.offset, message);
        let edit = Edit::decode(record.payload)
            .ok_or_else(|| damaged("the edit has a valid checksum but makes no sense".to_owned()))?;
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
    use pleach_env::ErrorKind;

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
        let path = Path::new("CURRENT");
        let open = Current { manifest: FileId(7), closed: None };
        let closed = Current { closed: Some(Closed { manifest_len: 1944, last_seq: 300 }), ..open };
        for (current, text) in [
            (open, "pleach 1\nMANIFEST-000007\ncrc32c a01b3a2e\n"),
            (closed, "pleach 1\nMANIFEST-000007\nclosed 1944 300\ncrc32c 6d960dbf\n"),
        ] {
            assert_eq!(current.encode(), text);
            assert_eq!(parse_current(path, text.as_bytes()).unwrap(), current);
        }
    }

    #[test]
    fn a_current_of_another_layout_is_refused_and_a_senseless_one_is_damaged() {
        let kind = |body: &str| {
            let text = with_checksum(body);
            parse_current(Path::new("CURRENT"), text.as_bytes()).unwrap_err().kind()
        };
        assert_eq!(kind("pleach 2\nanything\n"), ErrorKind::Unsupported);
        assert_eq!(kind("pleach 12\n"), ErrorKind::Unsupported);
        assert!(other_layout("pleach 12").contains("a newer build"));
        assert!(other_layout("pleach 0").contains("an older build"));
        for body in [
            "",
            "pleach 1\n",
            "pleach 1\nMANIFEST-7\n",
            "pleach 1\nMANIFEST-000007\nclosed 1\n",
            "pleach 1\nMANIFEST-000007\nclosed 01 2\n",
            "pleach 1\nMANIFEST-000007\nclosed 1 2\nmore\n",
            "plait 1\nMANIFEST-000007\n",
        ] {
            assert_eq!(kind(body), ErrorKind::Corruption, "{body:?}");
        }
    }
}
