//! TridentKV, Fig. 13: reads on this device, and on two that are simulated by the latency of their reads.

use super::{CACHE, IN_FLIGHT, Reads, VALUE_BYTES, is_pleach, print_cells, print_row};
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, count, nanos, print};

/// Keys here: 203 MB.
const KEYS: u64 = 200_000;

/// Names of the rows, and Pleach's `simulated_device`.
const DEVICES: [(&str, Option<&str>); 3] =
    [("this device", None), ("SATA, simulated", Some("sata")), ("HDD, simulated", Some("hdd"))];

/// The figure.
pub(crate) fn fig13(session: &mut Session<'_>) -> Result<()> {
    print(&format!(
        "Theirs, in words: TridentKV's random reads are 3 to 6 times, its sequential ones 1.3 times as fast as RocksDB's on a disk, a\n\
         SATA SSD and an NVMe SSD, most on the last. Ours: {} pairs of 1016 B past the page cache, cache {CACHE} %, one thread;\n\
         asynchronous: {IN_FLIGHT} gets in flight. SATA and HDD are simulated: each read of a file, from the page cache, takes 0.11 ms, 11 at a time, or\n\
         12.7 ms, one at a time. A sequential read pays it too, which a disk's head would not; their bandwidth is not simulated.\n\
         Only Pleach runs on them.\n",
        count(session.keys(KEYS) as f64),
    ));
    print_row(&[
        "device",
        "engine",
        "read",
        "asynchronous",
        "a second",
        "against off",
        "bytes a second",
        "p50",
        "p99",
    ]);
    for engine in session.engines.clone() {
        for (name, simulated) in DEVICES {
            if simulated.is_some() && !is_pleach(engine.name) {
                continue;
            }
            rows(session, &engine, name, simulated)?;
        }
        session.remove_store(engine.name);
    }
    Ok(())
}

/// An engine's rows on a device.
fn rows(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    device: &str,
    simulated: Option<&str>,
) -> Result<()> {
    let keys = session.keys(KEYS);
    let reads = Reads {
        workloads: "readrandom",
        keys,
        value_bytes: VALUE_BYTES,
        cache_percent: CACHE,
        is_async: false,
        device: simulated,
        tunes: &[],
    };
    let mut off = None;
    for (name, workloads, is_async) in
        [("random", "readrandom", false), ("random", "readrandom", true), ("sequential", "readseq", false)]
    {
        if is_async && !engine.capabilities.async_get {
            continue;
        }
        let record = Reads { workloads, is_async, ..reads }.run_one(session, engine)?;
        let is_random = workloads == "readrandom";
        // A sequential read is timed by groups of entries.
        let latency = |ns: u64| if is_random { nanos(ns as f64) } else { "-".to_owned() };
        print_cells(&[
            device.to_owned(),
            engine.name.to_owned(),
            name.to_owned(),
            if is_async { "on" } else { "off" }.to_owned(),
            count(record.ops_per_s),
            if is_random {
                format!("{:.2}x", record.ops_per_s / *off.get_or_insert(record.ops_per_s))
            } else {
                "-".to_owned()
            },
            bytes(record.user_read_bytes as f64 / record.seconds),
            latency(record.p50_ns),
            latency(record.p99_ns),
        ]);
    }
    Ok(())
}
