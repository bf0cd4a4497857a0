//! Repair in place: `leveldb_repair_db`.
//!
//! [`pleach::repair`] writes what can be read into a new store beside the damaged one, in `X.repaired/store`. Then the files
//! change places, one by one: those of the damaged store move to `X.damaged`, and the new ones move in. So the directory stays
//! the same one: a link to it, its mode and files of others are not touched.
//!
//! # Invariants
//! 1. *No file is removed before the new store is in its place*, and none is removed at all if something could not be read.
//! 2. *An interrupted repair is never taken for a store, nor for a place without one.* [`MARKER`] is there before the first file
//!    moves. The old `CURRENT` moves out first and the new one moves in last. In between, an open reports `Corruption`, and the
//!    next repair goes on.
//! 3. *Old and new files are distinct.* The new manifest moves in first, after the last old file has left. So as long as the
//!    new store has it, all files in the directory are old ones.
//! 4. *Nothing is removed that a repair did not make.* A repair makes its directories under names that nothing has
//!    (`X.repaired`, `X.repaired-2` ..), and puts [`MADE_BY_REPAIR`] into that of the new store before anything else. The next
//!    repair looks for this file, and removes, or goes on with, what is beside it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach::ErrorKind;
use pleach::env::{Env, File, FileId, FileLock, LockMode, OpenOptions};

use crate::database::{Found, is_leveldb, look};
use crate::options::OptionsHandle;
use crate::order::restore_order;
use crate::status::{Kind, Result, Status};

/// A file that is in the directory while files change places.
pub(crate) const MARKER: &str = "REPAIRING";

/// A file beside the new store. It tells people, and the next repair, who made the directory.
const MADE_BY_REPAIR: &str = "MADE-BY-REPAIR";
const MADE_BY_REPAIR_TEXT: &[u8] =
    b"A repair of the store beside this directory made it. If none is running, one was interrupted: repair that store again.\n";

/// The new store, in the directory that a repair makes.
const COPY: &str = "store";

/// Names that a repair tries for the directory of the new store (arbitrary). It looks at all of them for what earlier ones left.
const COPIES_MAX: u32 = 100;

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
    let missing = || Status::new(Kind::Io, format!("{}: there is no store here", path.display()));
    let places = Places::find(options, &*env, path)?.ok_or_else(missing)?;
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
    let Some(places) = Places::find(options, &*env, path)? else { return Ok(()) };
    // A directory without one above it was never repaired.
    if places.dir.file_name().is_none() {
        return Ok(());
    }
    if !places.has(&places.dir, MARKER)? {
        return places.remove_copies();
    }
    let _lock = places.lock()?;
    places.remove_copies()?;
    places.end()
}

/// The directories of a repair.
struct Places<'e> {
    env: &'e dyn Env,
    /// The store.
    dir: PathBuf,
    is_on_disk: bool,
}

/// A directory that a repair made, and the new store in it.
struct Copy {
    place: PathBuf,
    store: PathBuf,
}

impl Copy {
    fn at(place: PathBuf) -> Self {
        Self { store: place.join(COPY), place }
    }
}

impl<'e> Places<'e> {
    /// `None` if there is no directory.
    fn find(options: &OptionsHandle, env: &'e dyn Env, path: &Path) -> Result<Option<Self>> {
        let is_on_disk = options.other_env.is_none();
        // A link stays a link: the new store must be in the same file system as the files of the old one.
        let resolved = if is_on_disk { std::fs::canonicalize(path) } else { env.absolute(path) };
        let found = resolved.and_then(|dir| Ok(env.metadata(&dir)?.map(|_| dir)));
        match found {
            Ok(dir) => Ok(dir.map(|dir| Self { env, dir, is_on_disk })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("look for the store", path, &e)),
        }
    }

    /// Goes on with a repair whose process ended while files changed places. Returns whether there was one.
    fn finish_interrupted(&self) -> Result<bool> {
        if !self.has(&self.dir, MARKER)? {
            return Ok(false);
        }
        let _lock = self.lock()?;
        let copy = self.copies()?.pop();
        let goes_on = match &copy {
            Some(copy) => !self.has(&self.dir, CURRENT)? && self.is_closed_store(copy)?,
            None => false,
        };
        if let Some(copy) = copy.filter(|_| goes_on) {
            self.change_places(&copy)?;
        }
        self.end()?;
        Ok(goes_on)
    }

    /// Repairs the store. Returns whether everything was read, so that the old files were removed.
    fn salvage(&self, options: &OptionsHandle) -> Result<bool> {
        let before = self.files(&self.dir)?;
        self.remove_copies()?;
        let copy = self.new_copy()?;
        let repaired = pleach::repair(&self.dir, &copy.store, options.translate(), &mut |_, _| true);
        let report = match repaired {
            Ok(report) => report,
            Err(error) => {
                let _stays_for_the_next_repair = self.remove_copies();
                return Err(match error.kind() {
                    ErrorKind::NotFound => Status::new(Kind::Io, error.to_string()),
                    _ => error.into(),
                });
            }
        };
        if let Err(error) = restore_order(options, &copy.store, &report) {
            let _stays_for_the_next_repair = self.remove_copies();
            return Err(error);
        }
        let _lock = self.lock()?;
        if self.files(&self.dir)? != before {
            let message = "the store was opened while it was repaired; it is as it was, repair it again";
            return Err(Status::new(Kind::Io, format!("{}: {message}", self.dir.display())));
        }
        self.check_moves(&copy)?;
        self.create(&self.dir.join(MARKER))?;
        self.sync(&self.dir)?;
        let old = self.change_places(&copy)?;
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
    fn change_places(&self, copy: &Copy) -> Result<Option<PathBuf>> {
        let new = &copy.store;
        let mut old = None;
        // Invariant 3.
        if self.manifest_of(copy)?.is_some() {
            let to = self.new_directory(".damaged", u32::MAX)?;
            // Invariant 2: as long as it is there, no other file has moved.
            let current = self.has(&self.dir, CURRENT)?.then(|| CURRENT.to_owned());
            self.move_all(&self.dir, &to, current.into_iter())?;
            self.move_all(&self.dir, &to, self.files(&self.dir)?.into_iter().map(|(name, _)| name))?;
            old = Some(to);
        }
        let mut names: Vec<_> = self.files(new)?.into_iter().map(|(name, _)| name).collect();
        names.sort_by_key(|name| (name == CURRENT, name.starts_with("MANIFEST-")));
        let current = names.pop_if(|name| name == CURRENT);
        let manifest = names.pop_if(|name| name.starts_with("MANIFEST-"));
        self.move_all(new, &self.dir, manifest.into_iter())?;
        self.move_all(new, &self.dir, names.into_iter())?;
        self.move_all(new, &self.dir, current.into_iter())?;
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
        self.remove_copies()
    }

    /// The directories that repairs of this store made and did not remove. Only the last one can be of a repair that has begun
    /// to move files: each repair begins by removing those of earlier ones.
    fn copies(&self) -> Result<Vec<Copy>> {
        let mut copies = Vec::new();
        for number in 1..=COPIES_MAX {
            let place = beside(&self.dir, &numbered(".repaired", number))?;
            let mark = place.join(MADE_BY_REPAIR);
            match self.env.metadata(&mark) {
                Ok(Some(metadata)) if metadata.is_file => copies.push(Copy::at(place)),
                Ok(_) => {}
                // A file, or a name that is too long: nothing of ours.
                Err(e)
                    if [io::ErrorKind::NotADirectory, io::ErrorKind::InvalidFilename].contains(&e.kind()) => {
                }
                Err(e) => return Err(failed("look for", &mark, &e)),
            }
        }
        Ok(copies)
    }

    /// Makes a directory for the new store.
    fn new_copy(&self) -> Result<Copy> {
        let copy = Copy::at(self.new_directory(".repaired", COPIES_MAX)?);
        let mark = copy.place.join(MADE_BY_REPAIR);
        let wrote = self.create_file(&mark)?.write_all_at(MADE_BY_REPAIR_TEXT, 0);
        wrote.map_err(|e| failed("write", &mark, &e))?;
        self.sync(&copy.place)?;
        Ok(copy)
    }

    /// Removes new stores of repairs that were interrupted, and their directories.
    fn remove_copies(&self) -> Result<()> {
        for Copy { place, store } in self.copies()? {
            if self.has(&place, COPY)? {
                let lock = store.join(LOCK);
                let locked =
                    self.env.lock_file(&lock, LockMode::Exclusive).map_err(|e| failed("lock", &lock, &e))?;
                if locked.is_none() {
                    let message = "another repair of the store is under way";
                    return Err(Status::new(Kind::Io, format!("lock {}: {message}", lock.display())));
                }
                for (name, _) in self.files(&store)? {
                    self.remove(&store.join(name))?;
                }
                for name in [MARKER, LOCK] {
                    if self.has(&store, name)? {
                        self.remove(&store.join(name))?;
                    }
                }
                self.remove_directory(&store);
            }
            self.remove(&place.join(MADE_BY_REPAIR))?;
            self.remove_directory(&place);
        }
        Ok(())
    }

    /// An error if files cannot be moved between the directories: the store may be a mount point.
    fn check_moves(&self, copy: &Copy) -> Result<()> {
        let (from, to) = (copy.store.join(MARKER), self.dir.join(MARKER));
        self.create(&from)?;
        self.env.rename(&from, &to).map_err(|e| failed("move a file into", &self.dir, &e))?;
        self.remove(&to)
    }

    /// Whether the new store was completed: its close is noted in `CURRENT`.
    fn is_closed_store(&self, copy: &Copy) -> Result<bool> {
        let path = copy.store.join(CURRENT);
        let failed = |e: io::Error| failed("read", &path, &e);
        let Some(metadata) = self.env.metadata(&path).map_err(failed)? else { return Ok(false) };
        let file = self.env.open_file(&path, OpenOptions::default()).map_err(failed)?;
        let mut text = vec![0; usize::try_from(metadata.len.min(CURRENT_LEN_MAX)).unwrap_or(0)];
        file.read_exact_at(&mut text, 0).map_err(failed)?;
        Ok(text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"closed ")))
    }

    fn manifest_of(&self, copy: &Copy) -> Result<Option<String>> {
        let names = self.files(&copy.store)?.into_iter().map(|(name, _)| name);
        Ok(names.into_iter().find(|name| name.starts_with("MANIFEST-")))
    }

    /// Makes a directory beside the store, whose name ends with `end`, or with `end` and a number.
    fn new_directory(&self, end: &str, number_max: u32) -> Result<PathBuf> {
        for number in 1..=number_max {
            let path = beside(&self.dir, &numbered(end, number))?;
            Self::before_a_change()?;
            if self.made(&path).map_err(|e| failed("make the directory", &path, &e))? {
                return Ok(path);
            }
        }
        let path = beside(&self.dir, end)?;
        let message = "this name, and each of it with a number, is taken; move some of them away";
        Err(Status::new(Kind::Io, format!("{}: {message}", path.display())))
    }

    /// Makes a directory, unless something has its name.
    #[expect(clippy::disallowed_methods, reason = "the environment's way does not tell who made it")]
    fn made(&self, path: &Path) -> io::Result<bool> {
        if self.is_on_disk {
            return match std::fs::create_dir(path) {
                Ok(()) => self.env.sync_dir(path.parent().unwrap_or(path), "current.dir_sync").map(|()| true),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                Err(e) => Err(e),
            };
        }
        // Other environments cannot remove directories, so an empty one is as none.
        let is_free = match self.env.metadata(path)? {
            None => true,
            Some(metadata) if metadata.is_file => false,
            Some(_) => {
                let is_empty = |path: &Path| Ok::<_, io::Error>(self.env.list_dir(path)?.is_empty());
                let names = self.env.list_dir(path)?;
                match &names[..] {
                    [] => true,
                    [(name, metadata)] => name == COPY && !metadata.is_file && is_empty(&path.join(COPY))?,
                    _ => false,
                }
            }
        };
        if is_free {
            self.env.create_dir_all(path)?;
        }
        Ok(is_free)
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
            self.create_file(path)?;
        }
        Ok(())
    }

    fn create_file(&self, path: &Path) -> Result<Arc<dyn File>> {
        Self::before_a_change()?;
        self.env.create_file(path).map_err(|e| failed("create", path, &e))
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

fn failed(action: &str, path: &Path, error: &io::Error) -> Status {
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

/// The end of a name: `end`, then `end-2`, and so on.
fn numbered(end: &str, number: u32) -> String {
    if number == 1 { end.to_owned() } else { format!("{end}-{number}") }
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

    use super::{COPY, CURRENT, Kind, OptionsHandle, Result, Status, repair};
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

    /// A store that has the name of a repair's directory, but is the user's.
    const OF_THE_USER: &str = "/db.repaired";

    fn store_of_the_user(env: &Arc<MemEnv>) -> pleach::Db {
        pleach::Options::new().env(Arc::clone(env) as Arc<dyn Env>).open(OF_THE_USER).unwrap()
    }

    /// Checks that the user's store is there, and nothing of a repair.
    fn check_beside(env: &Arc<MemEnv>) {
        assert_eq!(
            store_of_the_user(env).default_partition().get(b"k").unwrap().as_deref(),
            Some(&b"mine"[..])
        );
        let place = Path::new("/db.repaired-2");
        for dir in [place, &place.join(COPY)] {
            let names = env.metadata(dir).unwrap().map_or_else(Vec::new, |_| env.list_dir(dir).unwrap());
            assert!(names.iter().all(|(name, metadata)| name == COPY && !metadata.is_file), "{names:?}");
        }
    }

    /// A store with or without `CURRENT`, and its keys.
    fn store_to_repair(has_current: bool) -> (Arc<MemEnv>, Vec<Vec<u8>>) {
        let env = Arc::new(MemEnv::new());
        store_of_the_user(&env).default_partition().put(b"k", b"mine").unwrap();
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
        if !has_current {
            env.remove_file(&Path::new("/db").join(CURRENT)).unwrap();
        }
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
            let (env, _) = store_to_repair(false);
            let options = options_on(&env);
            let is_interrupted = repair_interrupted(&options, changes).is_err();
            crate::manage::destroy(&options, Path::new("/db")).unwrap();
            check_beside(&env);
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
        for has_current in [false, true] {
            let mut changes = 0;
            while completes_after(changes, has_current) {
                changes += 1;
            }
            assert!(changes > 12, "{changes}");
        }
    }

    /// Interrupts a repair, and checks what an open and the next repair find. Returns whether it made more changes.
    fn completes_after(changes: u64, has_current: bool) -> bool {
        let (env, all) = store_to_repair(has_current);
        let options = options_on(&env);
        let is_interrupted = repair_interrupted(&options, changes).is_err();
        let at = format!("CURRENT {has_current}, after {changes} changes");
        match open(&options) {
            Ok(db) => assert_eq!(keys(&db), all, "{at}"),
            Err(error) => assert!(is_interrupted && error.starts_with("Corruption: "), "{at}: {error}"),
        }
        // Twice, so that a repair that goes on may be interrupted too.
        LEFT.set(3);
        let _may_be_interrupted = repair(&options, Path::new("/db"));
        LEFT.set(u64::MAX);
        repair(&options, Path::new("/db")).unwrap_or_else(|e| panic!("{at}: {e}"));
        check_beside(&env);
        let db = open(&options).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(keys(&db), all, "{at}");
        is_interrupted
    }
}
