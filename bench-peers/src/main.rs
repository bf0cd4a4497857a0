//! Pleach and its rivals behind the benchmark's command line.

#[cfg(test)]
mod conformance;
mod fjall;
#[cfg(leveldb)]
mod leveldb;
mod quiet;
#[cfg(wiredtiger)]
mod wiredtiger;

use std::process::ExitCode;

use pleach_bench::{EngineFactory, PLEACH, REFERENCE};

fn main() -> ExitCode {
    pleach_bench::run(&engines())
}

/// All engines, in the order in which they are listed.
fn engines() -> Vec<EngineFactory> {
    vec![
        PLEACH,
        fjall::FJALL,
        #[cfg(leveldb)]
        leveldb::factory(),
        #[cfg(wiredtiger)]
        wiredtiger::factory(),
        REFERENCE,
    ]
}
