//! `pleach stats`: prints the counters and sizes of the store.

use pleach::{Db, Stats};
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

/// Name and value of every field, and whether the value counts bytes, in the order of the output.
fn fields(stats: &Stats) -> [(&'static str, u64, bool); 63] {
    [
        ("partitions", stats.partitions, false),
        ("ssts", stats.ssts, false),
        ("ssts_learned", stats.ssts_learned, false),
        ("sst_bytes", stats.sst_bytes, true),
        ("sst_entries", stats.sst_entries, false),
        ("data_blocks", stats.data_blocks, false),
        ("value_files", stats.value_files, false),
        ("value_file_bytes", stats.value_file_bytes, true),
        ("value_files_damaged", stats.value_files_damaged, false),
        ("values", stats.values, false),
        ("value_bytes", stats.value_bytes, true),
        ("value_table_bytes", stats.value_table_bytes, true),
        ("value_copied_bytes", stats.value_copied_bytes, true),
        ("value_moved_bytes", stats.value_moved_bytes, true),
        ("value_moves", stats.value_moves, false),
        ("value_converted_bytes", stats.value_converted_bytes, true),
        ("values_converted", stats.values_converted, false),
        ("sst_garbage", stats.sst_garbage, false),
        ("pinned_bytes", stats.pinned_bytes, true),
        ("runs", stats.runs, false),
        ("runs_max", stats.runs_max, false),
        ("last_sequence_number", stats.last_sequence_number, false),
        ("memtables", stats.memtables, false),
        ("memtable_bytes", stats.memtable_bytes, true),
        ("pinned_memtable_bytes", stats.pinned_memtable_bytes, true),
        ("open_files", stats.open_files, false),
        ("open_files_max", stats.open_files_max, false),
        ("memory_bytes", stats.memory_bytes, true),
        ("cache_bytes", stats.cache_bytes, true),
        ("cache_capacity_bytes", stats.cache_capacity_bytes, true),
        ("cache_locked_bytes", stats.cache_locked_bytes, true),
        ("value_cache_bytes", stats.value_cache_bytes, true),
        ("index_filter_bytes", stats.index_filter_bytes, true),
        ("index_bytes", stats.index_bytes, true),
        ("residual_bytes", stats.residual_bytes, true),
        ("index_error_max", stats.index_error_max, false),
        ("filter_bytes", stats.filter_bytes, true),
        ("filters_missing", stats.filters_missing, false),
        ("wasted_probes", stats.wasted_probes, false),
        ("lookup_reads", stats.lookup_reads, false),
        ("wasted_reads", stats.wasted_reads, false),
        ("value_reads", stats.value_reads, false),
        ("operations", stats.operations, false),
        ("log_bytes", stats.log_bytes, true),
        ("flushes", stats.flushes, false),
        ("flush_bytes", stats.flush_bytes, true),
        ("compactions", stats.compactions, false),
        ("partial_compactions", stats.partial_compactions, false),
        ("range_compactions", stats.range_compactions, false),
        ("compactions_running", stats.compactions_running, false),
        ("compaction_read_bytes", stats.compaction_read_bytes, true),
        ("compaction_written_bytes", stats.compaction_written_bytes, true),
        ("moved_bytes", stats.moved_bytes, true),
        ("tombstones_passed", stats.tombstones_passed, false),
        ("index_ties", stats.index_ties, false),
        ("index_larger", stats.index_larger, false),
        ("index_one_block", stats.index_one_block, false),
        ("index_many_writers", stats.index_many_writers, false),
        ("index_timed_out", stats.index_timed_out, false),
        ("index_inexact", stats.index_inexact, false),
        ("trained_while_writing", stats.trained_while_writing, false),
        ("trained_while_reading", stats.trained_while_reading, false),
        ("training_waits", stats.training_waits, false),
        ("removed_files", stats.removed_files, false),
    ]
}

/// `bytes` for each of `count`; 0 if there is none.
#[expect(clippy::cast_precision_loss, reason = "a figure of a few digits")]
fn per(bytes: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { bytes as f64 / count as f64 }
}

fn print_json(db: &Db, names: &[String]) -> Result<()> {
    let stats = db.stats();
    let mut store: Map<String, Value> =
        fields(&stats).iter().map(|(name, value, _)| ((*name).to_owned(), (*value).into())).collect();
    store.insert("read_driver".to_owned(), stats.read_driver.to_string().into());
    store.insert("stalled_seconds".to_owned(), stats.stalled.as_secs_f64().into());
    store.insert("index_bytes_per_block".to_owned(), per(stats.index_bytes, stats.data_blocks).into());
    store.insert("index_bytes_per_entry".to_owned(), per(stats.index_bytes, stats.sst_entries).into());
    store.insert("training_seconds".to_owned(), stats.training_time.as_secs_f64().into());
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
    for (name, value, is_bytes) in fields(&stats) {
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
