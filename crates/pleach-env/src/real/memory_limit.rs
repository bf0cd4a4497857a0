//! How much memory this process may use: the machine's, or less if a control group limits it.
//!
//! Linux has two versions of control groups. In both, the limits of all groups from the process's own up to the root apply. In a
//! container the path of the group may lie outside of what the process sees; then the root that it sees has the limit.

use std::path::{Path, PathBuf};

/// The limit in bytes; `None` if the system does not tell.
pub(super) fn memory_limit() -> Option<u64> {
    limit(&|path| std::fs::read_to_string(path).ok())
}

/// The smallest of the limits that `read` finds in the system's files.
fn limit(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total_bytes(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let group_limits = groups.lines().flat_map(group_files).filter_map(|path| {
        let text = read(&path)?;
        // "max" is no limit.
        text.trim().parse::<u64>().ok().filter(|bytes| *bytes > 0)
    });
    machine.into_iter().chain(group_limits).min()
}

/// Bytes of memory, from the text of `/proc/meminfo`.
fn total_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files with the limits of a group and of those above it, from a line of `/proc/self/cgroup`: `id:controllers:/path`.
fn group_files(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (root, file) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let root = Path::new(root);
    let group = root.join(group.trim_start_matches('/'));
    group.ancestors().take_while(|dir| dir.starts_with(root)).map(|dir| dir.join(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(files: &[(&str, &str)]) -> Option<u64> {
        limit(&|path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
        })
    }

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:         1024 kB\n");

    #[test]
    fn the_smallest_limit_of_machine_and_groups_counts() {
        assert_eq!(limit_of(&[]), None);
        assert_eq!(limit_of(&[MEMINFO]), Some(16 << 20));
        let own = ("/proc/self/cgroup", "0::/service/worker\n");
        let no_limit = ("/sys/fs/cgroup/service/worker/memory.max", "max\n");
        assert_eq!(limit_of(&[MEMINFO, own, no_limit]), Some(16 << 20));
        let above = ("/sys/fs/cgroup/service/memory.max", "8388608\n");
        assert_eq!(limit_of(&[MEMINFO, own, no_limit, above]), Some(8 << 20));
        // A group that lies outside of what the process sees.
        let outside = ("/proc/self/cgroup", "0::/../../other\n");
        let root = ("/sys/fs/cgroup/memory.max", "4194304\n");
        assert_eq!(limit_of(&[MEMINFO, outside, root]), Some(4 << 20));
        let first_version = ("/proc/self/cgroup", "5:cpu:/a\n4:cpuacct,memory:/a\n");
        let limit = ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2097152\n");
        assert_eq!(limit_of(&[MEMINFO, first_version, limit]), Some(2 << 20));
    }

    #[test]
    fn strange_files_are_no_limit() {
        let groups = ("/proc/self/cgroup", "\n0\n0:\n::\n0::relative\n:::::\n");
        let root = ("/sys/fs/cgroup/memory.max", "-5\n");
        assert_eq!(limit_of(&[("/proc/meminfo", "MemTotal: many kB"), groups, root]), None);
        assert_eq!(limit_of(&[MEMINFO, groups, ("/sys/fs/cgroup/memory.max", "0\n")]), Some(16 << 20));
    }
}
