//! The `pleach-bench` command: Pleach, and the reference engine that checks the benchmark.

use std::process::ExitCode;

use pleach_bench::{PLEACH, REFERENCE, run};

fn main() -> ExitCode {
    run(&[PLEACH, REFERENCE])
}
