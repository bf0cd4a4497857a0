//! TridentKV, Figs. 3a, 16, 17, 19 and 20: separators and learned indexes, and when these are trained.
//!
//! Fig. 3b, gets by the error of a model that is trained while reading, has no counterpart: models of SSTs have no error. Their
//! papers' form, and the blocks that a search with an error reads, are in design/0011.

use super::{KEY_BYTES, MEMORY_MIN, print_cells, print_row};
use crate::bench::Record;
use crate::engine::Result;
use crate::paper::{Session, is_pleach, tune, words};
use crate::report::{self, bytes, count, nanos, print};

/// Bytes of a value, but in Fig. 16.
const VALUE_BYTES: u64 = 100;
const KEYS: u64 = 2_000_000;
/// Fig. 16: bytes of a value, and of all pairs.
const SIZES: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];
const DATA_BYTES: u64 = 256_000_000;
/// Fig. 17: memory in percent of the data.
const MEMORIES: [u64; 6] = [1, 2, 5, 10, 25, 50];
/// Key sets of Figs. 16 and 17: the paper's consecutive keys, and random ones.
const SETS: [&str; 2] = ["decimal", "random16"];
/// Fig. 19.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Fig. 20: name, key set, and the load. Keys in order are in few SSTs a range; shuffled ones are in all.
const WORKLOADS: [(&str, &str, &str); 6] = [
    ("linear", "decimal", "fillseq"),
    ("seg 1 %", "seg1", "fillseq"),
    ("AR", "ar", "fillseq"),
    ("OSM", "osm", "fillseq"),
    ("AR-shuffle", "ar", "fillrandom"),
    ("OSM-shuffle", "osm", "fillrandom"),
];
/// The index, and `learned_index` of Pleach. RocksDB-with-WW and RocksDB-with-WR of the paper are `writing` and `reading`.
const INDEXES: [(&str, &str); 2] = [("separators", "never"), ("learned", "always")];
const TIMES: [(&str, &str); 4] =
    [("never", "never"), ("writing", "always"), ("reading", "reading"), ("adaptive", "adaptive")];

/// Runs workloads on an empty store, which is removed afterwards.
fn run(
    session: &mut Session<'_>,
    engine: &str,
    learned_index: Option<&str>,
    text: &str,
) -> Result<Vec<Record>> {
    let mut words = words(text);
    words.extend(learned_index.map(|when| tune(engine, "learned_index", when)));
    let records = session.run(engine, &words);
    session.remove_store(engine);
    records
}

fn last(records: Vec<Record>) -> Result<Record> {
    records.into_iter().next_back().ok_or_else(|| "a record was expected".into())
}

fn detail(record: &Record, name: &str) -> f64 {
    record.engine_stats.details.get(name).map_or(0.0, |&number| number as f64)
}

/// The share of SSTs that have a model, and the bytes of all indexes.
fn learned(record: &Record) -> [String; 2] {
    let share = detail(record, "ssts_learned") / detail(record, "ssts").max(1.0);
    [format!("{:.0} %", 100.0 * share), bytes(detail(record, "index_bytes"))]
}

/// Gets by the size of values.
pub(crate) fn fig16(session: &mut Session<'_>) -> Result<()> {
    session.choose_memory()?;
    print(&format!(
        "Theirs, in words: the smaller the pairs, the more the learned index gains. Ours: {} of pairs, but at most {} pairs,\n\
         all in the cache, one thread; in brackets against separators.\n",
        bytes(DATA_BYTES as f64),
        count(session.keys(KEYS) as f64),
    ));
    print_row(&["engine", "keys", "value", "index", "gets a second", "median", "learned", "indexes"]);
    for engine in session.engines.clone() {
        for (set, size) in SETS.into_iter().flat_map(|set| SIZES.map(|size| (set, size))) {
            let keys = session.keys((DATA_BYTES / (size + KEY_BYTES)).min(KEYS));
            let (memory, seconds) = (4 * keys * (size + KEY_BYTES), session.seconds(2.0));
            let text = format!(
                "--workloads readrandom --keys {keys} --key-set {set} --value-size {size} --memory {memory} \
                 --duration {seconds} --warmup {} --warmup-limit 5",
                2 * keys
            );
            let cells = [set.to_owned(), bytes(size as f64)];
            compare(session, engine.name, &cells, &INDEXES, &text, median)?;
        }
    }
    Ok(())
}

/// Gets by the size of the cache.
pub(crate) fn fig17(session: &mut Session<'_>) -> Result<()> {
    session.choose_memory()?;
    let keys = session.keys(KEYS);
    let keys_min = (100 * MEMORY_MIN).div_ceil(MEMORIES[0] * (KEY_BYTES + VALUE_BYTES));
    if keys < keys_min {
        return Err(format!(
            "figure 17 needs {keys_min} keys, so that {} % of the data are 1 MiB",
            MEMORIES[0]
        )
        .into());
    }
    print(&format!(
        "Theirs, in words: the larger the cache, the more the learned index gains. Ours: {} pairs of {} B past the page cache,\n\
         one thread, after a full compaction; memory is that of the engine, filters and memtables included; pages are those\n\
         of 4 KiB that the device has read for a get; in brackets against separators.\n",
        count(keys as f64),
        KEY_BYTES + VALUE_BYTES,
    ));
    print_row(&[
        "engine",
        "keys",
        "memory",
        "index",
        "gets a second",
        "median",
        "pages",
        "learned",
        "indexes",
    ]);
    for engine in session.engines.clone() {
        for (set, percent) in SETS.into_iter().flat_map(|set| MEMORIES.map(|percent| (set, percent))) {
            let memory = keys * (KEY_BYTES + VALUE_BYTES) * percent / 100;
            let seconds = session.seconds(3.0);
            let text = format!(
                "--workloads fillrandom,readwhilecompacting,readrandom --keys {keys} --key-set {set} \
                 --value-size {VALUE_BYTES} --memory {memory} --duration {seconds} --direct"
            );
            let cells = [set.to_owned(), format!("{percent} %")];
            let figures = |get: &Record| {
                let reads = get.storage_read_bytes as f64 / 4096.0 / get.ops.max(1) as f64;
                vec![nanos(get.p50_ns as f64), format!("{reads:.3}")]
            };
            compare(session, engine.name, &cells, &INDEXES, &text, figures)?;
        }
    }
    Ok(())
}

/// A row for each of `kinds`, on a store of its own: `cells`, the kind, the median of operations a second against the first
/// kind, `figures`, and what was learned, both of the run of median rate, or of the faster of the two. The ratio is the mean of
/// those of all rounds. A kind that has learned nothing is not compared. The last kind is also compared with the best of the
/// others if there are several. Engines other than Pleach have one row.
fn compare(
    session: &mut Session<'_>,
    engine: &str,
    cells: &[String],
    kinds: &[(&str, &str)],
    text: &str,
    figures: impl Fn(&Record) -> Vec<String>,
) -> Result<()> {
    let kinds: Vec<_> = if is_pleach(engine) {
        kinds.iter().map(|&(name, when)| (name, Some(when))).collect()
    } else {
        vec![("its own", None)]
    };
    let mut records: Vec<Vec<Record>> = kinds.iter().map(|_| Vec::new()).collect();
    for round in 0..usize::from(session.args.rounds) {
        for turn in 0..kinds.len() {
            let number = (round + turn) % kinds.len();
            let (Some((_, learned_index)), Some(records)) = (kinds.get(number), records.get_mut(number))
            else {
                continue;
            };
            records.push(last(run(session, engine, *learned_index, text)?)?);
        }
    }
    let rates: Vec<Vec<f64>> =
        records.iter().map(|records| records.iter().map(|record| record.ops_per_s).collect()).collect();
    for (number, ((name, _), mut records)) in kinds.iter().zip(records).enumerate() {
        records.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        let sorted: Vec<f64> = records.iter().map(|record| record.ops_per_s).collect();
        let middle = records.len() / 2;
        let record = records.into_iter().nth(middle).ok_or("a record was expected")?;
        let mut rate = count(report::median(&sorted));
        if let (Some(own), Some(base), true) = (rates.get(number), rates.first(), number > 0) {
            rate = if detail(&record, "ssts_learned") == 0.0 {
                format!("{rate} (no model)")
            } else {
                format!("{rate} ({})", ratio(own, base))
            };
        }
        let mut row = vec![engine.to_owned()];
        row.extend(cells.iter().cloned());
        row.extend([(*name).to_owned(), rate]);
        row.extend(figures(&record).into_iter().chain(learned(&record)));
        print_cells(&row);
    }
    if let Some((own, others)) = rates.split_last().filter(|(_, others)| others.len() > 1) {
        let best = (0..others.len()).max_by(|&a, &b| log_mean(&others[a]).total_cmp(&log_mean(&others[b])));
        if let Some((best, (name, _))) = best.and_then(|best| Some((others.get(best)?, kinds.get(best)?))) {
            let mut row = vec![engine.to_owned()];
            row.extend(cells.iter().cloned());
            row.push(format!("{} of {name}, the best of the others", ratio(own, best)));
            print_cells(&row);
        }
    }
    Ok(())
}

/// The mean of logarithms.
fn log_mean(rates: &[f64]) -> f64 {
    rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64
}

/// The geometric mean of the ratios of two kinds in the same rounds; from three rounds on with half of its 95 % interval. That
/// is of the logarithm, so its multiple by the mean is right to first order.
fn ratio(rates: &[f64], base: &[f64]) -> String {
    let ratios: Vec<f64> = rates.iter().zip(base).map(|(rate, base)| rate / base).collect();
    let (mean, n) = (log_mean(&ratios), ratios.len());
    if n < 3 {
        return format!("{:.2}x", mean.exp());
    }
    let variance = ratios.iter().map(|ratio| (ratio.ln() - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    // Student's t for n - 1 degrees of freedom, within 4 % from three rounds on (Abramowitz and Stegun 26.7.5).
    let (z, freedom) = (1.96f64, (n - 1) as f64);
    let t = z
        + (z.powi(3) + z) / (4.0 * freedom)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * freedom.powi(3));
    let half = t * (variance / n as f64).sqrt();
    format!("{:.3}x +- {:.3}", mean.exp(), mean.exp() * half)
}

/// The median time of a get.
fn median(read: &Record) -> Vec<String> {
    vec![nanos(read.p50_ns as f64)]
}

/// Puts by the number of threads and the time of training.
pub(crate) fn fig19(session: &mut Session<'_>) -> Result<()> {
    let keys = session.keys(KEYS);
    print(&format!(
        "Theirs, in words: training while reading costs writes nothing; training while writing gains with few threads and loses\n\
         much with more than 8; adaptive is the best of both. Ours: {} pairs of {} B, keys `ar`, {} processors; in brackets\n\
         against `never`. Compactions train in all rows but `never`.\n",
        count(keys as f64),
        20 + VALUE_BYTES,
        std::thread::available_parallelism().map_or(1, Into::into),
    ));
    print_row(&["engine", "threads", "training", "puts a second", "p99", "CPU/put", "learned", "indexes"]);
    let figures = |put: &Record| vec![nanos(put.p99_ns as f64), nanos(put.cpu_us_per_op * 1e3)];
    for engine in session.engines.clone() {
        for threads in THREADS {
            let text = format!(
                "--workloads fillrandom@{threads} --keys {keys} --key-set ar --value-size {VALUE_BYTES} --memory 256MiB"
            );
            compare(session, engine.name, &[threads.to_string()], &TIMES, &text, figures)?;
        }
    }
    Ok(())
}

/// Gets by keys and the time of training.
pub(crate) fn fig20(session: &mut Session<'_>) -> Result<()> {
    let keys = session.keys(KEYS);
    print(&format!(
        "Theirs, in words: after one thread's puts, training while writing gains on all keys, and training while reading less the\n\
         larger its error; on shuffled keys it loses. After eight threads' puts adaptive training loses nowhere. Ours: {} pairs,\n\
         values of {VALUE_BYTES} B, all in the cache, one thread reads; in brackets against `never`.\n",
        count(keys as f64),
    ));
    print_row(&["engine", "writers", "keys", "training", "gets a second", "median", "learned", "indexes"]);
    for engine in session.engines.clone() {
        for (threads, (name, set, load)) in [1, 8].into_iter().flat_map(|n| WORKLOADS.map(|w| (n, w))) {
            let seconds = session.seconds(2.0);
            let text = format!(
                "--workloads {load}@{threads},readrandom --keys {keys} --key-set {set} --value-size {VALUE_BYTES} \
                 --memory 1GiB --duration {seconds} --warmup {} --warmup-limit 5",
                2 * keys
            );
            compare(session, engine.name, &[threads.to_string(), name.to_owned()], &TIMES, &text, median)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_ratio_grows_with_the_ratio() {
        let half = |base: f64| -> f64 {
            let text = ratio(&[900.0, 1000.0, 1100.0], &[base; 3]);
            text.split_once(" +- ").and_then(|(_, half)| half.parse().ok()).expect("an interval")
        };
        assert!((half(10.0) / half(100.0) - 10.0).abs() < 0.02, "{} {}", half(10.0), half(100.0));
        assert_eq!(ratio(&[3.0, 3.0], &[2.0, 2.0]), "1.50x");
    }
}
