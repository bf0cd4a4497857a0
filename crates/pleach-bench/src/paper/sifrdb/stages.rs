//! SifrDB, Figs. 13 and 14: policies by the stage that holds the key, and with filters off and on.

use super::forest::{Forest, Memory, Search, wasted_share, with_policies};
use super::{print_cells, print_row};
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{nanos, print};

/// Policies of Fig. 13; the first is the base of none.
const FIG_13: [&str; 4] = ["fc16", "pa", "serial", "auto"];
/// Policies of Fig. 14; the first is the base of the others.
const FIG_14: [&str; 8] = ["serial", "fc2", "fc4", "fc8", "fc16", "fc32", "pa", "auto"];
/// Filters on, in bits for a key.
const FILTER_BITS: u32 = 10;

/// Latency by the stage that holds the key.
pub(crate) fn fig13(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::of(session);
    forest.print_conditions("100 GB, no filters, six stages, a SATA SSD; curves without numbers.");
    print(
        "Theirs, in words: FC takes the same time whichever stage holds the key; PA takes longer the later the stage, and less\n\
         than FC in the first ones. Ours: mean time of a get; blocks that are read stay out of the cache, otherwise the small\n\
         first stages would be cached.\n",
    );
    let head = (1..=forest.stages()).map(|stage| format!("stage {stage}"));
    print_cells(&std::iter::once("policy".to_owned()).chain(head).collect::<Vec<_>>());
    for engine in with_policies(session) {
        for policy in FIG_13 {
            let mut row = vec![policy.to_owned()];
            for stage in 1..=forest.stages() {
                let keys = forest.keys_of_stage(stage);
                let further = format!(
                    "--loaded-after {} --loaded-before {} --tune {}.fill_cache=false",
                    keys.start, keys.end, engine.name
                );
                let search = Search::gets(Memory::OneFor(25), policy);
                row.push(nanos(forest.measure_one(session, &engine, search, &further)?.mean_ns));
            }
            print_cells(&row);
        }
        session.remove_store(engine.name);
    }
    Ok(())
}

/// Policies with filters off and on.
pub(crate) fn fig14(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::of(session);
    forest.print_conditions("100 GB, a SATA SSD; bars without numbers.");
    print(
        "Theirs, in words: without filters FC is 2.1x as fast as a serial search and PA 1.0x; more than 16 searches gain nothing;\n\
         with filters (10 bits for a key) all policies are about the same. Ours: data : memory is 6 : 1.\n",
    );
    print_row(&["filters", "policy", "mean get", "against serial", "theirs", "p99", "reads not used"]);
    for engine in with_policies(session) {
        for filter_bits in [0, FILTER_BITS] {
            let measured = policies(session, forest, &engine, filter_bits);
            session.remove_store(engine.name);
            measured?;
        }
    }
    Ok(())
}

/// The rows of a store with or without filters.
fn policies(
    session: &mut Session<'_>,
    forest: Forest,
    engine: &EngineFactory,
    filter_bits: u32,
) -> Result<()> {
    let mut serial = None;
    for policy in FIG_14 {
        let search = Search { filter_bits, ..Search::gets(Memory::OneFor(6), policy) };
        let read = forest.measure_one(session, engine, search, "")?;
        let theirs = match (filter_bits, policy) {
            (_, "serial" | "auto") => "-",
            (0, "fc16") => "2.1x",
            (0, "pa") => "1.0x",
            (0, _) => "figure only",
            _ => "about 1x",
        };
        print_cells(&[
            if filter_bits == 0 { "off" } else { "on" }.to_owned(),
            policy.to_owned(),
            nanos(read.mean_ns),
            format!("{:.2}x", *serial.get_or_insert(read.mean_ns) / read.mean_ns),
            theirs.to_owned(),
            nanos(read.p99_ns as f64),
            wasted_share(&read),
        ]);
    }
    Ok(())
}
