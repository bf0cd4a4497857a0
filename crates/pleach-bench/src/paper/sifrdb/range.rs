//! SifrDB, section 5.3.4: range queries whose seeks search the trees one after the other or at the same time.

use super::forest::{Forest, Memory, Search, runs, with_policies};
use super::{print_cells, print_row};
use crate::engine::Result;
use crate::paper::Session;
use crate::report::{count, nanos, print};

/// Entries of a range query.
const SCAN_LEN: u64 = 50;
const MEMORIES: [Memory; 3] = [Memory::OneFor(400), Memory::OneFor(25), Memory::OneFor(6)];

/// Range queries with seeks one by one (the driver `blocking` has one read in flight) and at the same time.
pub(crate) fn range(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::of(session);
    forest.print_conditions("118 GB, no filters, a SATA SSD; no figure.");
    print(&format!(
        "Theirs, in words: Size-Tiered and PebblesDB are about half as fast as trees; seeks of all trees at the same time make\n\
         SifrDB 42 % faster than those two. Ours: {SCAN_LEN} entries a query; off: one read in flight.\n",
    ));
    print_row(&[
        "store",
        "data : memory",
        "parallel seeks",
        "queries a second",
        "gain",
        "theirs",
        "p99",
        "runs",
    ]);
    for engine in with_policies(session) {
        for memory in MEMORIES {
            let mut off = None;
            for is_on in [false, true] {
                let driver = if is_on {
                    String::new()
                } else {
                    format!("--tune {}.read_driver=blocking", engine.name)
                };
                let further = format!("--scan-len {SCAN_LEN} {driver}");
                let search = Search { workloads: "seekrandom", ..Search::gets(memory, "auto") };
                let read = forest.measure_one(session, &engine, search, &further)?;
                let off = *off.get_or_insert(read.ops_per_s);
                let is_theirs = is_on && engine.name == "pleach-forest";
                print_cells(&[
                    format!("{} (ours)", engine.name),
                    memory.name(),
                    if is_on { "on" } else { "off" }.to_owned(),
                    count(read.ops_per_s),
                    format!("{:.2}x", read.ops_per_s / off),
                    if is_theirs { "1.42x" } else { "-" }.to_owned(),
                    nanos(read.p99_ns as f64),
                    runs(&read),
                ]);
            }
        }
        session.remove_store(engine.name);
    }
    Ok(())
}
