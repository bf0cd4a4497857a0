//! SifrDB, Fig. 12: SST-level filters.

use super::{MEMTABLE_BYTES, SST_BYTES, filter_setting, print_row, scaled, tune, words};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, count, nanos, print};

/// Keys here; theirs were 10 GB.
const FILTER_KEYS: u64 = 1_000_000;

/// Bits per key; the first is the base of the others.
const BITS: [u64; 5] = [0, 5, 10, 15, 20];

/// Filters.
pub(crate) fn fig12(session: &mut Session<'_>) -> Result<()> {
    let keys = session.keys(FILTER_KEYS);
    print(&format!(
        "Theirs: 10 GB; at 10 bits per key reads take 1 / 3.7 of the time without filters, for 106 MB of memory (1.06 %\n\
         of the data); more bits gain little. Ours: {} pairs of 123 B, write buffer {}, files of {}, memory for blocks\n\
         8 MiB; random reads past the page cache by engines that can.\n",
        count(keys as f64),
        bytes(MEMTABLE_BYTES as f64),
        bytes(SST_BYTES as f64),
    ));
    print_row(&["store", "bits per key", "mean get", "against none", "index and filters", "share of data"]);
    print_row(&["SifrDB (theirs)", "10", "figure only", "3.7x faster", "106 MB, filters", "1.06 %"]);
    let mut result = Ok(());
    for engine in session.engines.clone() {
        if let Err(error) = rows(session, &engine, keys) {
            print_row(&[&format!("{} (ours)", engine.name), "failed"]);
            result = Err(error);
        }
    }
    print(
        "\nThe memory is that of indexes and filters together; with no bits it is that of the indexes alone. Stores are\n\
         read as the load has left them, without settling, for a settled store has little to filter.",
    );
    result
}

/// An engine's rows.
fn rows(session: &mut Session<'_>, engine: &EngineFactory, keys: u64) -> Result<()> {
    let name = engine.name;
    let mut without = None;
    for bits in BITS {
        let setting = filter_setting(name);
        let mut words = words(&format!(
            "--workloads fillrandom,readrandom --keys {keys} --ops {} --key-set user --value-size uniform:1-200 \
             --memory 8MiB --no-settle",
            (keys / 10).max(100),
        ));
        words.extend(scaled(name));
        words.extend(setting.map(|setting| tune(name, setting, &bits.to_string())));
        if engine.capabilities.direct_reads {
            words.push("--direct".to_owned());
        }
        let records = session.run(name, &words)?;
        let Some(read) = records.last() else { return Err("a record was expected".into()) };
        let base = *without.get_or_insert(read.mean_ns);
        print_read(read, setting.map(|_| bits), base);
        if setting.is_none() {
            break;
        }
    }
    Ok(())
}

/// `base` is the mean time without filters.
fn print_read(read: &Record, bits: Option<u64>, base: f64) {
    let memory = read.engine_stats.index_filter_bytes.map(|bytes| bytes as f64);
    let share = memory.map(|memory| 100.0 * memory / read.live_bytes.max(1) as f64);
    print_row(&[
        &format!("{} (ours)", read.engine),
        &bits.map_or_else(|| "has no filters".into(), |bits| bits.to_string()),
        &nanos(read.mean_ns),
        &format!("{:.2}x faster", base / read.mean_ns.max(1.0)),
        &memory.map_or_else(|| "not reported".into(), bytes),
        &share.map_or_else(|| "not reported".into(), |share| format!("{share:.2} %")),
    ]);
}
