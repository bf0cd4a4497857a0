//! SifrDB, Table 2, Figs. 6 and 7: gets that search the candidate trees one after the other or at the same time, by memory.

use super::forest::{Forest, MEMORIES, Memory, Search, wasted_share, with_policies};
use super::{print_cells, print_row};
use crate::engine::Result;
use crate::paper::Session;
use crate::report::{nanos, print};

const THEIRS: &str =
    "100 GB, 17 trees, no filters, a SATA SSD of 41 k reads a second, 28 cores, search threads.";

/// Table 2: mean core time, 95th and 99th percentile in milliseconds, in the traditional way and with 16 search threads, for
/// [`MEMORIES`].
const TABLE_2: [[[f64; 3]; 2]; 5] = [
    [[0.052, 12.3, 18.7], [0.047, 2.7, 3.75]],
    [[0.030, 5.46, 6.22], [0.024, 1.65, 1.91]],
    [[0.023, 3.12, 3.75], [0.027, 1.07, 1.34]],
    [[0.014, 1.85, 2.17], [0.030, 0.78, 0.87]],
    [[0.012, 0.376, 0.398], [0.034, 0.232, 0.243]],
];

/// Searches at the same time in Fig. 6, and the memories that it is repeated with.
const SEARCHES: [u32; 6] = [1, 2, 4, 8, 16, 32];
const FIG_6: [Memory; 3] = [Memory::OneFor(400), Memory::OneFor(25), Memory::Cached];

/// Processor time and tail latency.
pub(crate) fn table2(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::of(session);
    forest.print_conditions(THEIRS);
    print_row(&[
        "data : memory",
        "search",
        "core time (theirs)",
        "p95 (theirs)",
        "p99 (theirs)",
        "reads not used",
    ]);
    for engine in with_policies(session) {
        for (memory, theirs) in MEMORIES.into_iter().zip(TABLE_2) {
            for (policy, theirs) in ["serial", "fc16"].into_iter().zip(theirs) {
                let read = forest.measure_one(session, &engine, Search::gets(memory, policy), "")?;
                let [core, p95, p99] = theirs.map(|millis| nanos(millis * 1e6));
                print_cells(&[
                    memory.name(),
                    policy.to_owned(),
                    format!("{} ({core})", nanos(read.cpu_us_per_op * 1e3)),
                    format!("{} ({p95})", nanos(read.p95_ns as f64)),
                    format!("{} ({p99})", nanos(read.p99_ns as f64)),
                    wasted_share(&read),
                ]);
            }
        }
        session.remove_store(engine.name);
    }
    print("\nCore time is that of the whole process, kernel included, for each get.");
    Ok(())
}

/// Latency by the number of searches at the same time.
pub(crate) fn fig6(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::of(session);
    forest.print_conditions(THEIRS);
    print("Theirs is a curve without numbers; 16 is their choice. Ours is the mean time of a get.\n");
    let head = SEARCHES.map(|searches| format!("{searches} searches"));
    print_cells(&[&["data : memory".to_owned()][..], &head].concat());
    for engine in with_policies(session) {
        for memory in FIG_6 {
            let mut row = vec![memory.name()];
            for searches in SEARCHES {
                let policy = format!("fc{searches}");
                let read = forest.measure_one(session, &engine, Search::gets(memory, &policy), "")?;
                row.push(nanos(read.mean_ns));
            }
            print_cells(&row);
        }
        session.remove_store(engine.name);
    }
    Ok(())
}

/// Latency one by one and in parallel.
pub(crate) fn fig7(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::of(session);
    forest.print_conditions(THEIRS);
    print_row(&["data : memory", "serial", "16 searches", "gain", "theirs", "auto, the default", "gain"]);
    for engine in with_policies(session) {
        for memory in MEMORIES {
            let mut mean = |policy| -> Result<f64> {
                Ok(forest.measure_one(session, &engine, Search::gets(memory, policy), "")?.mean_ns)
            };
            let [serial, parallel, auto] = [mean("serial")?, mean("fc16")?, mean("auto")?];
            print_cells(&[
                memory.name(),
                nanos(serial),
                nanos(parallel),
                format!("{:.2}x", serial / parallel),
                if memory == Memory::Cached { "1.7x" } else { "figure only" }.to_owned(),
                nanos(auto),
                format!("{:.2}x", serial / auto),
            ]);
        }
        session.remove_store(engine.name);
    }
    Ok(())
}
