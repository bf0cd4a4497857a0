//! The `pleach-bench` command: Pleach in its shapes, and the reference engine that checks the benchmark.

use std::process::ExitCode;

use pleach_bench::{PLEACH, PLEACH_FOREST, PLEACH_INLINE, PLEACH_LEVELED, PLEACH_SEPARATED, REFERENCE, run};

fn main() -> ExitCode {
    run(&[PLEACH, PLEACH_SEPARATED, PLEACH_INLINE, PLEACH_FOREST, PLEACH_LEVELED, REFERENCE])
}
