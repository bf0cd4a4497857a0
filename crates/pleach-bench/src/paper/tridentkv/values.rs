//! TridentKV, Figs. 10 and 11: random and sequential reads by the size of values.

use super::{
    BASE, CACHE, IN_FLIGHT, KEY_BYTES, Reads, against, print_cells, print_hint, print_row, share_of_device,
};
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, count, nanos, print};

/// Bytes of a value.
const SIZES: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];
/// Bytes of all pairs here, and the most keys; theirs were 40 GB.
const DATA_BYTES: u64 = 256_000_000;
const KEYS_MAX: u64 = 2_000_000;

/// Keys with values of `value_bytes`.
fn keys(session: &Session<'_>, value_bytes: u64) -> u64 {
    session.keys((DATA_BYTES / (value_bytes + KEY_BYTES)).min(KEYS_MAX))
}

fn print_conditions(session: &Session<'_>, theirs: &str) {
    print(&format!(
        "Theirs, in words: {theirs}\n\
         Ours: {} of pairs, at most {} keys, past the page cache, cache {CACHE} % of the data, one thread.\n",
        bytes(DATA_BYTES as f64),
        count(KEYS_MAX as f64),
    ));
    print_hint(session);
}

/// Random reads.
pub(crate) fn fig10(session: &mut Session<'_>) -> Result<()> {
    print_conditions(session, "TridentKV is 7 to 12 times as fast as RocksDB at every size.");
    print(&format!("Asynchronous: {IN_FLIGHT} gets in flight.\n"));
    print_row(&[
        "value",
        "engine",
        "asynchronous",
        "gets a second",
        "against RocksDB",
        "theirs",
        "CPU/get",
        "p99",
        "of device",
    ]);
    for value_bytes in SIZES {
        let mut base = None;
        for engine in session.engines.clone() {
            let measured = random_reads(session, &engine, value_bytes, &mut base);
            session.remove_store(engine.name);
            measured?;
        }
    }
    Ok(())
}

/// An engine's rows for one size. `base` becomes the rate of the rival.
fn random_reads(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    value_bytes: u64,
    base: &mut Option<f64>,
) -> Result<()> {
    let keys = keys(session, value_bytes);
    for is_async in [false, true] {
        if is_async && !engine.capabilities.async_get {
            continue;
        }
        let reads = Reads {
            workloads: "readrandom",
            keys,
            value_bytes,
            cache_percent: CACHE,
            is_async,
            device: None,
            tunes: &[],
        };
        let read = reads.run_one(session, engine)?;
        if engine.name == BASE {
            *base = Some(read.ops_per_s);
        }
        print_cells(&[
            bytes(value_bytes as f64),
            engine.name.to_owned(),
            if is_async { "on" } else { "off" }.to_owned(),
            count(read.ops_per_s),
            against(read.ops_per_s, *base),
            "7x to 12x".to_owned(),
            nanos(read.cpu_us_per_op * 1e3),
            nanos(read.p99_ns as f64),
            share_of_device(&read),
        ]);
    }
    Ok(())
}

/// Sequential reads.
pub(crate) fn fig11(session: &mut Session<'_>) -> Result<()> {
    print_conditions(
        session,
        "TridentKV is 1.3 to 6.5 times as fast as RocksDB, the more the larger the values.",
    );
    print_row(&["value", "engine", "entries a second", "bytes a second", "against RocksDB", "theirs"]);
    for value_bytes in SIZES {
        let mut base = None;
        let mut engines = session.engines.clone();
        engines.sort_by_key(|engine| engine.name != BASE);
        for engine in engines {
            let keys = keys(session, value_bytes);
            let reads = Reads {
                workloads: "readseq",
                keys,
                value_bytes,
                cache_percent: CACHE,
                is_async: false,
                device: None,
                tunes: &[],
            };
            let read = reads.run_one(session, &engine);
            session.remove_store(engine.name);
            let read = read?;
            if engine.name == BASE {
                base = Some(read.ops_per_s);
            }
            print_cells(&[
                bytes(value_bytes as f64),
                engine.name.to_owned(),
                count(read.ops_per_s),
                bytes(read.user_read_bytes as f64 / read.seconds),
                against(read.ops_per_s, base),
                "1.3x to 6.5x".to_owned(),
            ]);
        }
    }
    Ok(())
}
