//! Names in memory: a tree of directories, from one root.
//!
//! A path is followed from the root, whether it begins with `/` or not: there is no working directory. `.` and `..` are
//! understood.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::file::MemFile;
use super::lock::{Holders, MemLock};
use crate::env::{LockMode, Metadata};

/// A directory.
#[derive(Default)]
pub(super) struct Tree {
    names: BTreeMap<OsString, Node>,
    /// Who has locked the directory, for want of the file that is to be locked.
    holders: Arc<Holders>,
}

/// What a name stands for.
enum Node {
    Dir(Tree),
    File(Arc<MemFile>),
}

impl Node {
    fn metadata(&self) -> Metadata {
        match self {
            Self::Dir(_) => Metadata { len: 0, is_file: false },
            Self::File(file) => Metadata { len: file.len(), is_file: true },
        }
    }

    fn as_dir(&self) -> io::Result<&Tree> {
        if let Self::Dir(dir) = self { Ok(dir) } else { Err(Errno::NOTDIR.into()) }
    }

    fn as_dir_mut(&mut self) -> io::Result<&mut Tree> {
        if let Self::Dir(dir) = self { Ok(dir) } else { Err(Errno::NOTDIR.into()) }
    }

    fn as_file(&self) -> io::Result<&Arc<MemFile>> {
        if let Self::File(file) = self { Ok(file) } else { Err(Errno::ISDIR.into()) }
    }
}

/// `path` from the root, without `.` and `..`.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let mut absolute = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => absolute.push(name),
            Component::ParentDir => _ = absolute.pop(),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    absolute
}

/// The names that lead to `absolute`.
fn names(absolute: &Path) -> impl Iterator<Item = &OsStr> {
    absolute.iter().skip(1)
}

impl Tree {
    fn dir(&self, absolute: &Path) -> io::Result<&Tree> {
        names(absolute).try_fold(self, |dir, name| dir.names.get(name).ok_or(Errno::NOENT)?.as_dir())
    }

    /// The directory that `absolute` is in, and the name there.
    fn parent_mut<'p>(&mut self, absolute: &'p Path) -> io::Result<(&mut Tree, &'p OsStr)> {
        // The root has no name.
        let (parent, name) = absolute.parent().zip(absolute.file_name()).ok_or(Errno::ISDIR)?;
        let dir = names(parent)
            .try_fold(self, |dir, name| dir.names.get_mut(name).ok_or(Errno::NOENT)?.as_dir_mut())?;
        Ok((dir, name))
    }

    /// An error unless `path` is a directory.
    pub(super) fn check_dir(&self, path: &Path) -> io::Result<()> {
        self.dir(&absolute(path)).map(|_| ())
    }

    /// See [`Env::create_dir_all`](crate::Env::create_dir_all).
    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let path = absolute(path);
        let mut dir = self;
        for name in names(&path) {
            let node = dir.names.entry(name.to_owned()).or_insert_with(|| Node::Dir(Self::default()));
            dir = node.as_dir_mut()?;
        }
        Ok(())
    }

    /// See [`Env::list_dir`](crate::Env::list_dir).
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>> {
        let names = self.dir(&absolute(path))?.names.iter();
        let names = names.filter_map(|(name, node)| Some((name.to_str()?.to_owned(), node.metadata())));
        Ok(names.collect())
    }

    /// Gives the new file `file` a name.
    pub(super) fn create(&mut self, path: &Path, file: Arc<MemFile>) -> io::Result<()> {
        let path = absolute(path);
        let (dir, name) = self.parent_mut(&path)?;
        match dir.names.entry(name.to_owned()) {
            Entry::Occupied(_) => Err(Errno::EXIST.into()),
            Entry::Vacant(entry) => {
                entry.insert(Node::File(file));
                Ok(())
            }
        }
    }

    /// What stands at `path`; `None` if there is no such name in its directory.
    fn find(&self, absolute: &Path) -> io::Result<Option<&Node>> {
        let Some((parent, name)) = absolute.parent().zip(absolute.file_name()) else {
            return Err(Errno::ISDIR.into());
        };
        Ok(self.dir(parent)?.names.get(name))
    }

    /// The file at `path`.
    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<MemFile>> {
        let node = self.find(&absolute(path))?.ok_or(Errno::NOENT)?;
        node.as_file().cloned()
    }

    /// See [`Env::metadata`](crate::Env::metadata).
    pub(super) fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let path = absolute(path);
        if path.file_name().is_none() {
            return Ok(Some(Metadata { len: 0, is_file: false }));
        }
        match self.find(&path) {
            Ok(node) => Ok(node.map(Node::metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// See [`Env::rename`](crate::Env::rename).
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (absolute(from), absolute(to));
        let file = Arc::clone(self.find(&from)?.ok_or(Errno::NOENT)?.as_file()?);
        if from == to {
            return Ok(());
        }
        let (dir, name) = self.parent_mut(&to)?;
        if let Some(node) = dir.names.get(name) {
            node.as_file()?;
        }
        dir.names.insert(name.to_owned(), Node::File(file));
        let (dir, name) = self.parent_mut(&from)?;
        dir.names.remove(name);
        Ok(())
    }

    /// See [`Env::remove_file`](crate::Env::remove_file).
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let path = absolute(path);
        let (dir, name) = self.parent_mut(&path)?;
        dir.names.get(name).ok_or(Errno::NOENT)?.as_file()?;
        dir.names.remove(name);
        Ok(())
    }

    /// Takes a lock as [`Env::lock_file`](crate::Env::lock_file) describes it. `new` makes a file that is missing.
    pub(super) fn lock(
        &mut self,
        path: &Path,
        mode: LockMode,
        new: impl FnOnce() -> Arc<MemFile>,
    ) -> io::Result<Option<MemLock>> {
        let path = absolute(path);
        let (dir, name) = self.parent_mut(&path)?;
        let found = dir.names.get(name).map(Node::as_file).transpose()?.cloned();
        match (mode, found) {
            (LockMode::Shared, Some(file)) => Ok(file.holders.take(mode)),
            (LockMode::Shared, None) => Ok(dir.holders.take(mode)),
            (LockMode::Exclusive, found) => {
                let file = found.unwrap_or_else(|| {
                    let file = new();
                    dir.names.insert(name.to_owned(), Node::File(Arc::clone(&file)));
                    file
                });
                // Readers that came before there was a file hold the directory's lock.
                Ok(file.holders.take(mode).filter(|_| dir.holders.take(mode).is_some()))
            }
        }
    }
}
