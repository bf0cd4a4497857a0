//! TridentKV's figures: Lu et al., "TridentKV: A Read-Optimized LSM-Tree Based KV Store via Adaptive Indexing and
//! Space-Efficient Partitioning", TPDS 2022, sections 4.2 and 4.3.
//!
//! Their set-up: keys of 16 bytes, values of 1 KiB, 40 GB, caches of 5, 10 and 50 % of the data; an SSD of 637 k reads a second.

mod asynchronous;
mod devices;
mod indexes;
mod values;
mod ycsb;

use super::{Session, is_pleach, tune, words};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::report::print;

pub(super) use asynchronous::{fig15, fig18};
pub(super) use devices::fig13;
pub(super) use indexes::{fig16, fig17, fig19, fig20};
pub(super) use values::{fig10, fig11};
pub(super) use ycsb::fig14;

/// Keys here; theirs were 40 million.
const KEYS: u64 = 500_000;
const KEY_BYTES: u64 = 16;
/// The least memory of an engine: less would be a cache for none, and Pleach takes no less.
const MEMORY_MIN: u64 = 1 << 20;
const VALUE_BYTES: u64 = 1000;
/// Gets in flight of a thread that reads asynchronously.
const IN_FLIGHT: usize = 32;
/// Caches, in percent of the data.
const CACHES: [u64; 2] = [5, 50];
/// The cache of Figs. 10, 11 and 13.
const CACHE: u64 = 10;
/// The rival that the paper compares with.
const BASE: &str = "rocksdb";

/// Workloads on a store that is loaded once for each engine and kept.
struct Reads<'a> {
    workloads: &'a str,
    keys: u64,
    value_bytes: u64,
    cache_percent: u64,
    is_async: bool,
    /// Pleach's `simulated_device`, which delays reads from the page cache.
    device: Option<&'a str>,
    /// Other options of Pleach than its defaults.
    tunes: &'a [(&'a str, &'a str)],
}

impl Reads<'_> {
    fn run(&self, session: &mut Session<'_>, engine: &EngineFactory) -> Result<Vec<Record>> {
        let Self { workloads, keys, value_bytes, cache_percent, is_async, device, tunes } = *self;
        session.choose_memory()?;
        let memory = (keys * (value_bytes + KEY_BYTES) * cache_percent / 100).max(MEMORY_MIN);
        let seconds = session.seconds(3.0);
        let mut words = words(&format!(
            "--workloads {workloads} --keys {keys} --value-size {value_bytes} --memory {memory} --duration {seconds} --keep \
             --reuse",
        ));
        if let Some(device) = device {
            words.push(tune(engine.name, "simulated_device", device));
        } else if engine.capabilities.direct_reads {
            words.push("--direct".to_owned());
        }
        words.extend(tunes.iter().map(|(name, value)| tune(engine.name, name, value)));
        if is_async {
            words.push(format!("--in-flight={IN_FLIGHT}"));
        }
        session.run(engine.name, &words)
    }

    /// The record of the only workload.
    fn run_one(&self, session: &mut Session<'_>, engine: &EngineFactory) -> Result<Record> {
        let records = self.run(session, engine)?;
        records.into_iter().next().ok_or_else(|| "a record was expected".into())
    }
}

/// How many times as fast as the paper's rival, if that was run.
fn against(ops_per_s: f64, base: Option<f64>) -> String {
    base.map_or_else(|| "-".to_owned(), |base| format!("{:.2}x", ops_per_s / base))
}

/// How to have the rival in a figure, unless it is there.
fn print_hint(session: &Session<'_>) {
    if !session.engines.iter().any(|engine| engine.name == BASE) {
        print(
            "The paper's rival is not among the engines: bench-peers has it (`--engines rocksdb,pleach`).\n",
        );
    }
}

fn share_of_device(read: &Record) -> String {
    let share = read.device_reads_per_s.map(|device| read.ops_per_s / device);
    share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"))
}

fn print_row(cells: &[&str]) {
    let aligned: Vec<String> = cells.iter().map(|cell| format!("{cell:<15}")).collect();
    print(aligned.join("  ").trim_end());
}

fn print_cells(cells: &[String]) {
    print_row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
}
