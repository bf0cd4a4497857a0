//! Development tasks of Pleach, called as `cargo xtask <task>`.
//!
//! `check` is the gate: it only reads. The rules that neither rustfmt nor
//! clippy knows are in [`tidy`].

#![expect(clippy::print_stdout, reason = "a development tool talks to the terminal")]
#![expect(
    clippy::disallowed_methods,
    reason = "a development tool runs on the real machine, never in the simulator"
)]

mod capi;
mod changelog;
mod header;
mod plants;
mod steps;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks of Pleach.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The gate: formatting, tidy, clippy, tests and documentation, all with warnings denied. Changes nothing.
    Check {
        /// Run the remaining steps after one has failed.
        #[arg(long)]
        keep_going: bool,
    },
    /// Only the project's own rules (STYLE.md), printed as `path:line: message [rule]`.
    Tidy,
    /// Print which module of the crate `pleach` uses which. `tidy` checks that they form layers.
    Modules,
    /// Write the tables of docs/benchmarks.md from the files of results that they name.
    Tables,
    /// Write crates/pleach-capi/include/pleach.h from the comments of the sources.
    Header {
        /// Write nothing; fail if it is not that of the sources.
        #[arg(long)]
        check: bool,
    },
    /// Run the tests of the interface for C; the programs in C under valgrind, if there is one.
    Capi,
    /// Apply the bugs of plants/ to a copy of the project, and run the test that must notice each.
    Plants {
        /// Only this plant; may be given several times.
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Print names and bugs; run nothing.
        #[arg(long)]
        list: bool,
        /// Write the table of docs/testing/planted-bugs.md; run nothing.
        #[arg(long)]
        table: bool,
    },
    /// Move the notes in changes/ into CHANGELOG.md, grouped by kind.
    Changelog {
        /// Print the new section; write and delete nothing.
        #[arg(long)]
        dry_run: bool,
        /// Version that heads the section; by default the workspace's own.
        #[arg(long)]
        version: Option<String>,
    },
}

fn main() -> ExitCode {
    let root = workspace_root();
    let result = match Cli::parse().task {
        Task::Check { keep_going } => steps::check(&root, keep_going),
        Task::Tidy => tidy::run(&root),
        Task::Modules => tidy::print_modules(&root),
        Task::Tables => steps::tables(&root),
        Task::Header { check: true } => header::check(&root),
        Task::Header { check: false } => header::write(&root),
        Task::Capi => capi::run(&root),
        Task::Plants { list: true, .. } => plants::list(&root),
        Task::Plants { table: true, .. } => tidy::write_plants(&root),
        Task::Plants { only, .. } => plants::run(&root, &only),
        Task::Changelog { dry_run, version } => changelog::run(&root, version, dry_run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above this crate's own, for any current directory. The folder that cargo names is tried first, because
/// the binary may have been built in another checkout that shares the target folder.
fn workspace_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().expect("xtask is a folder of the workspace").to_path_buf()
}
