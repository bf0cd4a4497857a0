//! SifrDB, Figs. 15 and 16: throughput and latency of the policies under YCSB.

use super::forest::{Forest, Memory, SECONDS, Search};
use super::{is_pleach, print_cells};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{count, nanos, print};

/// Keys here: enough for 14 runs in five stages. Each row loads a store of its own, because the workloads write.
const KEYS: u64 = 767 * 400;
const STAGES_MAX: u32 = 5;
/// Threads, and operations of all of them, as theirs.
const THREADS: usize = 4;
const OPS: u64 = 40_000;

/// Larger than all writes, as the paper's write buffer is larger than a workload's. A flush into full stages would merge the
/// forest into few runs.
const MEMTABLE_BYTES: u64 = 16 << 20;

const WORKLOADS: [&str; 6] = ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"];

/// Bits of filters for a key, and policy.
const POLICIES: [(u32, &str); 7] =
    [(0, "serial"), (0, "fc16"), (0, "pa"), (0, "auto"), (10, "serial"), (10, "fc16"), (10, "auto")];

/// A row's name and records.
type Row = (String, Vec<Record>);

/// Both figures.
pub(crate) fn fig15(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::with(session.keys(KEYS), STAGES_MAX);
    forest.print_conditions(
        "118 GB, 4 threads of 10 k requests each; memory for the hot keys; bars without numbers.",
    );
    print(&format!(
        "Theirs, in words: without filters SifrDB (FC) is slower than LevelDB and RocksDB and faster than the other forests;\n\
         FC is the best policy but for D, where PA is better; filters help every workload and make SifrDB the fastest.\n\
         Ours: {THREADS} threads of 10 k requests, for {} s at most; memory as large as the data. Writes stay in the write buffer\n\
         of the forest, so its runs stay as loaded. Policies are for gets; all of them read the start of a scan (E) from all runs\n\
         at the same time.\n",
        session.seconds(SECONDS),
    ));
    let mut rows = Vec::new();
    for engine in session.engines.clone() {
        let measured = rows_of(session, forest, &engine, &mut rows);
        session.remove_store(engine.name);
        measured?;
    }
    print_table("Fig. 15: operations a second", &rows, |record| count(record.ops_per_s));
    print_table("Fig. 16: mean time of an operation", &rows, |record| nanos(record.mean_ns));
    print_table("Fig. 16: 99th percentile", &rows, |record| nanos(record.p99_ns as f64));
    Ok(())
}

fn rows_of(
    session: &mut Session<'_>,
    forest: Forest,
    engine: &EngineFactory,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let is_forest = engine.name == "pleach-forest";
    let policies = if is_forest { &POLICIES[..] } else { &[(0, "auto"), (10, "auto")] };
    let memtable = format!("--tune {}.memtable_bytes={MEMTABLE_BYTES}", engine.name);
    let further = format!(
        "--threads {THREADS} --ops {} --no-settle {}",
        OPS.min(forest.keys()),
        if is_forest { &memtable } else { "" },
    );
    let workloads = WORKLOADS.join(",");
    for &(filter_bits, policy) in policies {
        let search = Search { workloads: &workloads, memory: Memory::OneFor(1), policy, filter_bits };
        let records = forest.measure(session, engine, search, &further)?;
        session.remove_store(engine.name);
        let policy = if is_pleach(engine.name) { policy } else { "its own" };
        rows.push((format!("{}, {filter_bits} bits, {policy}", engine.name), records));
    }
    Ok(())
}

fn print_table(title: &str, rows: &[Row], cell: impl Fn(&Record) -> String) {
    print(&format!("\n{title}\n"));
    let head = |first: String, others: Vec<String>| [vec![format!("{first:<32}")], others].concat();
    print_cells(&head("store, filters, policy".to_owned(), WORKLOADS.map(str::to_owned).to_vec()));
    for (name, records) in rows {
        print_cells(&head(name.clone(), records.iter().map(&cell).collect()));
    }
}
