//! The files that are read: the SSTs of a store.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach::env::memory::Region;
use pleach::env::{Env, File, OpenOptions, ReadQueue, ReadRequest, RealEnv};

use super::BLOCK_BYTES;
use crate::engine::Result;

/// Files of engines that have no SSTs count from this length on.
const LARGE_FILE_BYTES: u64 = 1 << 20;
/// One request of [`StoreFiles::read_through`], and how many are in flight.
const THROUGH_BYTES: u64 = 1 << 20;
const THROUGH_DEPTH: u32 = 8;

/// The open files of a store that hold its data.
pub(crate) struct StoreFiles {
    dir: PathBuf,
    files: Vec<StoreFile>,
    /// Whole blocks of all files.
    blocks: u64,
}

struct StoreFile {
    path: PathBuf,
    file: Arc<dyn File>,
    /// Blocks of the files before it.
    first_block: u64,
    blocks: u64,
}

impl StoreFiles {
    /// Opens the SSTs below `dir`, or every file of 1 MiB and more if there are none.
    ///
    /// # Errors
    /// If there is no such file, or one cannot be opened.
    pub(crate) fn open(dir: &Path, direct: bool) -> Result<Self> {
        let mut found = Vec::new();
        find(dir, &mut found).map_err(|error| format!("{}: {error}", dir.display()))?;
        let is_sst = |path: &Path| path.extension().is_some_and(|ending| ending == "sst" || ending == "ldb");
        let has_ssts = found.iter().any(|(path, _)| is_sst(path));
        found.retain(|(path, len)| if has_ssts { is_sst(path) } else { *len >= LARGE_FILE_BYTES });
        found.sort();
        let (env, mut files, mut first_block) = (RealEnv::new(), Vec::new(), 0);
        for (path, len) in found {
            let blocks = len / BLOCK_BYTES;
            if blocks > 0 {
                let file = match env.open_file(&path, OpenOptions { write: false, direct }) {
                    Ok(file) => file,
                    // An engine that is at work has removed it.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(format!("{}: {error}", path.display()).into()),
                };
                file.expect_random_reads();
                files.push(StoreFile { path, file, first_block, blocks });
                first_block += blocks;
            }
        }
        if files.is_empty() {
            return Err(format!("{}: there are no SSTs", dir.display()).into());
        }
        Ok(Self { dir: dir.to_path_buf(), files, blocks: first_block })
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The store's folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &*file.path)
    }

    /// The path of one of them.
    pub(crate) fn first(&self) -> &Path {
        self.paths().next().expect("there is a file")
    }

    /// The file and the offset of a block.
    #[inline]
    pub(crate) fn place(&self, block: u64) -> (&Arc<dyn File>, u64) {
        let file = &self.files[self.files.partition_point(|file| file.first_block <= block) - 1];
        (&file.file, (block - file.first_block) * BLOCK_BYTES)
    }

    /// Reads all files once, so that a host that caches the disk of a virtual machine has them.
    pub(crate) fn read_through(&self) -> Result<()> {
        let env = RealEnv::new();
        let mut queue = ReadQueue::new(&env, super::best_driver(self), THROUGH_DEPTH)?;
        for StoreFile { file, blocks, .. } in &self.files {
            for offset in (0..blocks * BLOCK_BYTES).step_by(THROUGH_BYTES as usize) {
                let buffer = if queue.is_full() {
                    queue.next().expect("the queue is full").result?
                } else {
                    Region::try_new(THROUGH_BYTES as usize).ok_or("there is no memory for a read")?
                };
                let needed = (blocks * BLOCK_BYTES - offset).min(THROUGH_BYTES) as usize;
                queue.push(ReadRequest { file, offset, buffer, needed, tag: 0 })?;
            }
        }
        while let Some(done) = queue.next() {
            done.result?;
        }
        Ok(())
    }
}

/// The regular files below `dir` with their lengths.
fn find(dir: &Path, found: &mut Vec<(PathBuf, u64)>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            find(&entry.path(), found)?;
        } else if metadata.is_file() {
            found.push((entry.path(), metadata.len()));
        }
    }
    Ok(())
}
