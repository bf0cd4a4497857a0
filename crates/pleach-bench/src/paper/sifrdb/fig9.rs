//! SifrDB, Fig. 9: write amplification, throughput, storage and memory of a load.

use super::{amplification, is_pleach, number, print_row, print_setup, scaled, tune, words};
use crate::bench::Record;
use crate::engine::Result;
use crate::paper::Session;
use crate::report::{count, print};

/// Keys here: 236 MB, 1,800 write buffers: between five and six stages of four where the paper has more than seven.
const KEYS: u64 = 2_000_000;
const MIB: f64 = 1_048_576.0;
const RANDOM: &str = "fillrandom";
const BOTH: &str = "fillrandom,fillseq";

/// The records of an engine's loads, or the error.
type Loads = (String, Result<Vec<Record>>);

/// Prints one part.
type Part = fn(&[Loads]) -> Result<()>;

/// Loads pairs as in the paper, but fewer, into each engine.
fn run_loads(session: &mut Session<'_>, workloads: &str) -> Vec<Loads> {
    let keys = session.keys(KEYS);
    let text = format!(
        "--workloads {workloads} --keys {keys} --key-set user --value-size uniform:1-200 --memory 64MiB"
    );
    let mut loads = Vec::new();
    for engine in session.engines.clone() {
        let name = engine.name;
        let mut words = words(&text);
        words.extend(scaled(name));
        if is_pleach(name) {
            words.push(tune(name, "runs_per_stage", "4"));
        }
        let records = session.run(name, &words);
        loads.push((name.to_owned(), records));
    }
    loads
}

/// Prints a part of the figure for each engine; the error of the last one that failed.
fn each_engine(loads: &[Loads], mut show: impl FnMut(&str, &[Record])) -> Result<()> {
    let mut result = Ok(());
    for (engine, records) in loads {
        match records {
            Ok(records) => show(engine, records),
            Err(error) => {
                print_row(&[&format!("{engine} (ours)"), "failed"]);
                result = Err(error.to_string().into());
            }
        }
    }
    result
}

/// Write amplification.
pub(crate) fn fig9a(session: &mut Session<'_>) -> Result<()> {
    print_setup(session, KEYS);
    let loads = run_loads(session, BOTH);
    write_amplification(&loads)
}

fn write_amplification(loads: &[Loads]) -> Result<()> {
    print_row(&["store", "random", "sequential", "random, with log", "sequential, with log"]);
    for row in [
        ["SifrDB (theirs)", "as Size-Tiered", "1"],
        ["Size-Tiered (theirs)", "figure only", "8"],
        ["PebblesDB (theirs)", "as Size-Tiered", "6"],
        ["LevelDB (theirs)", "substantially more", "1"],
        ["RocksDB (theirs)", "substantially more", "1"],
    ] {
        print_row(&row);
    }
    let mut merged_all = Vec::new();
    let result = each_engine(loads, |engine, records| {
        let [random, sequential] = records else { return };
        if sequential.engine_stats.details.get("moved_bytes") == Some(&0) {
            merged_all.push(engine.to_owned());
        }
        print_row(&[
            &format!("{engine} (ours)"),
            &number(amplification(random)),
            &number(amplification(sequential)),
            &number(random.write_amp_engine.or(random.write_amp)),
            &number(sequential.write_amp_engine.or(sequential.write_amp)),
        ]);
    });
    print(
        "\nCounted by the engines themselves, settling included; where one does not count, by the system, less one for\n\
         the log.",
    );
    for engine in merged_all {
        print(&format!(
            "{engine} took no SST over by metadata alone: it merged the sequential load like a random one. The\n\
             paper's split storing, which makes the sequential figure 1, did not take effect."
        ));
    }
    result
}

/// Throughput.
pub(crate) fn fig9b(session: &mut Session<'_>) -> Result<()> {
    print_setup(session, KEYS);
    let loads = run_loads(session, BOTH);
    throughput(&loads)
}

fn throughput(loads: &[Loads]) -> Result<()> {
    print_row(&["store", "random ops/s", "sequential ops/s"]);
    print_row(&["SifrDB (theirs)", "figure only", "figure only"]);
    print(
        "  In words: random, the forests (SifrDB, Size-Tiered, PebblesDB) are far ahead of LevelDB and RocksDB, and\n  \
         Size-Tiered, with its large files, is ahead of the other two; SifrDB on aligned storage is the fastest.",
    );
    let result = each_engine(loads, |engine, records| {
        let [random, sequential] = records else { return };
        // A store with compaction debt has not done all of its work.
        let sustained = |record: &Record| count(record.ops as f64 / (record.seconds + record.settle_s));
        print_row(&[&format!("{engine} (ours)"), &count(random.ops_per_s), &count(sequential.ops_per_s)]);
        print_row(&["  settling included", &sustained(random), &sustained(sequential)]);
    });
    print(
        "\nPleach has no aligned storage without a file system (their SifrDB+LDS); that column is not repeated.",
    );
    result
}

/// Storage while inserting.
pub(crate) fn fig9c(session: &mut Session<'_>) -> Result<()> {
    print_setup(session, KEYS);
    let loads = run_loads(session, RANDOM);
    storage(&loads)
}

fn storage(loads: &[Loads]) -> Result<()> {
    print(
        "Theirs, in words: SifrDB and LevelDB need about what the user has inserted; Size-Tiered needs up to twice\n\
         as much. Columns: most disk use up to then per byte that the user had inserted by then.\n",
    );
    print_tenths("inserted", &tenths());
    let result = each_engine(loads, |engine, records| {
        let Some(record) = records.first() else { return };
        let inserted = bytes_by_tenth(record);
        let peaks = peak_by_tenth(record, &record.series.disk_bytes);
        let cells: Vec<String> = peaks
            .iter()
            .zip(inserted)
            .map(|(&peak, inserted)| number(Some(peak as f64 / inserted)))
            .collect();
        print_tenths(&format!("{engine} (ours)"), &cells);
        let (peak, settled) = (number(record.peak_space_amp), number(record.space_amp));
        print(&format!("{:<24}peak {peak}, settled {settled}", ""));
    });
    print(
        "\nThe log is included: up to two or three write buffers' worth of it is waiting for a flush at any time.",
    );
    result
}

/// Memory while inserting.
pub(crate) fn fig9d(session: &mut Session<'_>) -> Result<()> {
    print_setup(session, KEYS);
    let loads = run_loads(session, RANDOM);
    memory(&loads)
}

fn memory(loads: &[Loads]) -> Result<()> {
    print(
        "Theirs, in words: RocksDB and Size-Tiered consume much more memory than SifrDB and LevelDB, by an order of\n\
         magnitude, PebblesDB two orders more than SifrDB. Columns: most resident memory of the process up to then,\n\
         in MiB.\n",
    );
    print_tenths("inserted", &tenths());
    let result = each_engine(loads, |engine, records| {
        let Some(record) = records.first() else { return };
        let peaks = peak_by_tenth(record, &record.series.rss_bytes);
        let cells: Vec<String> = peaks.iter().map(|&peak| format!("{:.1}", peak as f64 / MIB)).collect();
        print_tenths(&format!("{engine} (ours)"), &cells);
    });
    print(
        "\nThe benchmark itself is included, about 10 MiB, and so are pages of mapped files that were touched.",
    );
    result
}

/// All four from the same loads.
pub(crate) fn fig9(session: &mut Session<'_>) -> Result<()> {
    print_setup(session, KEYS);
    let loads = run_loads(session, BOTH);
    let parts: [(&str, Part); 4] = [
        ("Fig. 9a: write amplification", write_amplification),
        ("Fig. 9b: throughput", throughput),
        ("Fig. 9c: storage", storage),
        ("Fig. 9d: memory", memory),
    ];
    let mut result = Ok(());
    for (title, part) in parts {
        print(&format!("\n{title}\n"));
        result = part(&loads);
    }
    result
}

fn tenths() -> Vec<String> {
    (1..=10).map(|tenth| format!("{} %", tenth * 10)).collect()
}

fn print_tenths(name: &str, cells: &[String]) {
    let aligned: Vec<String> = cells.iter().map(|cell| format!("{cell:>7}")).collect();
    print(&format!("{name:<24}{}", aligned.join(" ")));
}

/// Bytes that the user had inserted at the end of each tenth.
fn bytes_by_tenth(record: &Record) -> Vec<f64> {
    (1..=10).map(|tenth| (record.user_written_bytes as f64 * f64::from(tenth) / 10.0).max(1.0)).collect()
}

/// For each tenth of a load the highest sample so far. A sample is from the start of its bucket.
fn peak_by_tenth(record: &Record, samples: &[u64]) -> Vec<u64> {
    let (mut ops, mut peak) = (0, 0);
    let mut by_tenth = vec![0; 10];
    for (&ended, &sample) in record.series.ops.iter().zip(samples) {
        peak = peak.max(sample);
        by_tenth[(ops * 10 / record.ops.max(1)).min(9) as usize] = peak;
        ops += ended;
    }
    // The load's end lies between two samples, and so may a whole tenth.
    let after = samples.get(record.series.ops.len()).copied().unwrap_or(0);
    by_tenth[9] = by_tenth[9].max(after);
    for tenth in 1..10 {
        by_tenth[tenth] = by_tenth[tenth].max(by_tenth[tenth - 1]);
    }
    by_tenth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_those_so_far() {
        let mut record = Record { ops: 100, user_written_bytes: 1000, ..Record::default() };
        record.series.ops = vec![25; 4];
        let samples = [10, 40, 30, 90, 50];
        assert_eq!(peak_by_tenth(&record, &samples), [10, 10, 40, 40, 40, 40, 40, 90, 90, 90]);
        assert_eq!(peak_by_tenth(&record, &[]), [0; 10]);
        let inserted = bytes_by_tenth(&record);
        assert!((inserted[0] - 100.0).abs() < 1e-9 && (inserted[9] - 1000.0).abs() < 1e-9);
    }
}
