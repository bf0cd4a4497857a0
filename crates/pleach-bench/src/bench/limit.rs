//! A memory limit for one process: a memory cgroup that holds it and its page cache.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::Result;

/// Where memory cgroups are mounted: alone (version 1) or with everything else (version 2).
const ROOT_ONE: &str = "/sys/fs/cgroup/memory";
const ROOT_TWO: &str = "/sys/fs/cgroup";

/// A cgroup of ours, removed when dropped; by then the process in it must have ended.
pub(super) struct MemoryLimit {
    dir: PathBuf,
}

impl MemoryLimit {
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let name = format!("pleach-bench-{}", std::process::id());
        let one = Path::new(ROOT_ONE).join("memory.limit_in_bytes").exists();
        let (dir, file) = if one {
            (Path::new(ROOT_ONE).join(name), "memory.limit_in_bytes")
        } else {
            // Refused if it is set or we lack permission; the write to the limit's file will show it.
            let _refused = fs::write(Path::new(ROOT_TWO).join("cgroup.subtree_control"), "+memory");
            (Path::new(ROOT_TWO).join(name), "memory.max")
        };
        fs::create_dir(&dir).map_err(|error| explain("create a memory cgroup", &dir, &error))?;
        let limit = Self { dir };
        let path = limit.dir.join(file);
        fs::write(&path, bytes.to_string()).map_err(|error| explain("set the limit", &path, &error))?;
        // Otherwise swapped memory would not count. Machines without swap accounting have no such file.
        let swap = if one { "memory.swappiness" } else { "memory.swap.max" };
        let _no_such_file = fs::write(limit.dir.join(swap), "0");
        Ok(limit)
    }

    /// Puts a process under the limit; memory it already has stays where it was counted.
    pub(super) fn hold(&self, process: u32) -> Result<()> {
        let path = self.dir.join("cgroup.procs");
        fs::write(&path, process.to_string()).map_err(|error| explain("move a process", &path, &error).into())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Best effort: an empty cgroup does no harm.
        let _left_behind = fs::remove_dir(&self.dir);
    }
}

fn explain(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!(
        "--memory-limit could not {what} at {}: {error}. It needs the memory controller of cgroups and the right to \
         create groups (root, as a rule). Without it, run the whole command in a limited group instead, for instance \
         `systemd-run --user --scope -p MemoryMax=1G -p MemorySwapMax=0 pleach-bench ...`",
        path.display()
    )
}
