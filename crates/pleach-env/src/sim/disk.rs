//! The simulated disk: directories and inodes, and the space they take.
//!
//! A clone captures the disk at a moment, with everything pending. It shares inodes, directories and blocks with the original
//! until one of them changes.
//!
//! # Invariants
//! 1. `inodes` holds every inode that some crash could leave with a name; others only while they are open.
//! 2. Directories are durable from their creation on.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::crash::{Chooser, CrashPolicy};
use super::dir::Dir;
use super::inode::{Ino, Inode};
use crate::env::Metadata;

/// A directory and a name in it.
type Place<'a> = (&'a Path, &'a str);

const DIR_METADATA: Metadata = Metadata { len: 0, is_file: false };

/// Everything on the disk, now and after any crash.
#[derive(Clone)]
pub(super) struct Disk {
    dirs: BTreeMap<Arc<Path>, Arc<Dir>>,
    inodes: BTreeMap<Ino, Arc<Inode>>,
    inos_used: Ino,
}

impl Disk {
    /// A disk with the root and the working directory.
    pub(super) fn empty() -> Self {
        let dirs = ["/", ""].map(|path| (Arc::from(Path::new(path)), Arc::default()));
        Self { dirs: dirs.into(), inodes: BTreeMap::new(), inos_used: 0 }
    }

    /// The disk after a crash.
    pub(super) fn crash(&self, policy: CrashPolicy, seed: u64) -> Self {
        let mut chooser = Chooser::new(policy, seed);
        let mut image = self.clone();
        if policy == CrashPolicy::ProcessKill {
            image.release_unnamed();
            return image;
        }
        for dir in image.dirs.values_mut().filter(|dir| !dir.is_settled()) {
            *dir = Arc::new(dir.crash(&mut chooser));
        }
        image.release_unnamed();
        for inode in image.inodes.values_mut().filter(|inode| !inode.is_settled()) {
            *inode = Arc::new(inode.crash(&mut chooser));
        }
        image
    }

    /// Drops the inodes that no crash could leave with a name. Requires: no file is open.
    fn release_unnamed(&mut self) {
        let all_settled = self.dirs.values().all(|dir| dir.is_settled());
        if all_settled {
            let named = self.linked();
            self.inodes.retain(|ino, _| named.contains(ino));
        } else {
            let dirs = &self.dirs;
            self.inodes.retain(|ino, _| dirs.values().any(|dir| dir.may_name(*ino)));
        }
    }

    /// Drops the inode if no crash could leave it with a name. Requires: it is not open.
    pub(super) fn release_if_unnamed(&mut self, ino: Ino) {
        if !self.dirs.values().any(|dir| dir.may_name(ino)) {
            self.inodes.remove(&ino);
        }
    }

    /// Inodes that have a name now.
    fn linked(&self) -> BTreeSet<Ino> {
        self.dirs.values().flat_map(|dir| dir.names().map(|(_, ino)| ino)).collect()
    }

    /// Bytes taken by the files that have a name now or are among `open`.
    pub(super) fn used_bytes(&self, open: impl Iterator<Item = Ino>) -> u64 {
        let mut counted = self.linked();
        counted.extend(open);
        let charged = |ino| self.inodes.get(ino).map_or(0, |inode| inode.charged_bytes());
        counted.iter().map(charged).sum()
    }

    /// Number of files that are open or that some crash could leave with a name.
    #[cfg(test)]
    pub(super) fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    /// The inode of an open file.
    pub(super) fn inode(&self, ino: Ino) -> &Inode {
        self.inodes.get(&ino).expect("invariant 1: the inode of an open file exists")
    }

    /// The inode of an open file, for a change.
    pub(super) fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        Arc::make_mut(self.inodes.get_mut(&ino).expect("invariant 1: the inode of an open file exists"))
    }

    fn dir(&self, path: &Path) -> io::Result<&Dir> {
        match self.dirs.get(path) {
            Some(dir) => Ok(dir),
            None if self.find(path).is_some() => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Requires: `dir` has succeeded for `path`.
    fn dir_mut(&mut self, path: &Path) -> &mut Dir {
        Arc::make_mut(self.dirs.get_mut(path).expect("the caller has looked the directory up"))
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        self.dirs.contains_key(path)
    }

    /// The file of this name, if there is one.
    pub(super) fn find(&self, path: &Path) -> Option<Ino> {
        let (parent, name) = place(path).ok()?;
        self.dirs.get(parent)?.get(name)
    }

    /// The file of this name.
    pub(super) fn lookup(&self, path: &Path) -> io::Result<Ino> {
        if self.is_dir(path) {
            return Err(Errno::ISDIR.into());
        }
        let (parent, name) = place(path)?;
        self.dir(parent)?.get(name).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn metadata(&self, path: &Path) -> Option<Metadata> {
        if self.is_dir(path) {
            return Some(DIR_METADATA);
        }
        Some(Metadata { len: self.inode(self.find(path)?).len(), is_file: true })
    }

    /// Names of files and directories in `path`, sorted.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>> {
        let files = self.dir(path)?.names().map(|(name, ino)| {
            let metadata = Metadata { len: self.inode(ino).len(), is_file: true };
            (name.to_string(), metadata)
        });
        let children = self.dirs.keys().filter(|dir| dir.parent() == Some(path));
        let dirs = children.filter_map(|dir| Some((dir.file_name()?.to_str()?.to_owned(), DIR_METADATA)));
        let mut names: Vec<_> = files.chain(dirs).collect();
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    /// Creates `path` and its missing parents.
    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        if path.ancestors().any(|p| self.find(p).is_some()) {
            return Err(Errno::NOTDIR.into());
        }
        for dir in path.ancestors() {
            self.dirs.entry(Arc::from(dir)).or_default();
        }
        Ok(())
    }

    /// Creates an empty file.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<Ino> {
        let (parent, name) = self.vacant(path)?;
        let ino = self.add(Inode::empty());
        self.dir_mut(parent).create(name, ino);
        Ok(ino)
    }

    /// Checks that `path` can be created.
    pub(super) fn vacant<'a>(&self, path: &'a Path) -> io::Result<Place<'a>> {
        let (parent, name) = place(path)?;
        if self.dir(parent)?.get(name).is_some() || self.is_dir(path) {
            return Err(Errno::EXIST.into());
        }
        Ok((parent, name))
    }

    fn add(&mut self, inode: Inode) -> Ino {
        self.inos_used += 1;
        self.inodes.insert(self.inos_used, Arc::new(inode));
        self.inos_used
    }

    /// Renames within one directory.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let ino = self.lookup(from)?;
        let ((from_dir, from), (to_dir, to_name)) = (place(from)?, place(to)?);
        self.dir(to_dir)?;
        if self.is_dir(to) {
            return Err(Errno::ISDIR.into());
        }
        if from_dir != to_dir {
            let message = "the simulated disk renames within one directory only";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        if from != to_name {
            self.dir_mut(to_dir).rename(from, to_name, ino);
        }
        Ok(())
    }

    /// Removes a file's name. The inode stays: until the directory is synced, a crash may bring the name back.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let ino = self.lookup(path)?;
        let (parent, name) = place(path)?;
        self.dir_mut(parent).remove(name, ino);
        Ok(())
    }

    /// Checks that `path` is a directory.
    pub(super) fn check_dir(&self, path: &Path) -> io::Result<()> {
        self.dir(path).map(|_| ())
    }

    /// Makes the names in `path` durable and drops the inodes without a name. Requires: `path` is a directory.
    pub(super) fn sync_dir(&mut self, path: &Path, is_open: impl Fn(Ino) -> bool) {
        let candidates = self.dir_mut(path).sync();
        let named = if candidates.is_empty() { BTreeSet::new() } else { self.linked() };
        for ino in candidates {
            if !named.contains(&ino) && !is_open(ino) {
                self.release_if_unnamed(ino);
            }
        }
    }

    /// Gives the file `path` these durable bytes; creates it and its directories if needed. Pending changes of its directory
    /// become durable too.
    pub(super) fn settle_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (parent, name) = place(path)?;
        if let Some(ino) = self.find(path) {
            self.inodes.insert(ino, Arc::new(Inode::settled(bytes)));
        } else {
            self.create_dir_all(parent)?;
            self.vacant(path)?;
            let ino = self.add(Inode::settled(bytes));
            self.dir_mut(parent).create(name, ino);
        }
        self.dir_mut(parent).sync(); // The next crash image drops the inodes that this frees.
        Ok(())
    }
}

fn place(path: &Path) -> io::Result<Place<'_>> {
    let parent = path.parent();
    let name = path.file_name().and_then(|n| n.to_str());
    parent.zip(name).ok_or_else(|| Errno::INVAL.into())
}
