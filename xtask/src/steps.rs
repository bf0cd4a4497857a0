//! The gate: named steps, run in order, each with its time.
//!
//! Cheap steps come first, so that a misplaced brace is reported in a second and not after the tests. Warnings are
//! denied by arguments, not by `RUSTFLAGS`: a changed `RUSTFLAGS` would build every dependency once more.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{header, tidy};

/// The action of one step.
enum Action {
    /// `cargo` with these arguments.
    Cargo(&'static [&'static str]),
    /// The project's own rules.
    Tidy,
    /// The header of the interface for C is that of its sources.
    Header,
}

struct Step {
    name: &'static str,
    action: Action,
}

const CHECK: &[Step] = &[
    Step { name: "fmt", action: Action::Cargo(&["fmt", "--all", "--check"]) },
    Step { name: "tidy", action: Action::Tidy },
    Step { name: "header", action: Action::Header },
    Step {
        name: "clippy",
        action: Action::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    },
    // As users build it: the dev-dependencies of the step above switch features on.
    Step {
        name: "clippy, plain",
        action: Action::Cargo(&["clippy", "-p", "pleach", "--no-deps", "--", "-D", "warnings"]),
    },
    Step { name: "test", action: Action::Cargo(&["test", "--workspace"]) },
    Step { name: "doc", action: Action::Cargo(&["doc", "--no-deps", "--workspace"]) },
];

/// Runs the gate; the error names the steps that failed.
pub(crate) fn check(root: &Path, keep_going: bool) -> Result<(), String> {
    run_all(keep_going, |step| step.run(root))
}

/// Writes the tables of documents from the files of results that they name. A test of `pleach-bench` checks them.
pub(crate) fn tables(root: &Path) -> Result<(), String> {
    cargo(root, &["run", "--quiet", "--package", "pleach-bench", "--", "tables", "docs/benchmarks.md"], &[])
}

impl Step {
    fn run(&self, root: &Path) -> Result<(), String> {
        match self.action {
            Action::Tidy => tidy::run(root),
            Action::Header => header::check(root),
            Action::Cargo(arguments) => cargo(root, arguments, &[]),
        }
    }
}

/// Runs `cargo` with these arguments and these variables of the environment.
pub(crate) fn cargo(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Only rustdoc reads RUSTDOCFLAGS, when it builds documentation and when it builds doctests.
    let status = Command::new(cargo)
        .args(arguments)
        .current_dir(root)
        .env("RUSTDOCFLAGS", "-D warnings")
        .envs(variables.iter().copied())
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments.join(" "))) }
}

fn run_all(keep_going: bool, mut run: impl FnMut(&Step) -> Result<(), String>) -> Result<(), String> {
    let mut times: Vec<(&str, Duration, bool)> = Vec::new();
    for step in CHECK {
        println!("== {}", step.name);
        let start = Instant::now();
        let result = run(step);
        times.push((step.name, start.elapsed(), result.is_ok()));
        if let Err(message) = result {
            eprintln!("{}: {message}", step.name);
            if !keep_going {
                break;
            }
        }
    }
    println!("== summary");
    for (name, time, passed) in &times {
        let verdict = if *passed { "ok" } else { "FAILED" };
        println!("{:>8.1} s  {name}: {verdict}", time.as_secs_f64());
    }
    let failed: Vec<&str> = times.iter().filter(|time| !time.2).map(|time| time.0).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with_failing_tidy(keep_going: bool) -> (Result<(), String>, Vec<&'static str>) {
        let mut seen = Vec::new();
        let result = run_all(keep_going, |step| {
            seen.push(step.name);
            if step.name == "tidy" { Err("one finding".into()) } else { Ok(()) }
        });
        (result, seen)
    }

    #[test]
    fn stops_at_the_first_failure_and_names_it() {
        let (result, seen) = run_with_failing_tidy(false);
        assert_eq!(result, Err("failed: tidy".into()));
        assert_eq!(seen, ["fmt", "tidy"]);
    }

    #[test]
    fn keep_going_runs_every_step_and_still_fails() {
        let (result, seen) = run_with_failing_tidy(true);
        assert_eq!(result, Err("failed: tidy".into()));
        assert_eq!(seen.len(), CHECK.len());
    }
}
