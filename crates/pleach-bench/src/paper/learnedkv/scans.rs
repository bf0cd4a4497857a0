//! `LearnedKV`, Fig. 10: range scans after no, half as many and as many updates as there are keys, and after a conversion.

use super::{
    BLOB_DBS, Best, KEY_BYTES, Run, SETS, VALUE_BYTES, is_blob_db, print_cells, print_hint, print_row,
    print_setup, rivals_first,
};
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, nanos};

/// Bytes that a scan reads, as theirs.
const SCAN_BYTES: u64 = 500_000;
/// Keys for each scan of a measurement, so that a million keys have a thousand scans as theirs; and the fewest scans.
const KEYS_A_SCAN: u64 = 1000;
const SCANS_MIN: u64 = 100;
/// What has come before the scans, and `LearnedKV` over RocksDB.
const STATES: [(&str, &str); 4] = [
    ("no updates", "4.69x"),
    ("0.5 a key", "about 3.6x"),
    ("1 a key", "about 3.6x"),
    ("1 a key, converted", "not measured"),
];

/// The figure.
pub(crate) fn fig10(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "all stores collect garbage after the load; updates cost 34 % of the rate, because the LSM is scanned too.",
    );
    print_hint(session, is_blob_db, BLOB_DBS);
    print_row(&["engine", "keys", "updates", "scans/s", "theirs", "bytes/s", "p99", "device bytes a scan"]);
    for (name, set) in SETS {
        let mut best = [Best::default(); STATES.len()];
        for engine in rivals_first(session, is_blob_db) {
            rows(session, &engine, name, set, &mut best)?;
        }
    }
    Ok(())
}

/// An engine's rows for a key set. One that has no call to merge everything leaves the conversions out.
fn rows(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    name: &str,
    set: &str,
    best: &mut [Best; STATES.len()],
) -> Result<()> {
    let keys = session.keys(super::KEYS);
    let (scans, half) = ((keys / KEYS_A_SCAN).max(SCANS_MIN), (keys / 2).max(1));
    let seeks = format!("seekrandom:{scans}");
    let convert = if engine.capabilities.compaction { ",convert" } else { "" };
    let last = if engine.capabilities.compaction { format!(",convert,{seeks}") } else { String::new() };
    let workloads =
        format!("fillrandom{convert},{seeks},overwrite:{half},{seeks},overwrite:{half},{seeks}{last}");
    let further = format!("--scan-len {}", SCAN_BYTES / (KEY_BYTES + VALUE_BYTES));
    let run = Run { further: &further, ..Run::new(session, &workloads, set) };
    let records = run.records(session, engine)?;
    let scans = records.iter().filter(|record| record.workload == "seekrandom");
    for ((scan, (state, theirs)), best) in scans.zip(STATES).zip(best) {
        print_cells(&[
            engine.name.to_owned(),
            name.to_owned(),
            state.to_owned(),
            best.compare(Some(scan.ops_per_s), is_blob_db(engine.name)),
            theirs.to_owned(),
            bytes(scan.user_read_bytes as f64 / scan.seconds),
            nanos(scan.p99_ns as f64),
            bytes(scan.storage_read_bytes as f64 / scan.ops.max(1) as f64),
        ]);
    }
    Ok(())
}
