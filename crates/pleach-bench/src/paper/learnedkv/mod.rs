//! `LearnedKV`'s figures: Wang and Du, "LearnedKV: Integrating LSM and Learned Index for Superior Performance on SSD", 2024,
//! sections 3.1 and 5.
//!
//! Their set-up: a million pairs of 8 + 1016 bytes, Zipfian choices of exponent 0.99, space for 1.3 times the pairs, 62 GB of
//! memory, an SSD. Their rival is RocksDB with the same value log and the same garbage collection, without the learned index.
//! `HashKV` (their Fig. 11) cannot be obtained, so that figure is left out.

mod amplification;
mod filters;
mod latency;
mod phases;
mod scans;
mod space;
mod stages;
mod sweeps;
mod timing;

use super::{Session, filter_setting, is_pleach, tune, words};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::report::{bytes, count, print};

pub(super) use amplification::overwrites;
pub(super) use filters::fig13;
pub(super) use latency::latency;
pub(super) use phases::{fig8, fig9, fig12};
pub(super) use scans::fig10;
pub(super) use space::table1;
pub(super) use stages::fig3;
pub(super) use sweeps::{space, values};
pub(super) use timing::table2;

/// Keys, theirs and ours.
const KEYS: u64 = 1_000_000;
const KEY_BYTES: u64 = 8;
const VALUE_BYTES: u64 = 1016;
/// Key sets: the paper's keys are dense, those of most users are not.
const SETS: [(&str, &str); 2] = [("dense", "dense8"), ("random", "binary")];
/// Memory of a cached run over the bytes of the pairs: enough for all pairs, write buffers and hidden versions.
const CACHED: u64 = 2;
/// Memory of an uncached run in percent of the pairs.
const UNCACHED_PERCENT: u64 = 10;
/// The least memory of an engine: write buffers alone take that much.
const MEMORY_MIN: u64 = 4 << 20;

/// Whether it is RocksDB with blob files, the rival that has values apart too.
fn is_blob_db(engine: &str) -> bool {
    engine.starts_with("rocksdb-blob")
}

/// Whether it is a B-tree.
fn is_b_tree(engine: &str) -> bool {
    matches!(engine, "lmdb" | "redb" | "wiredtiger")
}

/// Workloads on one store.
struct Run<'a> {
    workloads: &'a str,
    key_set: &'a str,
    value_bytes: u64,
    keys: u64,
    /// How keys are chosen.
    distribution: &'a str,
    /// Settings by the engine's own names.
    tunes: &'a [(&'a str, &'a str)],
    /// Further words of the command line.
    further: &'a str,
}

impl<'a> Run<'a> {
    /// Pairs as the paper's.
    fn new(session: &Session<'_>, workloads: &'a str, key_set: &'a str) -> Self {
        let keys = session.keys(KEYS);
        Self {
            workloads,
            key_set,
            value_bytes: VALUE_BYTES,
            keys,
            distribution: "zipfian",
            tunes: &[],
            further: "",
        }
    }

    /// The records of all workloads. The store is removed unless the words say otherwise.
    fn records(&self, session: &mut Session<'_>, engine: &EngineFactory) -> Result<Vec<Record>> {
        let Self { workloads, key_set, value_bytes, keys, distribution, tunes, further } = *self;
        let pairs = keys * (KEY_BYTES + value_bytes);
        let percent = if session.args.uncached { UNCACHED_PERCENT } else { 100 * CACHED };
        let memory = (pairs * percent / 100).max(MEMORY_MIN);
        let mut words = words(&format!(
            "--workloads {workloads} --keys {keys} --key-set {key_set} --value-size {value_bytes} --memory {memory} \
             --distribution {distribution} {further}",
        ));
        if session.args.uncached && engine.capabilities.direct_reads {
            words.push("--direct".to_owned());
        }
        words.extend(tunes.iter().map(|(name, value)| tune(engine.name, name, value)));
        session.run(engine.name, &words)
    }
}

/// The engines, those first that the others are compared with.
fn rivals_first(session: &Session<'_>, is_rival: fn(&str) -> bool) -> Vec<EngineFactory> {
    let mut engines = session.engines.clone();
    engines.sort_by_key(|engine| !is_rival(engine.name));
    engines
}

/// The best figure of the rivals that have run.
#[derive(Clone, Copy, Default)]
struct Best(Option<f64>);

impl Best {
    /// A rate with its multiple of the best rival's. A rival's own rate may become the best one.
    fn compare(&mut self, rate: Option<f64>, is_rival: bool) -> String {
        let Some(rate) = rate else { return "-".to_owned() };
        if is_rival {
            self.0 = Some(self.0.map_or(rate, |best| best.max(rate)));
            return count(rate);
        }
        self.0.map_or_else(|| count(rate), |best| format!("{} ({:.2}x)", count(rate), rate / best))
    }
}

/// Operations of a kind that a thread would do in a second if it did nothing else, times the threads.
fn rate_of(record: &Record, kind: &str) -> Option<f64> {
    let latency = record.by_kind.get(kind).filter(|latency| latency.mean_ns > 0.0)?;
    Some(record.threads as f64 * 1e9 / latency.mean_ns)
}

fn detail(record: &Record, name: &str) -> Option<u64> {
    record.engine_stats.details.get(name).copied()
}

/// Bytes of the files in which values are apart.
fn value_file_bytes(record: &Record) -> Option<u64> {
    detail(record, "value_file_bytes").or_else(|| detail(record, "blob_file_bytes"))
}

fn bytes_or_dash(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| bytes(number as f64))
}

/// A number of two decimals, or a dash.
fn ratio(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"))
}

/// What was run.
fn print_setup(session: &Session<'_>, theirs: &str) {
    let memory = match (session.args.memory, session.args.uncached) {
        (Some(memory), _) => format!("{} of memory", bytes(memory as f64)),
        (None, false) => format!("memory {CACHED} times the pairs"),
        (None, true) => format!("memory {UNCACHED_PERCENT} % of the pairs, reads past the page cache"),
    };
    print(&format!(
        "Theirs, in words: {theirs}\nOurs: {} pairs of {} B unless a column says otherwise, {memory}, one thread unless\n\
         it says more; workloads settle before the next.\n",
        count(session.keys(KEYS) as f64),
        KEY_BYTES + VALUE_BYTES,
    ));
    let through_page_cache =
        session.engines.iter().filter(|engine| session.args.uncached && !engine.capabilities.direct_reads);
    for engine in through_page_cache {
        print(&format!("{} reads through the page cache: --memory-limit bounds it.\n", engine.name));
    }
}

/// How to have the rivals, unless one is there.
fn print_hint(session: &Session<'_>, is_rival: fn(&str) -> bool, names: &str) {
    if !session.engines.iter().any(|engine| is_rival(engine.name)) {
        print(&format!(
            "No rival is among the engines: bench-peers has them (`--engines {names},pleach-separated,pleach-inline`).\n"
        ));
    }
}

const BLOB_DBS: &str = "rocksdb-blob,rocksdb-blob-space";
const B_TREES: &str = "lmdb,redb,wiredtiger";

fn print_row(cells: &[&str]) {
    let aligned: Vec<String> = cells.iter().map(|cell| format!("{cell:<17}")).collect();
    print(aligned.join("  ").trim_end());
}

fn print_cells(cells: &[String]) {
    print_row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
}
