//! `pleach compact`: merges each partition, or one, into a single run.

use std::time::Instant;

use pleach::Stats;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::open::StoreArgs;
use crate::output::{Output, Table, bytes, count, print_document};
use crate::progress;

pub(crate) fn run(store: &StoreArgs) -> Result<()> {
    let db = store.open()?;
    let partitions = store.chosen_partitions(&db)?;
    let started = Instant::now();
    let spinner = progress::working("writing the memtable to files");
    db.flush()?;
    let before = db.stats();
    for (number, partition) in (1..).zip(&partitions) {
        let size = bytes(partition.stats()?.bytes);
        let name = partition.name().escape_debug();
        spinner.set_message(format!("merging \"{name}\" ({size}), {number} of {}", partitions.len()));
        partition.compact()?;
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
