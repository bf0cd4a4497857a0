//! Write amplification and space of values apart: a load in random order, and overwrites of four times the data. The paper
//! has no such figure; its garbage collection copies all live values each time.

use super::{
    BLOB_DBS, Run, SETS, is_blob_db, print_cells, print_hint, print_row, print_setup, ratio, rivals_first,
};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, count, print};

/// Overwrites for each key.
const OVERWRITES: u64 = 4;
/// How the keys of the overwrites are chosen.
const CHOICES: [&str; 3] = ["uniform", "zipfian-keys", "zipfian"];

/// The figures.
pub(crate) fn overwrites(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "none. By a simulation their collection has a write amplification of 4.4 at 1.3 times the space, uniform or Zipfian.",
    );
    print_hint(session, is_blob_db, BLOB_DBS);
    print_row(&[
        "engine",
        "keys",
        "writes",
        "puts/s",
        "settled puts/s",
        "WA, engine's",
        "WA, system's",
        "disk, peak",
        "space, peak",
        "space, end",
    ]);
    let (keys, ops) = (session.keys(super::KEYS), OVERWRITES * session.keys(super::KEYS));
    let (_, set) = SETS[1];
    for choice in CHOICES {
        for engine in rivals_first(session, is_blob_db) {
            let workloads = format!("fillrandom,overwrite:{ops}");
            let run = Run { keys, distribution: choice, ..Run::new(session, &workloads, set) };
            let records = run.records(session, &engine)?;
            let [load, overwrite] = &records[..] else { return Err("two records were expected".into()) };
            if choice == CHOICES[0] {
                row(&engine, "load", load);
            }
            row(&engine, choice, overwrite);
        }
    }
    print(
        "\nWA: bytes written over the user's bytes, log and settling included, as the engine counts them and as the system\n\
         counts dirtied pages. Space: bytes on disk over those of live pairs; peaks are samples of every 100 ms.\n\
         zipfian: as YCSB draws it, from ten billion items, so two fifths of the draws from a million keys are spread evenly;\n\
         zipfian-keys: from the keys themselves.",
    );
    Ok(())
}

fn row(engine: &EngineFactory, writes: &str, record: &Record) {
    print_cells(&[
        engine.name.to_owned(),
        "random".to_owned(),
        writes.to_owned(),
        count(record.ops_per_s),
        count(record.ops as f64 / (record.seconds + record.settle_s)),
        ratio(record.write_amp_engine),
        ratio(record.write_amp),
        bytes(record.peak_disk_bytes as f64),
        ratio(record.peak_space_amp),
        ratio(record.space_amp),
    ]);
}
