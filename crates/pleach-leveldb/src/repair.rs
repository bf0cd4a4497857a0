//! Repair in place: `leveldb_repair_db`.
//!
//! [`pleach::repair`] writes what can be read into a new store beside the damaged one (`X.repaired`). Then the files change
//! places, one by one: those of the damaged store move to `X.damaged`, and the new ones move in. So the directory stays the
//! same one: a link to it, its mode and files of others are not touched.
//!
//! # Invariants
//! 1. *No file is removed before the new store is in its place*, and none is removed at all if something could not be read.
//! 2. *An interrupted repair is never taken for a store, nor for a place without one.* [`MARKER`] is there before the first file
//!    moves. Until `CURRENT`, which moves in last, is there, an open reports `Corruption`. The next repair goes on.
//! 3. *Old and new files are told apart.* The new manifest moves in first, after the last old file has left. So as long as the
//!    new store has it, all files in the directory are old ones.

use std::path::{Path, PathBuf};

use pleach::ErrorKind;
use pleach::env::{Env, FileId, FileLock, LockMode, OpenOptions};

use crate::database::{Found, is_leveldb, look};
use crate::options::OptionsHandle;
use crate::status::{Kind, Result, Status};

/// A file that is in the directory while files change places.
pub(crate) const MARKER: &str = "REPAIRING";

const CURRENT: &str = "CURRENT";
const LOCK: &str = "LOCK";
/// Files of a store without a number, except for the lock.
const UNNUMBERED: [&str; 3] = [CURRENT, "CURRENT.tmp", "RESERVE"];
/// Bytes of `CURRENT` at most.
const CURRENT_LEN_MAX: u64 = 256;

/// Salvages what can be read of the store at `path`, in its place.
pub(crate) fn repair(options: &OptionsHandle, path: &Path) -> Result<()> {
    let env = options.env();
    if look(&*env, path)? == Found::LevelDb {
        return Err(is_leveldb(path));
    }
    let places = Places::new(options, &*env, path)?;
    let outcome = if places.finish_interrupted()? {
        "an interrupted repair was completed"
    } else if places.salvage(options)? {
        "nothing was damaged"
    } else {
        "the old files were kept beside it"
    };
    if let Some(info_log) = &options.info_log {
        info_log.write(&format!("Pleach: repaired {}: {outcome}", path.display()));
    }
    Ok(())
}

/// Ends a repair that was interrupted, before its store is destroyed: its new store, too, holds what shall go.
pub(crate) fn abandon(options: &OptionsHandle, path: &Path) -> Result<()> {
    let env = options.env();
    let marker = path.join(MARKER);
    if env.metadata(&marker).map_err(|e| failed("look for", &marker, &e))?.is_none() {
        return Ok(());
    }
    let places = Places::new(options, &*env, path)?;
    let _lock = places.lock()?;
    for (name, _) in places.files(&places.copy)? {
        places.remove(&places.copy.join(name))?;
    }
    places.end()
}

/// The directories of a repair.
struct Places<'e> {
    env: &'e dyn Env,
    /// The store.
    dir: PathBuf,
    /// The new one.
    copy: PathBuf,
    is_on_disk: bool,
}

impl<'e> Places<'e> {
    fn new(options: &OptionsHandle, env: &'e dyn Env, path: &Path) -> Result<Self> {
        let is_on_disk = options.other_env.is_none();
        // A link stays a link: the new store must be in the same file system as the files of the old one.
        let resolved = if is_on_disk { std::fs::canonicalize(path) } else { env.absolute(path) };
        let dir = resolved.map_err(|e| failed("look for the store", path, &e))?;
        let copy = beside(&dir, ".repaired")?;
        Ok(Self { env, dir, copy, is_on_disk })
    }

    /// Goes on with a repair whose process ended while files changed places. Returns whether there was one.
    fn finish_interrupted(&self) -> Result<bool> {
        if !self.has(&self.dir, MARKER)? {
            return Ok(false);
        }
        let _lock = self.lock()?;
        let goes_on = !self.has(&self.dir, CURRENT)? && self.is_closed_store()?;
        if goes_on {
            self.change_places()?;
        }
        self.end()?;
        Ok(goes_on)
    }

    /// Repairs the store. Returns whether everything was read, so that the old files were removed.
    fn salvage(&self, options: &OptionsHandle) -> Result<bool> {
        let before = self.files(&self.dir)?;
        self.remove_copy(options)?;
        let repaired = pleach::repair(&self.dir, &self.copy, options.translate(), &mut |_, _| true);
        let report = match repaired {
            Ok(report) => report,
            Err(error) => {
                let _stays_for_the_next_repair = self.remove_copy(options);
                return Err(match error.kind() {
                    ErrorKind::NotFound => Status::new(Kind::Io, error.to_string()),
                    _ => error.into(),
                });
            }
        };
        let _lock = self.lock()?;
        if self.files(&self.dir)? != before {
            let message = "the store was opened while it was repaired; it is as it was, repair it again";
            return Err(Status::new(Kind::Io, format!("{}: {message}", self.dir.display())));
        }
        self.check_moves()?;
        self.create(&self.dir.join(MARKER))?;
        self.sync(&self.dir)?;
        let old = self.change_places()?;
        self.end()?;
        let is_clean = report.is_clean();
        if is_clean && let Some(old) = old {
            for (name, _) in self.files(&old)? {
                self.remove(&old.join(name))?;
            }
            self.remove_directory(&old);
        }
        Ok(is_clean)
    }

    /// Moves the old files away and the new ones in. Returns where the old ones are. Requires: the marker is there and durable.
    fn change_places(&self) -> Result<Option<PathBuf>> {
        let mut old = None;
        // Invariant 3.
        if self.manifest_of_copy()?.is_some() {
            let to = self.free_place()?;
            self.move_all(&self.dir, &to, self.files(&self.dir)?.into_iter().map(|(name, _)| name))?;
            old = Some(to);
        }
        let mut names: Vec<_> = self.files(&self.copy)?.into_iter().map(|(name, _)| name).collect();
        names.sort_by_key(|name| (name == CURRENT, name.starts_with("MANIFEST-")));
        let current = names.pop_if(|name| name == CURRENT);
        let manifest = names.pop_if(|name| name.starts_with("MANIFEST-"));
        self.move_all(&self.copy, &self.dir, manifest.into_iter())?;
        self.move_all(&self.copy, &self.dir, names.into_iter())?;
        self.move_all(&self.copy, &self.dir, current.into_iter())?;
        Ok(old)
    }

    /// Moves files, and makes their names durable.
    fn move_all(&self, from: &Path, to: &Path, names: impl Iterator<Item = String>) -> Result<()> {
        for name in names {
            let path = from.join(&name);
            Self::before_a_change()?;
            self.env.rename(&path, &to.join(&name)).map_err(|e| failed("move", &path, &e))?;
        }
        self.sync(to)?;
        self.sync(from)
    }

    /// Removes what the repair no longer needs.
    fn end(&self) -> Result<()> {
        self.remove(&self.dir.join(MARKER))?;
        self.sync(&self.dir)?;
        self.remove_empty_copy()
    }

    /// Removes what may be left where the new store was.
    fn remove_empty_copy(&self) -> Result<()> {
        for name in [MARKER, LOCK] {
            if self.has(&self.copy, name)? && !self.has(&self.copy, CURRENT)? {
                self.remove(&self.copy.join(name))?;
            }
        }
        self.remove_directory(&self.copy);
        Ok(())
    }

    /// Removes the new store of an earlier repair that has not moved files. Any other store of that name is removed too.
    fn remove_copy(&self, options: &OptionsHandle) -> Result<()> {
        match pleach::destroy(&self.copy, &options.translate()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        self.remove_empty_copy()
    }

    /// An error if files cannot be moved between the directories: the store may be a mount point.
    fn check_moves(&self) -> Result<()> {
        let (from, to) = (self.copy.join(MARKER), self.dir.join(MARKER));
        self.create(&from)?;
        self.env.rename(&from, &to).map_err(|e| failed("move a file into", &self.dir, &e))?;
        self.remove(&to)
    }

    /// Whether the new store was completed: its close is noted in `CURRENT`.
    fn is_closed_store(&self) -> Result<bool> {
        let path = self.copy.join(CURRENT);
        let failed = |e: std::io::Error| failed("read", &path, &e);
        let Some(metadata) = self.env.metadata(&path).map_err(failed)? else { return Ok(false) };
        let file = self.env.open_file(&path, OpenOptions::default()).map_err(failed)?;
        let mut text = vec![0; usize::try_from(metadata.len.min(CURRENT_LEN_MAX)).unwrap_or(0)];
        file.read_exact_at(&mut text, 0).map_err(failed)?;
        Ok(text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"closed ")))
    }

    fn manifest_of_copy(&self) -> Result<Option<String>> {
        let names = self.files(&self.copy)?.into_iter().map(|(name, _)| name);
        Ok(names.into_iter().find(|name| name.starts_with("MANIFEST-")))
    }

    /// An empty directory for the old files.
    fn free_place(&self) -> Result<PathBuf> {
        for n in 1_u64.. {
            let end = if n == 1 { ".damaged".to_owned() } else { format!(".damaged-{n}") };
            let path = beside(&self.dir, &end)?;
            let failed = |e: std::io::Error| failed("make a place for old files in", &path, &e);
            match self.env.metadata(&path).map_err(failed)? {
                None => self.env.create_dir_all(&path).map_err(failed)?,
                Some(metadata) if metadata.is_file => continue,
                Some(_) if self.env.list_dir(&path).map_err(failed)?.is_empty() => {}
                Some(_) => continue,
            }
            return Ok(path);
        }
        unreachable!("numbers do not end")
    }

    /// The store's files in a directory, with their lengths, in the order of their names. Without the lock, which stays where
    /// it is.
    fn files(&self, dir: &Path) -> Result<Vec<(String, u64)>> {
        if self.env.metadata(dir).map_err(|e| failed("look for", dir, &e))?.is_none() {
            return Ok(Vec::new());
        }
        let all = self.env.list_dir(dir).map_err(|e| failed("list", dir, &e))?;
        let files = all.into_iter().filter(|(name, metadata)| metadata.is_file && is_of_a_store(name));
        Ok(files.map(|(name, metadata)| (name, metadata.len)).collect())
    }

    fn lock(&self) -> Result<Box<dyn FileLock>> {
        let path = self.dir.join(LOCK);
        let lock = self.env.lock_file(&path, LockMode::Exclusive).map_err(|e| failed("lock", &path, &e))?;
        lock.ok_or_else(|| Status::new(Kind::Io, format!("lock {}: the store is open", path.display())))
    }

    fn has(&self, dir: &Path, name: &str) -> Result<bool> {
        let path = dir.join(name);
        Ok(self.env.metadata(&path).map_err(|e| failed("look for", &path, &e))?.is_some())
    }

    fn create(&self, path: &Path) -> Result<()> {
        if self.env.metadata(path).map_err(|e| failed("look for", path, &e))?.is_none() {
            Self::before_a_change()?;
            self.env.create_file(path).map_err(|e| failed("create", path, &e))?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Self::before_a_change()?;
        self.env.remove_file(path).map_err(|e| failed("remove", path, &e))
    }

    /// Where tests interrupt a repair.
    #[cfg_attr(not(test), expect(clippy::unnecessary_wraps, reason = "for tests"))]
    fn before_a_change() -> Result<()> {
        #[cfg(test)]
        tests::count_change()?;
        Ok(())
    }

    fn sync(&self, dir: &Path) -> Result<()> {
        self.env.sync_dir(dir, "current.dir_sync").map_err(|e| failed("sync", dir, &e))
    }

    fn remove_directory(&self, dir: &Path) {
        remove_directory(self.is_on_disk, dir);
    }
}

fn failed(action: &str, path: &Path, error: &std::io::Error) -> Status {
    Status::new(Kind::Io, format!("{action} {}: {error}", path.display()))
}

/// Removes a directory of the machine, unless something is in it. Directories of another environment stay, empty.
pub(crate) fn remove_directory(is_on_disk: bool, dir: &Path) {
    if is_on_disk {
        let _has_other_files = std::fs::remove_dir(dir);
    }
}

/// Whether Pleach gives this name to files of a store: docs/format/directory.md.
fn is_of_a_store(name: &str) -> bool {
    let numbered = ["log", "sst", "val"]
        .iter()
        .find_map(|end| name.strip_suffix(end)?.strip_suffix('.'))
        .or_else(|| name.strip_prefix("MANIFEST-"));
    UNNUMBERED.contains(&name) || numbered.is_some_and(|digits| FileId::parse(digits).is_some())
}

/// The path with something behind its name.
fn beside(dir: &Path, end: &str) -> Result<PathBuf> {
    let name = dir.file_name().ok_or_else(|| {
        Status::new(
            Kind::Io,
            format!("{}: a store here cannot be repaired: it has no directory above", dir.display()),
        )
    })?;
    let mut name = name.to_os_string();
    name.push(end);
    Ok(dir.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::Arc;

    use pleach::env::{Env, MemEnv};

    use super::{CURRENT, Kind, OptionsHandle, Result, Status, repair};
    use crate::tests::{keys, open, options_on, put};
    use crate::{leveldb_close, leveldb_compact_range};

    thread_local! {
        /// Changes after which a repair on this thread is interrupted.
        pub(super) static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    pub(super) fn count_change() -> Result<()> {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        if left == 0 { Err(Status::new(Kind::Io, "interrupted by the test")) } else { Ok(()) }
    }

    /// A store whose `CURRENT` is lost, and its keys.
    fn damaged_store() -> (Arc<MemEnv>, Vec<Vec<u8>>) {
        let env = Arc::new(MemEnv::new());
        let db = open(&options_on(&env)).unwrap();
        for n in 0..60_u8 {
            put(&db, &[n], &vec![n; if n % 7 == 0 { 3000 } else { 30 }], false);
            if n == 40 {
                // SAFETY: there are no bounds.
                unsafe { leveldb_compact_range(&db, std::ptr::null(), 0, std::ptr::null(), 0) };
            }
        }
        let all = keys(&db);
        leveldb_close(Some(db));
        env.remove_file(&Path::new("/db").join(CURRENT)).unwrap();
        (env, all)
    }

    /// A repair that is interrupted after so many changes, if it makes more.
    fn repair_interrupted(options: &OptionsHandle, changes: u64) -> Result<()> {
        LEFT.set(changes);
        let repaired = repair(options, Path::new("/db"));
        let is_interrupted = LEFT.replace(u64::MAX) == 0;
        assert!(is_interrupted || repaired.is_ok(), "nothing but the test fails");
        repaired
    }

    #[test]
    fn a_store_whose_repair_was_interrupted_anywhere_can_be_destroyed() {
        for changes in 0.. {
            let (env, _) = damaged_store();
            let options = options_on(&env);
            let is_interrupted = repair_interrupted(&options, changes).is_err();
            crate::manage::destroy(&options, Path::new("/db")).unwrap();
            let db = open(&options).unwrap_or_else(|error| panic!("after {changes} changes: {error}"));
            assert!(keys(&db).is_empty(), "after {changes} changes something came back");
            leveldb_close(Some(db));
            if !is_interrupted {
                return;
            }
        }
    }

    #[test]
    fn a_repair_that_is_interrupted_anywhere_is_completed_by_the_next() {
        for changes in 0.. {
            let (env, all) = damaged_store();
            let options = options_on(&env);
            let is_interrupted = repair_interrupted(&options, changes).is_err();
            match open(&options) {
                Ok(db) => assert_eq!(keys(&db), all, "after {changes} changes"),
                Err(error) => {
                    assert!(is_interrupted, "{error}");
                    assert!(error.starts_with("Corruption: "), "after {changes} changes: {error}");
                }
            }
            // Twice, so that a repair that goes on may be interrupted too.
            LEFT.set(3);
            let _may_be_interrupted = repair(&options, Path::new("/db"));
            LEFT.set(u64::MAX);
            repair(&options, Path::new("/db")).unwrap_or_else(|e| panic!("after {changes} changes: {e}"));
            let db = open(&options).unwrap_or_else(|e| panic!("after {changes} changes: {e}"));
            assert_eq!(keys(&db), all, "after {changes} changes");
            if !is_interrupted {
                assert!(changes > 12, "{changes}");
                return;
            }
        }
    }
}
