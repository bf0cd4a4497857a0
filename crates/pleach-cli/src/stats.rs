//! `pleach stats`: prints the counters and sizes of the store.

use pleach::Db;
use serde_json::{Map, Value, json};

use crate::dropped;
use crate::failure::Result;
use crate::open::StoreArgs;
use crate::output::{Output, Table, bytes, count, print_document};

pub(crate) fn run(store: &StoreArgs) -> Result<()> {
    let db = store.open()?;
    let names = match &store.partition {
        Some(_) => vec![store.partition_of(&db)?.name().to_owned()],
        None => db.partitions(),
    };
    if store.json {
        print_json(&db, &names)?;
    } else {
        print_text(&db, &names)?;
    }
    Ok(db.close()?)
}

/// `bytes` for each of `count`; 0 if there is none.
#[expect(clippy::cast_precision_loss, reason = "a figure of a few digits")]
fn per(bytes: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { bytes as f64 / count as f64 }
}

fn print_json(db: &Db, names: &[String]) -> Result<()> {
    let stats = db.stats();
    let mut store: Map<String, Value> =
        stats.counts().map(|(name, value)| (name.to_owned(), value.into())).collect();
    store.insert("read_driver".to_owned(), stats.read_driver.to_string().into());
    store.insert("stalled_seconds".to_owned(), stats.stalled.as_secs_f64().into());
    store.insert("index_bytes_per_block".to_owned(), per(stats.index_bytes, stats.data_blocks).into());
    store.insert("index_bytes_per_entry".to_owned(), per(stats.index_bytes, stats.sst_entries).into());
    store.insert("training_seconds".to_owned(), stats.training_time.as_secs_f64().into());
    store.insert("log_is_mapped".to_owned(), stats.log_is_mapped.into());
    dropped::put_json(&mut store, &stats);
    store.insert("poisoned".to_owned(), stats.poisoned.clone().into());
    let mut partitions = Vec::new();
    for partition in names.iter().filter_map(|name| db.find_partition(name)) {
        let stats = partition.stats()?;
        partitions.push(json!({
            "partition": partition.name(),
            "id": partition.id().get(),
            "entries": stats.entries,
            "bytes": stats.bytes,
            "value_bytes": stats.value_bytes,
            "runs": stats.runs,
            "sections": stats.sections,
            "stages": stats.stages,
            "clipped": stats.clipped,
        }));
    }
    print_document(&json!({"store": store, "partitions": partitions}))
}

fn print_text(db: &Db, names: &[String]) -> Result<()> {
    let stats = db.stats();
    let mut output = Output::stdout();
    let mut table = Table::new(&["STORE", ""], 1);
    for (name, value) in stats.counts() {
        let is_bytes = name.ends_with("_bytes");
        table.row([name.replace('_', " "), if is_bytes { bytes(value) } else { count(value) }]);
    }
    table.row(["read driver".to_owned(), stats.read_driver.to_string()]);
    table.row([
        "index bytes a block, an entry".to_owned(),
        format!(
            "{:.2}, {:.3}",
            per(stats.index_bytes, stats.data_blocks),
            per(stats.index_bytes, stats.sst_entries)
        ),
    ]);
    table.row(["trained for".to_owned(), format!("{:.3} s", stats.training_time.as_secs_f64())]);
    table.row(["stalled".to_owned(), format!("{:.3} s", stats.stalled.as_secs_f64())]);
    table.row(["log is mapped".to_owned(), if stats.log_is_mapped { "yes" } else { "no" }.to_owned()]);
    table.row(["log was torn".to_owned(), if stats.log_was_torn { "yes" } else { "no" }.to_owned()]);
    table.row(["log dropped records".to_owned(), count(stats.log_dropped_records)]);
    table.row(["log dropped bytes".to_owned(), bytes(stats.log_dropped_bytes)]);
    table.row(["poisoned".to_owned(), stats.poisoned.clone().unwrap_or_else(|| "no".to_owned())]);
    table.print(&mut output)?;
    output.line("")?;
    let heading = ["PARTITION", "ID", "ENTRIES", "BYTES", "VALUE BYTES", "RUNS", "SECTIONS", "STAGES"];
    let mut table = Table::new(&heading, 1);
    for partition in names.iter().filter_map(|name| db.find_partition(name)) {
        let stats = partition.stats()?;
        let (name, id) = (partition.name().escape_debug().to_string(), partition.id().get().to_string());
        let (size, values) = (bytes(stats.bytes), bytes(stats.value_bytes));
        let (runs, sections, stages) = (count(stats.runs), count(stats.sections), count(stats.stages));
        table.row([name, id, count(stats.entries), size, values, runs, sections, stages]);
    }
    table.print(&mut output)?;
    output.line("")?;
    output.line("ENTRIES are those in files, every version and tombstone; the memtable has more.")?;
    output.line("VALUE BYTES are those of values stored apart; they come on top of BYTES.")?;
    output.line("Counts of work and of training start at zero with each open.")?;
    output.line("In a learned SST a model finds blocks; its residuals correct it.")?;
    output.finish()
}
