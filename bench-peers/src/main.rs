//! The benchmark's command with Pleach's rivals beside it: each engine in a module of its own, behind
//! `pleach_bench::Engine`. How each is configured, and why: docs/benchmarks.md.

mod lmdb;
mod redb;
mod rocksdb;

use std::process::ExitCode;

fn main() -> ExitCode {
    pleach_bench::run(&[
        pleach_bench::PLEACH,
        pleach_bench::REFERENCE,
        rocksdb::LEVELLED,
        rocksdb::UNIVERSAL,
        rocksdb::BLOB,
        lmdb::LMDB,
        redb::REDB,
    ])
}
