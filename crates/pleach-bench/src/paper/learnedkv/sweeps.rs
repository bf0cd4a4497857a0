//! `LearnedKV`'s questions without a figure: how performance depends on the size of values and on the over-provision of space.

use super::phases::{PHASES, phases, write_amp};
use super::{
    BLOB_DBS, Best, KEY_BYTES, Run, is_blob_db, is_pleach, print_cells, print_hint, print_row, print_setup,
    rate_of, ratio, rivals_first,
};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, count, print};

/// Bytes of a value.
const SIZES: [u64; 8] = [128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
/// Bytes of all pairs, and the most keys.
const DATA_BYTES: u64 = 512_000_000;
/// Space beyond the pairs in percent.
const OVER_PROVISIONS: [u32; 5] = [10, 20, 30, 50, 100];
/// The sweeps have random keys.
const SET: &str = "binary";

/// Figures by the size of values.
pub(crate) fn values(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "values of 1016 B stand for all large ones; the text names the question and shows no figure.",
    );
    let keys_max = session.keys(super::KEYS);
    print(&format!("{} of pairs, at most {} keys.\n", bytes(DATA_BYTES as f64), count(keys_max as f64)));
    print_hint(session, is_blob_db, BLOB_DBS);
    print_head("value");
    for value_bytes in SIZES {
        let mut best = [Best::default(); 3];
        for engine in rivals_first(session, is_blob_db) {
            let keys = session.keys((DATA_BYTES / (value_bytes + KEY_BYTES)).min(super::KEYS));
            let workloads = phases("readupdate50");
            let run = Run { value_bytes, keys, further: "--warmup 0", ..Run::new(session, &workloads, SET) };
            let records = run.records(session, &engine)?;
            row(&engine, &bytes(value_bytes as f64), &records, &mut best)?;
        }
    }
    Ok(())
}

/// Figures by the space that an engine may take.
pub(crate) fn space(session: &mut Session<'_>) -> Result<()> {
    print_setup(session, "30 % throughout; the text names the question and shows no figure.");
    print_hint(session, is_blob_db, BLOB_DBS);
    print_head("space");
    for percent in OVER_PROVISIONS {
        let mut best = [Best::default(); 3];
        for engine in rivals_first(session, is_blob_db) {
            let target = format!("{:.2}", 1.0 + f64::from(percent) / 100.0);
            let Some(setting) = space_setting(engine.name) else {
                print_row(&[&target, engine.name, "has no setting for space"]);
                continue;
            };
            let workloads = phases("readupdate50");
            let tunes = [(setting, &*target)];
            let run = Run { tunes: &tunes, further: "--warmup 0", ..Run::new(session, &workloads, SET) };
            match run.records(session, &engine) {
                Ok(records) => row(&engine, &target, &records, &mut best)?,
                Err(error) if session.interrupt.is_asked() => return Err(error),
                Err(error) => print_row(&[&target, engine.name, &error.to_string()]),
            }
        }
    }
    Ok(())
}

/// An engine's setting for the space of its files over that of the live pairs.
fn space_setting(engine: &str) -> Option<&'static str> {
    match engine {
        _ if is_blob_db(engine) => Some("blob_space_target"),
        _ if is_pleach(engine) => Some("space_target"),
        _ => None,
    }
}

/// The head of a table whose first column is `first`.
fn print_head(first: &str) {
    print_row(&[
        first,
        "engine",
        "load, puts/s",
        "reads/s",
        "writes/s",
        "WA of P3",
        "disk, peak",
        "space, peak",
    ]);
}

fn row(engine: &EngineFactory, first: &str, records: &[Record], best: &mut [Best; 3]) -> Result<()> {
    let [load, .., last] = records else { return Err("a record of each phase was expected".into()) };
    let is_rival = is_blob_db(engine.name);
    // The first phase after the load is the first one with garbage.
    let peak = records.iter().skip(records.len() - PHASES).map(|record| record.peak_disk_bytes).max();
    let peak = peak.unwrap_or(0) as f64;
    print_cells(&[
        first.to_owned(),
        engine.name.to_owned(),
        best[0].compare(Some(load.ops_per_s), is_rival),
        best[1].compare(rate_of(last, "get"), is_rival),
        best[2].compare(rate_of(last, "put"), is_rival),
        ratio(write_amp(last)),
        bytes(peak),
        ratio((last.live_bytes > 0).then(|| peak / last.live_bytes as f64)),
    ]);
    Ok(())
}
