//! `LearnedKV`, Figs. 8, 9 and 12: a load and three phases of gets and updates, against RocksDB with blob files and against
//! B-trees. The figures are bars; quoted is what the text says.

use super::{
    B_TREES, BLOB_DBS, Best, Run, SETS, bytes_or_dash, detail, is_b_tree, is_blob_db, print_cells,
    print_hint, print_row, print_setup, rate_of, ratio, rivals_first, value_file_bytes,
};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, nanos};

/// Phases after the load.
pub(super) const PHASES: usize = 3;
/// Reads and writes of `LearnedKV` over RocksDB in each phase, the load first.
const FIG_8: [[&str; 2]; PHASES + 1] =
    [["-", "about 1x"], ["1.08x", "1.14x"], ["1.32x", "1.31x"], ["1.32x", "1.31x"]];
/// Mixes of Fig. 9: reads to writes, and the workload.
const MIXES: [(&str, &str); 4] =
    [("7:3", "readupdate70"), ("5:5", "readupdate50"), ("3:7", "readupdate30"), ("0:10", "overwrite")];

/// The workloads of all phases.
pub(super) fn phases(mix: &str) -> String {
    format!("fillrandom{}", format!(",{mix}").repeat(PHASES))
}

/// The load and three phases of `mix`.
pub(super) fn run_phases(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    set: &str,
    mix: &str,
    tunes: &[(&str, &str)],
) -> Result<Vec<Record>> {
    let workloads = phases(mix);
    // The phases follow each other, as theirs.
    let run = Run { tunes, further: "--warmup 0", ..Run::new(session, &workloads, set) };
    let records = run.records(session, engine)?;
    if records.len() == PHASES + 1 { Ok(records) } else { Err("a record of each phase was expected".into()) }
}

/// The record of the last phase, which is the one that the paper reports.
pub(super) fn last_phase(records: &[Record]) -> Result<&Record> {
    records.last().ok_or_else(|| "a record was expected".into())
}

/// Bytes written over the user's bytes, as the engine counts them or else as the system does.
pub(super) fn write_amp(record: &Record) -> Option<f64> {
    record.write_amp_engine.or(record.write_amp)
}

/// Operations a second, with the time that the store needs to settle after them: engines that put work off do not win by it.
fn with_settling(record: &Record) -> f64 {
    record.ops as f64 / (record.seconds + record.settle_s)
}

/// Throughput of each phase.
pub(crate) fn fig8(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "the load is as fast as RocksDB's; P1 converts in its middle; P2 and P3 gain throughout. Half gets, half updates.",
    );
    print_hint(session, is_blob_db, BLOB_DBS);
    print_row(&[
        "engine",
        "keys",
        "phase",
        "operations/s",
        "reads/s",
        "theirs",
        "writes/s",
        "theirs",
        "get p99",
        "put p99.9",
        "settled after",
        "with settling",
        "WA",
        "disk, peak",
        "disk, end",
        "space, end",
        "value files",
        "SSTs",
    ]);
    for (name, set) in SETS {
        let mut best = [[Best::default(); 4]; PHASES + 1];
        for engine in rivals_first(session, is_blob_db) {
            let records = run_phases(session, &engine, set, "readupdate50", &[])?;
            for (number, record) in records.iter().enumerate() {
                phase_row(&engine, [name, &format!("P{number}")], record, FIG_8[number], &mut best[number]);
            }
        }
    }
    Ok(())
}

fn phase_row(
    engine: &EngineFactory,
    cells: [&str; 2],
    record: &Record,
    theirs: [&str; 2],
    best: &mut [Best; 4],
) {
    let is_rival = is_blob_db(engine.name);
    let tail = |kind, of: fn(&crate::measure::Latency) -> u64| {
        record.by_kind.get(kind).map_or_else(|| "-".to_owned(), |latency| nanos(of(latency) as f64))
    };
    print_cells(&[
        engine.name.to_owned(),
        cells[0].to_owned(),
        cells[1].to_owned(),
        best[0].compare(Some(record.ops_per_s), is_rival),
        best[1].compare(rate_of(record, "get"), is_rival),
        theirs[0].to_owned(),
        best[2].compare(rate_of(record, "put"), is_rival),
        theirs[1].to_owned(),
        tail("get", |latency| latency.p99_ns),
        tail("put", |latency| latency.p999_ns),
        nanos(record.settle_s * 1e9),
        best[3].compare(Some(with_settling(record)), is_rival),
        ratio(write_amp(record)),
        bytes(record.peak_disk_bytes as f64),
        bytes(record.final_disk_bytes as f64),
        ratio(record.space_amp),
        bytes_or_dash(value_file_bytes(record)),
        bytes_or_dash(detail(record, "sst_bytes")),
    ]);
}

/// Throughput by the share of reads.
pub(crate) fn fig9(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "1.22x to 1.43x of RocksDB in all mixes, most when balanced. The last of three phases.",
    );
    print_hint(session, is_blob_db, BLOB_DBS);
    print_row(&[
        "engine",
        "keys",
        "reads:writes",
        "operations/s",
        "theirs",
        "reads/s",
        "writes/s",
        "settled after",
        "with settling",
        "WA",
        "disk, peak",
        "disk, end",
        "space, end",
    ]);
    for (name, set) in SETS {
        for (shares, mix) in MIXES {
            let mut best = [Best::default(); 4];
            for engine in rivals_first(session, is_blob_db) {
                let records = run_phases(session, &engine, set, mix, &[])?;
                mix_row(&engine, [name, shares], last_phase(&records)?, &mut best, is_blob_db(engine.name));
            }
        }
    }
    Ok(())
}

fn mix_row(engine: &EngineFactory, cells: [&str; 2], record: &Record, best: &mut [Best; 4], is_rival: bool) {
    let theirs = if is_rival { "1x" } else { "1.22x to 1.43x" };
    print_cells(&[
        engine.name.to_owned(),
        cells[0].to_owned(),
        cells[1].to_owned(),
        best[0].compare(Some(record.ops_per_s), is_rival),
        theirs.to_owned(),
        best[1].compare(rate_of(record, "get"), is_rival),
        best[2].compare(rate_of(record, "put"), is_rival),
        nanos(record.settle_s * 1e9),
        best[3].compare(Some(with_settling(record)), is_rival),
        ratio(write_amp(record)),
        bytes(record.peak_disk_bytes as f64),
        bytes(record.final_disk_bytes as f64),
        ratio(record.space_amp),
    ]);
}

/// Throughput against B-trees.
pub(crate) fn fig12(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "more than 5x of a B+-tree that has values apart too and its leaves on storage, in reads and in writes.",
    );
    print_hint(session, is_b_tree, B_TREES);
    print_row(&["engine", "keys", "reads/s", "theirs", "writes/s", "theirs", "disk, peak", "disk, end"]);
    for (name, set) in SETS {
        let mut best = [Best::default(); 2];
        for engine in rivals_first(session, is_b_tree) {
            let records = run_phases(session, &engine, set, "readupdate50", &[])?;
            let (record, is_rival) = (last_phase(&records)?, is_b_tree(engine.name));
            let theirs = if is_rival { "1x" } else { "more than 5x" };
            print_cells(&[
                engine.name.to_owned(),
                name.to_owned(),
                best[0].compare(rate_of(record, "get"), is_rival),
                theirs.to_owned(),
                best[1].compare(rate_of(record, "put"), is_rival),
                theirs.to_owned(),
                bytes(record.peak_disk_bytes as f64),
                bytes(record.final_disk_bytes as f64),
            ]);
        }
    }
    Ok(())
}
