//! The benchmark's command with Pleach's rivals beside it.

use std::process::ExitCode;

/// For all engines, those in C and C++ included. It gives back to the system what RocksDB's memtables have freed.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A background thread returns freed memory to the system within a second. By default threads return it during their own
/// calls, over ten seconds; until then the page cache lacks it under a memory limit.
#[expect(unsafe_code, reason = "jemalloc looks for its settings under this name")]
#[unsafe(export_name = "malloc_conf")]
pub static ALLOCATOR_SETTINGS: Option<&'static std::ffi::c_char> = {
    const TEXT: &[u8] = b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0\0";
    // SAFETY: the text is constant, not empty, and ends with a zero byte.
    Some(unsafe { &*TEXT.as_ptr().cast() })
};

fn main() -> ExitCode {
    pleach_bench::run(&bench_peers::engines())
}
