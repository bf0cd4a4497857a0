//! `pleach drop-partition`: prints what the partition holds, asks, and drops it.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

use clap::Args;

use crate::failure::{Failure, Result};
use crate::open::StoreArgs;
use crate::output::{note, print_document};
use crate::partitions::Contents;

#[derive(Args)]
pub(crate) struct DropPartitionArgs {
    /// The partition to drop
    name: String,
    /// Do not ask; needed without a terminal
    #[arg(long, short)]
    yes: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &DropPartitionArgs) -> Result<()> {
    if store.partition.as_ref().is_some_and(|name| *name != args.name) {
        return Err(Failure::usage("two partitions were named; leave out --partition"));
    }
    let db = store.open()?;
    let Some(partition) = db.find_partition(&args.name) else {
        return Err(Failure::not_found(format!("there is no partition {:?}", args.name))
            .hint(format!("there are: {}", db.partitions().join(", "))));
    };
    let contents = Contents::quick(&partition)?;
    let holds = format!("{:?} with {}", args.name, contents.text());
    if !args.yes && !confirm(&holds)? {
        note("nothing was dropped");
        return Ok(());
    }
    let started = Instant::now();
    db.drop_partition(partition)?;
    let seconds = started.elapsed().as_secs_f64();
    db.close()?;
    if store.json {
        let mut report = contents.json(&args.name);
        report["dropped"] = true.into();
        report["seconds"] = seconds.into();
        return print_document(&report);
    }
    note(format!("dropped {holds} in {:.1} ms; its files are removed in the background", seconds * 1e3));
    Ok(())
}

/// Asks at the terminal. Without one, --yes is required.
fn confirm(holds: &str) -> Result<bool> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(Failure::usage(format!("would drop {holds}, but there is no terminal to ask at"))
            .hint("use --yes to drop it without a question; nothing was dropped"));
    }
    let refused = |e| Failure::io("ask at", Path::new("the terminal"), &e);
    write!(stderr, "Drop {holds}? This cannot be undone. [y/N] ")
        .and_then(|()| stderr.flush())
        .map_err(refused)?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(refused)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
