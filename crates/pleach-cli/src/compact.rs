//! `pleach compact`: merges each partition, or one, into a single run; or only a range of keys.

use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::time::Instant;

use clap::Args;
use pleach::Stats;
use serde_json::{Value, json};

use crate::bytes::argument;
use crate::failure::Result;
use crate::open::StoreArgs;
use crate::output::{Output, Table, bytes, count, print_document};
use crate::progress;

#[derive(Args)]
#[command(
    after_help = "With --from or --to, only what lies between them is merged, and only files that hold some of it are read."
)]
pub(crate) struct CompactArgs {
    /// First key, included
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End, not included
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Keys in hexadecimal
    #[arg(long)]
    hex: bool,
}

/// The lower and the upper end of a range of keys.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl CompactArgs {
    /// The bounds of the keys to merge; `None` if all are to be merged.
    fn bounds(&self) -> Result<Option<Bounds>> {
        if self.from.is_none() && self.to.is_none() {
            return Ok(None);
        }
        let key = |text: &Option<OsString>| {
            text.as_deref().map(|text: &OsStr| argument(text, self.hex)).transpose()
        };
        let from = key(&self.from)?.map_or(Bound::Unbounded, Bound::Included);
        let to = key(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(Some((from, to)))
    }
}

pub(crate) fn run(store: &StoreArgs, args: &CompactArgs) -> Result<()> {
    let bounds = args.bounds()?;
    let db = store.open()?;
    let partitions = store.chosen_partitions(&db)?;
    let started = Instant::now();
    let spinner = progress::working("writing the memtable to files");
    if bounds.is_none() {
        db.flush()?;
    }
    let before = db.stats();
    for (number, partition) in (1..).zip(&partitions) {
        let size = bytes(partition.stats()?.bytes);
        let name = partition.name().escape_debug();
        spinner.set_message(format!("merging \"{name}\" ({size}), {number} of {}", partitions.len()));
        match &bounds {
            None => partition.compact()?,
            Some(bounds) => partition.compact_range(bounds.clone())?,
        }
    }
    spinner.finish_and_clear();
    let (after, seconds) = (db.stats(), started.elapsed().as_secs_f64());
    drop(partitions);
    db.close()?;
    if store.json {
        let report = json!({"before": json_of(&before), "after": json_of(&after), "seconds": seconds});
        return print_document(&report);
    }
    print(&before, &after, seconds)
}

fn json_of(stats: &Stats) -> Value {
    json!({
        "ssts": stats.ssts,
        "sst_bytes": stats.sst_bytes,
        "sst_entries": stats.sst_entries,
        "runs": stats.runs,
        "runs_max": stats.runs_max,
    })
}

fn print(before: &Stats, after: &Stats, seconds: f64) -> Result<()> {
    let mut table = Table::new(&["", "BEFORE", "AFTER"], 1);
    let mut row = |name: &str, of: fn(&Stats) -> u64, text: fn(u64) -> String| {
        table.row([name.to_owned(), text(of(before)), text(of(after))]);
    };
    row("files", |s| s.ssts, count);
    row("bytes", |s| s.sst_bytes, bytes);
    row("entries (versions, tombstones)", |s| s.sst_entries, count);
    row("runs", |s| s.runs, count);
    row("most runs in a partition", |s| s.runs_max, count);
    let mut output = Output::stdout();
    table.print(&mut output)?;
    let (read, written) = (after.compaction_read_bytes, after.compaction_written_bytes);
    let work = format!("read {}, wrote {}", bytes(read), bytes(written));
    output.line(format!("{work} in {seconds:.2} s"))?;
    output.finish()
}
