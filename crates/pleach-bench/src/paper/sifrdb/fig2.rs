//! SifrDB, Figs. 2 and 3: write amplification, storage and read latency against the growth factor.
//!
//! Their set-up differs from that of section 5: pairs of 116 bytes, about 90 GB, LevelDB for trees and Size-Tiered for
//! forests.

use super::{MEMTABLE_BYTES, amplification, number, print_row, scaled, tune};
use crate::bench::Record;
use crate::engine::Result;
use crate::paper::Session;
use crate::report::{bytes, count, nanos, print};

/// Keys here: 232 MB, 1,800 write buffers.
const KEYS: u64 = 2_000_000;
const PAIR_BYTES: u64 = 116;
/// Growth factors; which ones theirs were, only the drawing tells.
const FACTORS: [u64; 4] = [2, 4, 8, 16];

/// How an engine's growth factor is set, and what the paper's theory says of its write amplification.
#[derive(Clone, Copy)]
struct Growth {
    setting: &'static str,
    /// A run is written once in each stage; a tree's level is merged with what comes from above.
    forest: bool,
}

fn growth(engine: &str) -> Option<Growth> {
    match engine {
        "pleach" => Some(Growth { setting: "runs_per_stage", forest: true }),
        "rocksdb" => Some(Growth { setting: "level_multiplier", forest: false }),
        _ => None,
    }
}

impl Growth {
    /// Section 3.1: the logarithm of D / c to the base f for forests, f / 2 times that for trees.
    fn theory(self, factor: u64, data_bytes: u64) -> f64 {
        let stages = (data_bytes as f64 / MEMTABLE_BYTES as f64).max(1.0).log(factor as f64).max(1.0);
        if self.forest { stages } else { stages * factor as f64 / 2.0 }
    }
}

/// The figure.
pub(crate) fn fig2(session: &mut Session<'_>) -> Result<()> {
    let keys = session.keys(KEYS);
    print_head(keys);
    let mut result = Ok(());
    for engine in session.args.engines.clone() {
        let factors = growth(&engine).map_or(vec![None], |_| FACTORS.map(Some).to_vec());
        for factor in factors {
            if let Err(error) = row(session, &engine, factor, keys) {
                print_row(&[&format!("{engine} (ours)"), "failed"]);
                result = Err(error);
                break;
            }
        }
    }
    print(
        "\nWrite amplification is without the log, settling included. Reads come from the page cache and show the work of\n\
         the search, Pleach's without filters; the paper's wait for storage as well. In theory: log_f (data / write buffer)\n\
         for forests, f / 2 times that for trees.",
    );
    result
}

fn print_head(keys: u64) {
    print(&format!(
        "Theirs: pairs of 116 B, up to 90 GB, write buffer 4 MiB; LevelDB (a tree) and Size-Tiered (a forest). In words:\n\
         with a larger growth factor LevelDB writes more and Size-Tiered writes less (Fig. 2a); Size-Tiered needs up to\n\
         twice the space of its data, LevelDB hardly more than the data (Fig. 2b); reads from the tree get cheaper with\n\
         the factor, those from the forest dearer (Fig. 3). Ours: {} pairs of 116 B, write buffer {}. Pleach's factor\n\
         is its runs per stage, RocksDB's the multiplier of its levels; other engines have none to set.\n",
        count(keys as f64),
        bytes(MEMTABLE_BYTES as f64),
    ));
    print_row(&[
        "store",
        "growth factor",
        "WA at a quarter",
        "WA at the end",
        "in theory",
        "peak space",
        "mean get",
    ]);
}

/// Loads a quarter of the keys, then all of them, and reads.
fn row(session: &mut Session<'_>, engine: &str, factor: Option<u64>, keys: u64) -> Result<()> {
    let quarter = run(session, engine, factor, (keys / 4).max(1), "fillrandom")?;
    let whole = run(session, engine, factor, keys, "fillrandom,readrandom")?;
    let ([quarter], [load, read]) = (&quarter[..], &whole[..]) else {
        return Err("other records were expected".into());
    };
    let theory = growth(engine).zip(factor).map(|(growth, factor)| growth.theory(factor, keys * PAIR_BYTES));
    print_row(&[
        &format!("{engine} (ours)"),
        &factor.map_or_else(|| "its own".into(), |factor| factor.to_string()),
        &number(amplification(quarter)),
        &number(amplification(load)),
        &theory.map_or_else(|| "-".into(), |theory| format!("{theory:.1}")),
        &number(load.peak_space_amp),
        &nanos(read.mean_ns),
    ]);
    Ok(())
}

fn run(
    session: &mut Session<'_>,
    engine: &str,
    factor: Option<u64>,
    keys: u64,
    workloads: &str,
) -> Result<Vec<Record>> {
    let reads = (keys / 10).max(100);
    let text = format!("--workloads {workloads} --keys {keys} --ops {reads} --value-size 100 --memory 64MiB");
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    words.extend(scaled(engine));
    if engine == "pleach" {
        words.push(tune(engine, "filter_bits_per_key", "0"));
    }
    if let (Some(growth), Some(factor)) = (growth(engine), factor) {
        words.push(tune(engine, growth.setting, &factor.to_string()));
    }
    session.run(engine, &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_goes_opposite_ways() {
        let data = MEMTABLE_BYTES * 4096;
        let of = |engine, factor| growth(engine).map_or(0.0, |growth| growth.theory(factor, data));
        assert!((of("pleach", 4) - 6.0).abs() < 1e-9 && (of("pleach", 16) - 3.0).abs() < 1e-9);
        assert!((of("rocksdb", 4) - 12.0).abs() < 1e-9 && (of("rocksdb", 16) - 24.0).abs() < 1e-9);
        assert!(growth("leveldb").is_none());
    }
}
