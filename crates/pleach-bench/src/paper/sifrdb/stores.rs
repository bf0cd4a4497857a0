//! SifrDB, Figs. 11a and 11b with the candidates of Table 4: read latency and read amplification of stores by memory.

use super::forest::{Forest, Memory, Search, runs};
use super::{is_pleach, number, print_cells, print_row};
use crate::engine::Result;
use crate::paper::Session;
use crate::report::{nanos, print};

/// The paper's memories of 256 MB, 1, 4 and 16 GB.
const MEMORIES: [Memory; 4] =
    [Memory::OneFor(400), Memory::OneFor(100), Memory::OneFor(25), Memory::OneFor(6)];

/// The figure.
pub(crate) fn fig11(session: &mut Session<'_>) -> Result<()> {
    let forest = Forest::of(session);
    forest.print_conditions("118 GB, no filters, 16 search threads, a SATA SSD of 41 k reads a second.");
    print(
        "Theirs, in words: at 400 : 1 SifrDB takes 1 / 4 of Size-Tiered's time and 1 / 5 of PebblesDB's, and is as fast as\n\
         LevelDB; at 6 : 1 its parallel search makes 15 % more reads than Size-Tiered's serial one. A forest that is searched\n\
         serially stands here for Size-Tiered.\n",
    );
    print_row(&["store", "search", "data : memory", "mean get", "read amplification", "candidates"]);
    for row in [
        ["SifrDB (theirs)", "16 threads", "any", "figure only", "figure only", "17"],
        ["Size-Tiered (theirs)", "serial", "any", "figure only", "figure only", "17"],
        ["PebblesDB (theirs)", "serial", "any", "figure only", "figure only", "11 to 19"],
        ["LevelDB (theirs)", "serial", "any", "figure only", "figure only", "7"],
        ["RocksDB (theirs)", "serial", "any", "figure only", "figure only", "9"],
    ] {
        print_row(&row);
    }
    for engine in session.engines.clone() {
        let policies: &[&str] = if is_pleach(engine.name) { &["serial", "fc16"] } else { &["its own"] };
        for policy in policies {
            for memory in MEMORIES {
                let read = forest.measure_one(session, &engine, Search::gets(memory, policy), "")?;
                print_cells(&[
                    format!("{} (ours)", engine.name),
                    (*policy).to_owned(),
                    memory.name(),
                    nanos(read.mean_ns),
                    number(read.read_amp),
                    runs(&read),
                ]);
            }
        }
        session.remove_store(engine.name);
    }
    print(
        "\nRead amplification: bytes read from storage per byte of pairs that were read. Engines whose reads go through the\n\
         page cache need --memory-limit for a comparison.",
    );
    Ok(())
}
