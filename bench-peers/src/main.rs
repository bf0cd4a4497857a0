//! The benchmark's command with Pleach's rivals beside it.

use std::process::ExitCode;

/// For all engines, those in C and C++ included. It gives back to the system what RocksDB's memtables have freed.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    pleach_bench::run(&bench_peers::engines())
}
