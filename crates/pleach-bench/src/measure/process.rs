//! Resources of the process: processor time, bytes of system calls, memory. From the clock of the process and `/proc/self`;
//! zero on other systems than Linux.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Running counts of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessCounts {
    /// Processor time of all threads, user and system.
    pub(crate) cpu_ns: u64,
    /// Bytes read by read calls, from the page cache or from the medium.
    pub(crate) read_call_bytes: u64,
    /// Bytes written by write calls.
    pub(crate) write_call_bytes: u64,
    /// Bytes fetched from storage for the process, page faults included.
    pub(crate) storage_read_bytes: u64,
    /// Bytes of pages that the process made dirty or wrote directly, which storage will write.
    pub(crate) storage_write_bytes: u64,
}

impl ProcessCounts {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let count = |name: &str| field(&io, name).unwrap_or(0);
        Self {
            cpu_ns: time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned(),
            read_call_bytes: count("rchar:"),
            write_call_bytes: count("wchar:"),
            storage_read_bytes: count("read_bytes:"),
            storage_write_bytes: count("write_bytes:"),
        }
    }

    /// What was added since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            read_call_bytes: self.read_call_bytes - before.read_call_bytes,
            write_call_bytes: self.write_call_bytes - before.write_call_bytes,
            storage_read_bytes: self.storage_read_bytes - before.storage_read_bytes,
            storage_write_bytes: self.storage_write_bytes - before.storage_write_bytes,
        }
    }
}

/// Peak memory of the process since the last reset, with the touched pages of mapped files.
pub(crate) fn peak_rss_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// Current memory of the process, with pages of mapped files.
pub(crate) fn rss_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// Memory of the process without pages of files.
pub(crate) fn rss_anonymous_bytes() -> u64 {
    status_bytes("RssAnon:")
}

/// Resets [`peak_rss_bytes`] to the current memory. If the system does not allow it, the peak is that of the whole process.
pub(crate) fn reset_peak_rss() {
    let _not_allowed = fs::write("/proc/self/clear_refs", "5");
}

fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, name).unwrap_or(0) * 1024
}

/// The number that follows `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let io = "rchar: 5\nread_bytes: 7\ncancelled_write_bytes: 9\nwrite_bytes: 11\n";
        assert_eq!(field(io, "write_bytes:"), Some(11));
        assert_eq!(field(io, "read_bytes:"), Some(7));
        assert_eq!(field(io, "none:"), None);
    }

    #[test]
    fn counts_grow() {
        let before = ProcessCounts::now();
        let sum: u64 = (0..3_000_000_u64).map(std::hint::black_box).sum();
        assert!(sum > 0 && ProcessCounts::now().since(before).cpu_ns > 0 && peak_rss_bytes() > 0);
    }
}
