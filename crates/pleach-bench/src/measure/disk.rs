//! Disk use: allocated bytes of a folder, now and, beside the memory of the process, sampled while a workload runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::process::rss_bytes;

/// Blocks of `st_blocks` have 512 bytes whatever the file system's own are.
const STAT_BLOCK_BYTES: u64 = 512;

/// Disk use counts as settled after so many samples without change, at this interval. Arbitrary: longer than the removal of a
/// file takes.
const QUIET_LOOKS: u32 = 2;
const QUIET_LOOK: Duration = Duration::from_millis(30);
const QUIET_LOOKS_MAX: u32 = 200;

/// Allocated bytes of all files below `dir`. Files removed meanwhile do not count.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * STAT_BLOCK_BYTES,
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(of_entry).sum()
}

/// Disk use once it no longer shrinks: engines remove obsolete files a moment after they have settled. Gives up waiting
/// after [`QUIET_LOOKS_MAX`] looks.
pub(crate) fn quiet_disk_bytes(dir: &Path) -> u64 {
    let mut last = disk_bytes(dir);
    let mut unchanged = 0;
    for _ in 0..QUIET_LOOKS_MAX {
        std::thread::sleep(QUIET_LOOK);
        let bytes = disk_bytes(dir);
        unchanged = if bytes < last { 0 } else { unchanged + 1 };
        last = bytes;
        if unchanged == QUIET_LOOKS {
            break;
        }
    }
    last
}

/// Disk use and resident memory sampled over time: one sample for each bucket of throughput over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampler {
    pub(crate) disk_bytes: Vec<u64>,
    pub(crate) rss_bytes: Vec<u64>,
}

impl Sampler {
    pub(crate) fn sample(&mut self, dir: &Path) {
        self.disk_bytes.push(disk_bytes(dir));
        self.rss_bytes.push(rss_bytes());
    }

    pub(crate) fn peak_disk_bytes(&self) -> u64 {
        self.disk_bytes.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_folders_are_counted() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(dir.path().join("a/b")).expect("it can be created");
        fs::write(dir.path().join("a/b/c"), vec![1; 100_000]).expect("it can be written");
        fs::File::open(dir.path().join("a/b/c")).and_then(|file| file.sync_all()).expect("it can be synced");
        assert!((100_000..200_000).contains(&disk_bytes(dir.path())));
        assert_eq!(disk_bytes(&dir.path().join("none")), 0);
    }
}
