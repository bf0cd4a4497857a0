//! `LearnedKV`, Table 2: the time of a read through the bottom, through the upper runs, and of the value, from outside.
//!
//! The first quarter of the load is overwritten after a conversion: gets of it end in the upper runs or the memtable, gets of
//! the rest pass the filters of the upper runs and end in the bottom. The value's time is what a get takes more than one in a
//! store of the same keys whose values are as short as pointers.

use super::{Run, SETS, print_cells, print_row, print_setup, ratio};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{nanos, print};

/// Bytes of a value that takes the place of a pointer.
const POINTER_BYTES: u64 = 10;
/// One in so many keys is updated after the conversion.
const UPDATED_SHARE: u64 = 4;

/// Where a get ends, the option that restricts the keys to it, and theirs.
const PARTS: [(&str, &str, &str); 2] =
    [("upper runs", "--loaded-before", "58.0 us"), ("bottom", "--loaded-after", "37.5 us")];

/// The table.
pub(crate) fn table2(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "of reads in P3, 26 % end in the learned index, and more than 76 % consult RocksDB; loading the value takes\n\
         11.7 us; a read takes 66.7 us in all, a write 165.6 us.",
    );
    print_row(&[
        "engine",
        "keys",
        "read through",
        "mean get",
        "of it the value",
        "without value",
        "theirs without",
        "reads of files",
        "pages of device",
    ]);
    for (name, set) in SETS {
        for engine in session.engines.clone() {
            let whole = gets(session, &engine, set, super::VALUE_BYTES)?;
            let short = gets(session, &engine, set, POINTER_BYTES)?;
            for ((whole, short), (part, _, theirs)) in whole.iter().zip(&short).zip(PARTS) {
                let ops = whole.ops.max(1) as f64;
                let reads = ["lookup_reads", "value_reads"]
                    .map(|name| Some(whole.extra.get(&format!("{name}_meanwhile"))? / ops));
                let [blocks, values] = reads;
                print_cells(&[
                    engine.name.to_owned(),
                    name.to_owned(),
                    part.to_owned(),
                    nanos(whole.mean_ns),
                    nanos((whole.mean_ns - short.mean_ns).max(0.0)),
                    nanos(short.mean_ns),
                    theirs.to_owned(),
                    ratio(blocks.zip(values).map(|(blocks, values)| blocks + values)),
                    ratio(Some(whole.storage_read_bytes as f64 / 4096.0 / ops)),
                ]);
            }
        }
    }
    print(
        "\nReads of files, of blocks and of values, and pages of 4 KiB of the device are those of a get of the whole value;\n\
         those of files as far as the engine counts them. With --uncached the memory is 10 % of the\n\
         pairs in each store, so that more of the short ones is cached.",
    );
    Ok(())
}

/// Gets of the updated and of the converted keys, with values of `value_bytes`.
fn gets(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    set: &str,
    value_bytes: u64,
) -> Result<Vec<Record>> {
    let measured = keep_and_get(session, engine, set, value_bytes);
    session.remove_store(engine.name);
    measured
}

fn keep_and_get(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    set: &str,
    value_bytes: u64,
) -> Result<Vec<Record>> {
    let convert = if engine.capabilities.compaction { ",convert" } else { "" };
    let updated = (session.keys(super::KEYS) / UPDATED_SHARE).max(1);
    let load = format!("fillrandom{convert}");
    let mut run = |workloads: &str, further: &str| {
        let run = Run { value_bytes, distribution: "uniform", further, ..Run::new(session, workloads, set) };
        run.records(session, engine)
    };
    run(&load, "--keep")?;
    run("overwriteonce", &format!("--keep --reuse --loaded-before {updated}"))?;
    let mut records = Vec::new();
    for (_, restriction, _) in PARTS {
        records.extend(run("readrandom", &format!("--keep --reuse {restriction} {updated}"))?);
    }
    Ok(records)
}
