//! SifrDB, Figs. 2 and 3: write amplification, storage and read latency against the growth factor.
//!
//! Their set-up differs from that of section 5: pairs of 116 bytes, about 90 GB, LevelDB for trees and Size-Tiered for
//! forests.

use super::{MEMTABLE_BYTES, amplification, filter_setting, number, print_row, scaled, tune, words};
use crate::bench::Record;
use crate::engine::Result;
use crate::paper::Session;
use crate::report::{bytes, count, nanos, print};

/// Keys here: 58 MB, 440 write buffers. There are many loads of many small files.
const KEYS: u64 = 500_000;
const PAIR_BYTES: u64 = 116;
/// Growth factors, read from the paper's drawing.
const FACTORS: &[u64] = &[2, 4, 8, 16];

/// How an engine grows.
#[derive(Clone, Copy)]
struct Growth {
    /// The setting for the factor; `None` if it is fixed.
    setting: Option<&'static str>,
    factors: &'static [u64],
    /// `None` if the paper's theory has no value.
    model: Option<Model>,
}

/// The two models of section 3.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Model {
    /// An entry is written once in each stage.
    Forest,
    /// A level is merged with what comes from above.
    Tree,
}

fn growth(engine: &str) -> Option<Growth> {
    let (setting, factors, model) = match engine {
        "pleach-forest" => (Some("runs_per_stage"), FACTORS, Some(Model::Forest)),
        "pleach" => (Some("runs_per_stage"), FACTORS, None),
        "rocksdb" => (Some("level_multiplier"), FACTORS, Some(Model::Tree)),
        "fjall" => (Some("level_ratio"), FACTORS, Some(Model::Tree)),
        "pleach-leveled" | "leveldb" => (None, &[10][..], Some(Model::Tree)),
        _ => return None,
    };
    Some(Growth { setting, factors, model })
}

impl Model {
    /// Section 3.1: the logarithm of D / c to the base f for forests, f / 2 times that for trees.
    fn theory(self, factor: u64, data_bytes: u64) -> f64 {
        let stages = (data_bytes as f64 / MEMTABLE_BYTES as f64).max(1.0).log(factor as f64).max(1.0);
        if self == Self::Forest { stages } else { stages * factor as f64 / 2.0 }
    }
}

/// The figure.
pub(crate) fn fig2(session: &mut Session<'_>) -> Result<()> {
    let keys = session.keys(KEYS);
    print_head(keys);
    let mut result = Ok(());
    for engine in session.engines.clone() {
        let factors = growth(engine.name)
            .map_or(vec![None], |growth| growth.factors.iter().copied().map(Some).collect::<Vec<_>>());
        for factor in factors {
            if let Err(error) = row(session, engine.name, factor, keys) {
                print_row(&[&format!("{} (ours)", engine.name), "failed"]);
                result = Err(error);
                break;
            }
        }
    }
    print(
        "\nWrite amplification is without the log, settling included, as the engines themselves count it; where one does\n\
         not count, by the system, less one for the log. Gets come from the page cache and show the work of the search,\n\
         without filters where they can be left out; the paper's wait for storage as well. In theory: log_f (data /\n\
         write buffer) for forests, f / 2 times that for trees.",
    );
    result
}

fn print_head(keys: u64) {
    print(&format!(
        "Theirs: pairs of 116 B, up to 90 GB, write buffer 4 MiB; LevelDB (a tree) and Size-Tiered (a forest). Ours:\n\
         {} pairs of 116 B, write buffer {}. The factor is Pleach's runs per stage, RocksDB's multiplier and\n\
         fjall's ratio of levels; it is fixed in LevelDB and in Pleach's leveled shape.\n",
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
    for row in [
        ["LevelDB (theirs)", "larger", "more", "more", "more", "about 1", "faster"],
        ["Size-Tiered (theirs)", "larger", "less", "less", "less", "up to 2", "slower"],
    ] {
        print_row(&row);
    }
}

/// Loads a quarter of the keys, then all of them, and reads.
fn row(session: &mut Session<'_>, engine: &str, factor: Option<u64>, keys: u64) -> Result<()> {
    let quarter = run(session, engine, factor, (keys / 4).max(1), "fillrandom")?;
    let whole = run(session, engine, factor, keys, "fillrandom,readrandom")?;
    let ([quarter], [load, read]) = (&quarter[..], &whole[..]) else {
        return Err("other records were expected".into());
    };
    let model = growth(engine).and_then(|growth| growth.model);
    let theory = model.zip(factor).map(|(model, factor)| model.theory(factor, keys * PAIR_BYTES));
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
    let mut words = words(&format!(
        "--workloads {workloads} --keys {keys} --ops {reads} --value-size 100 --memory 64MiB"
    ));
    words.extend(scaled(engine));
    words.extend(filter_setting(engine).map(|setting| tune(engine, setting, "0")));
    let setting = growth(engine).and_then(|growth| growth.setting);
    if let (Some(setting), Some(factor)) = (setting, factor) {
        words.push(tune(engine, setting, &factor.to_string()));
    }
    session.run(engine, &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_goes_opposite_ways() {
        let data = MEMTABLE_BYTES * 4096;
        let model_of = |engine| growth(engine).and_then(|growth| growth.model).expect("it has one");
        let of = |engine, factor| model_of(engine).theory(factor, data);
        assert!((of("pleach-forest", 4) - 6.0).abs() < 1e-9 && (of("pleach-forest", 16) - 3.0).abs() < 1e-9);
        assert!((of("rocksdb", 4) - 12.0).abs() < 1e-9 && (of("rocksdb", 16) - 24.0).abs() < 1e-9);
        assert!(growth("lmdb").is_none());
    }
}
