//! `pleach demo`: a store at work, with every claim checked.
//!
//! Five steps, each a module: load, read, kill a writer, drop a partition, verify. A check that fails ends the demo with
//! exit code 2. The store is in a temporary directory, removed at the end, or where `--dir` says.

mod crash;
mod data;
mod drop;
mod fill;
mod read;
mod report;
pub(crate) mod writer;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use tempfile::TempDir;

use pleach_command::{Interrupt, SecondSignal};

use crate::failure::{Exit, Failure, Result};
use crate::open::{StoreArgs, open_dir};
use crate::output::{bytes, entries, files};
use crate::verify;
use report::Report;

#[derive(Args)]
#[command(after_help = "The demo makes a store of its own and does not look at --db and --partition.")]
pub(crate) struct DemoArgs {
    /// Directory for the store, new or empty; it stays [default: a temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Entries to load
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    keys: u64,
    /// Milliseconds the writer may write before it is killed
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    kill_after: u64,
    /// Leave the temporary directory behind
    #[arg(long)]
    keep: bool,
}

/// The context of all steps.
struct Demo<'a> {
    dir: &'a Path,
    keys: u64,
    kill_after: u64,
    memory: Option<usize>,
    interrupt: Interrupt,
}

impl Demo<'_> {
    fn open(&self) -> Result<pleach::Db> {
        open_dir(self.dir, true, self.memory).map_err(|error| Failure::from(error).without_read_only())
    }
}

pub(crate) fn run(store: &StoreArgs, args: &DemoArgs) -> Result<()> {
    let interrupt = Interrupt::install(SecondSignal::EndsProcess)?;
    let temporary = match &args.dir {
        Some(dir) => {
            check_empty(dir)?;
            None
        }
        None => Some(temporary()?),
    };
    let dir = temporary
        .as_ref()
        .map_or_else(|| args.dir.clone().unwrap_or_default(), |dir| dir.path().to_path_buf());
    let demo =
        Demo { dir: &dir, keys: args.keys, kill_after: args.kill_after, memory: store.memory, interrupt };
    let stays = temporary.is_none() || args.keep;
    let mut report = Report::new(store.json);
    let result = steps(&demo, &mut report, stays);
    if let Some(temporary) = temporary.filter(|_| args.keep) {
        // The directory now belongs to the user.
        let _path = temporary.keep();
    }
    if let Err(failure) = &result {
        report.failed(failure);
    }
    report.finish()?;
    result
}

fn temporary() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("pleach-demo-")
        .tempdir()
        .map_err(|e| Failure::io("make a directory in", &std::env::temp_dir(), &e))
}

fn check_empty(dir: &Path) -> Result<()> {
    let names = match std::fs::read_dir(dir) {
        Ok(names) => names.count(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(Failure::io("look into", dir, &error)),
    };
    if names == 0 {
        return Ok(());
    }
    let hint = "the demo wants a new or an empty directory";
    Err(Failure::usage(format!("{} is not empty", dir.display())).hint(hint))
}

fn steps(demo: &Demo<'_>, report: &mut Report, stays: bool) -> Result<()> {
    let started = Instant::now();
    let fate = if stays { "it stays" } else { "removed at the end" };
    report.title(format!("Pleach demo: {} in {} ({fate})", entries(demo.keys), demo.dir.display()))?;
    let db = demo.open()?;
    fill::run(demo, &db, report)?;
    read::run(demo, &db, report)?;
    db.close()?;
    crash::run(demo, report)?;
    let db = demo.open()?;
    drop::run(demo, &db, report)?;
    verify_all(demo, &db, report)?;
    db.close()?;
    report.summary(started.elapsed().as_secs_f64())?;
    report.next_steps(stays.then_some(demo.dir))
}

fn verify_all(demo: &Demo<'_>, db: &pleach::Db, report: &mut Report) -> Result<()> {
    report.step("Verify: read every file, check checksums, order, filters and indexes")?;
    let started = Instant::now();
    let found = verify::check(db, &demo.interrupt)?;
    let seconds = started.elapsed().as_secs_f64();
    let size = format!("{} in {}", bytes(found.bytes), files(found.ssts));
    report.result("verified", format!("{size}, no damage, {seconds:.2} s"))?;
    report.record("verify", &[("files", found.ssts), ("bytes", found.bytes), ("entries", found.entries)]);
    Ok(())
}

/// A check of the demo: what was expected and what was found.
fn check(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Failure::new(Exit::Damage, format!("CHECK FAILED: {}", what()))) }
}
