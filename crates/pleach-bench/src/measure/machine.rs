//! The machine of a run: the properties on which figures depend, without its name.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The description in reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// File system of the folder the stores were in.
    pub(crate) file_system: String,
}

impl Machine {
    /// This machine, with stores in `dir`.
    pub(crate) fn this(dir: &Path) -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib: u64 = total.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        let uname = rustix::system::uname();
        Self {
            processor: model.map_or("unknown", |text| text.trim_start_matches([' ', '\t', ':'])).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_bytes: kib * 1024,
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            file_system: file_system(dir).unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

/// The type of the innermost mount that holds `dir`.
fn file_system(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let holding = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        dir.starts_with(point).then_some((point.len(), kind.to_owned()))
    });
    // Of two mounts on one point the later one counts.
    holding.max_by_key(|&(len, _)| len).map(|(_, kind)| kind)
}
