//! SifrDB's figures: Lu et al., "A Novel Multi-Stage Forest-Based Key-Value Store for Holistic Performance
//! Improvement", TPDS 2020, section 5.
//!
//! Their set-up: a billion pairs of 123 bytes on average (keys of 23 bytes, values uniform in 1 to 200), 118 GB; a
//! write buffer of 4 MiB, SSTs of 2 MiB, four trees a stage; one thread; two Xeons of 14 cores and a SATA SSD (Intel
//! S3520). What decides write amplification is the ratio of data to write buffer (about 30,000, that is 17 trees in
//! more than seven stages), so the write buffer shrinks with the data here. The paper gives bars and curves without
//! numbers except where its text names them; only those are quoted.

use super::Session;
use crate::bench::Record;
use crate::engine::Result;
use crate::report::{bytes, count, nanos, print};

/// Keys of Figs. 9a-c here: 236 MB.
const KEYS: u64 = 2_000_000;
/// Write buffer here. 236 MB are 1,800 of them: between five and six stages of four where the paper has more than
/// seven.
const MEMTABLE_BYTES: u64 = 128 << 10;
/// Half a write buffer, as theirs.
const SST_BYTES: u64 = 64 << 10;
/// Keys of Fig. 12 here; theirs were 10 GB.
const FILTER_KEYS: u64 = 1_000_000;

/// Their pairs on this machine's scale.
fn load(session: &Session<'_>, workloads: &str) -> Vec<String> {
    let text = format!(
        "--workloads {workloads} --keys {} --key-set user --value-size uniform:1-200 --memory 64MiB \
         --tune pleach.memtable_bytes={MEMTABLE_BYTES},pleach.sst_bytes={SST_BYTES},pleach.runs_per_stage=4",
        session.keys(KEYS)
    );
    text.split_whitespace().map(str::to_owned).collect()
}

fn print_setup(session: &Session<'_>) {
    print(&format!(
        "Theirs: 1 G pairs, 23 B keys, values of 1 to 200 B, 118 GB; write buffer 4 MiB, SSTs of 2 MiB, k = 4.\n\
         Ours: {} pairs, 23 B keys, values of 1 to 200 B; write buffer {}, SSTs of {}, k = 4 (Pleach).\n\
         Other engines have their own defaults. Bars and curves of the paper carry no numbers; quoted is what its text says.\n",
        count(session.keys(KEYS) as f64),
        bytes(MEMTABLE_BYTES as f64),
        bytes(SST_BYTES as f64),
    ));
}

fn print_row(cells: &[&str]) {
    let aligned: Vec<String> = cells.iter().map(|cell| format!("{cell:<22}")).collect();
    print(aligned.join(" ").trim_end());
}

/// Flushes and compactions per byte of the user's, as the paper counts ("app data"), without the log.
fn amplification_without_log(record: &Record) -> Option<f64> {
    let stats = &record.engine_stats;
    let written = stats.written_bytes?.saturating_sub(stats.log_bytes?);
    Some(written as f64 / record.user_written_bytes.max(1) as f64)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "not told".into(), |value| format!("{value:.2}"))
}

/// Write amplification.
pub(super) fn fig9a(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    print_row(&["store", "random", "sequential", "random, with log", "sequential, with log"]);
    let theirs = [
        ["SifrDB (theirs)", "as Size-Tiered", "1"],
        ["Size-Tiered (theirs)", "figure only", "8"],
        ["PebblesDB (theirs)", "as Size-Tiered", "6"],
        ["LevelDB (theirs)", "substantially more", "1"],
        ["RocksDB (theirs)", "substantially more", "1"],
    ];
    for row in theirs {
        print_row(&row);
    }
    let mut merged_all = Vec::new();
    for engine in session.args.engines.clone() {
        let words = load(session, "fillrandom,fillseq");
        let records = session.run(&engine, &words)?;
        let [random, sequential] = &records[..] else { return Err("two records were expected".into()) };
        if sequential.engine_stats.details.get("moved_bytes") == Some(&0) {
            merged_all.push(engine.clone());
        }
        print_row(&[
            &format!("{engine} (ours)"),
            &number(amplification_without_log(random)),
            &number(amplification_without_log(sequential)),
            &number(random.write_amp_engine.or(random.write_amp)),
            &number(sequential.write_amp_engine.or(sequential.write_amp)),
        ]);
    }
    print("\nCounted by the engines themselves, settling included; where one does not count, by the system.");
    for engine in merged_all {
        print(&format!(
            "{engine} took no SST over by metadata alone: it merged the sequential load like a random one. The\n\
             paper's split storing, which makes the sequential figure 1, did not take effect."
        ));
    }
    Ok(())
}

/// Throughput.
pub(super) fn fig9b(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    print_row(&["store", "random ops/s", "sequential ops/s"]);
    print_row(&["SifrDB (theirs)", "figure only", "figure only"]);
    print(
        "  In words: random, the forests (SifrDB, Size-Tiered, PebblesDB) are far ahead of LevelDB and RocksDB, and",
    );
    print(
        "  Size-Tiered, with its large files, is ahead of the other two; SifrDB on aligned storage is the fastest.",
    );
    for engine in session.args.engines.clone() {
        let words = load(session, "fillrandom,fillseq");
        let records = session.run(&engine, &words)?;
        let [random, sequential] = &records[..] else { return Err("two records were expected".into()) };
        // A store that has debts left has not done the work yet.
        let sustained = |record: &Record| count(record.ops as f64 / (record.seconds + record.settle_s));
        print_row(&[&format!("{engine} (ours)"), &count(random.ops_per_s), &count(sequential.ops_per_s)]);
        print_row(&["  settling included", &sustained(random), &sustained(sequential)]);
    }
    print(
        "\nPleach has no aligned storage without a file system (their SifrDB+LDS); that column is not repeated.",
    );
    Ok(())
}

/// Storage while inserting.
pub(super) fn fig9c(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    print(
        "Theirs, in words: SifrDB and LevelDB need about what the user has inserted; Size-Tiered needs up to twice",
    );
    print("as much. Columns: most disk use up to then per byte that the user had inserted by then.\n");
    let tenths: Vec<String> = (1..=10).map(|tenth| format!("{} %", tenth * 10)).collect();
    let row = |name: &str, cells: &[String]| {
        let aligned: Vec<String> = cells.iter().map(|cell| format!("{cell:>6}")).collect();
        print(&format!("{name:<18}{}", aligned.join(" ")));
    };
    row("inserted", &tenths);
    for engine in session.args.engines.clone() {
        let words = load(session, "fillrandom");
        let records = session.run(&engine, &words)?;
        let [record] = &records[..] else { return Err("one record was expected".into()) };
        let cells: Vec<String> =
            storage_by_tenth(record).into_iter().map(|ratio| number(Some(ratio))).collect();
        row(&format!("{engine} (ours)"), &cells);
        let peak = record.peak_disk_bytes as f64 / record.live_bytes.max(1) as f64;
        print(&format!("{:<20}peak {peak:.2}, settled {}", "", number(record.space_amp)));
    }
    print(
        "\nThe log is included: up to two or three write buffers' worth of it is waiting for a flush at any time.",
    );
    Ok(())
}

/// For each tenth of the load: the highest disk use so far per byte inserted so far.
fn storage_by_tenth(record: &Record) -> Vec<f64> {
    let bytes_per_op = record.user_written_bytes as f64 / record.ops.max(1) as f64;
    let (mut ops, mut peak) = (0, 0);
    let mut by_tenth = vec![0.0; 10];
    let buckets = record.series.ops.iter().zip(&record.series.disk_bytes);
    for (&ended, &disk_bytes) in buckets {
        peak = peak.max(disk_bytes);
        // The sample is from the start of the bucket.
        let inserted = (ops as f64 * bytes_per_op).max(1.0);
        let tenth = (ops * 10 / record.ops.max(1)).min(9) as usize;
        if ops > 0 {
            by_tenth[tenth] = peak as f64 / inserted;
        }
        ops += ended;
    }
    // A tenth that went by between two samples is like the one before.
    for tenth in 1..10 {
        if by_tenth[tenth] == 0.0 {
            by_tenth[tenth] = by_tenth[tenth - 1];
        }
    }
    by_tenth
}

/// Filters.
pub(super) fn fig12(session: &mut Session<'_>) -> Result<()> {
    let keys = session.keys(FILTER_KEYS);
    print(&format!(
        "Theirs: 10 GB; at 10 bits per key reads take 1 / 3.7 of the time without filters, for 106 MB of memory (1.06 %\n\
         of the data); more bits gain little. Ours: {} pairs of 123 B, random reads past the page cache, little memory.\n",
        count(keys as f64)
    ));
    print_row(&["bits per key", "mean read", "against none", "index and filters", "share of data"]);
    let mut without = None;
    for bits in [0, 5, 10, 15, 20] {
        let text = format!(
            "--workloads fillrandom,readrandom --keys {keys} --ops {} --key-set user --value-size uniform:1-200 \
             --memory 8MiB --direct --no-settle --tune pleach.memtable_bytes={},pleach.sst_bytes={SST_BYTES},\
             pleach.filter_bits_per_key={bits}",
            (keys / 10).max(100),
            256 << 10,
        );
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let records = session.run("pleach", &words)?;
        let Some(read) = records.last() else { return Err("a record was expected".into()) };
        let base = *without.get_or_insert(read.mean_ns);
        let memory = read.engine_stats.index_filter_bytes.unwrap_or(0) as f64;
        print_row(&[
            &bits.to_string(),
            &nanos(read.mean_ns),
            &format!("{:.2}x faster", base / read.mean_ns.max(1.0)),
            &bytes(memory),
            &format!("{:.2} %", 100.0 * memory / read.live_bytes.max(1) as f64),
        ]);
    }
    print(
        "\nOnly Pleach is run: other engines have no filter of this kind to vary. The memory is that of indexes and",
    );
    print(
        "filters together; the first line is the indexes alone. Whatever is merged meanwhile is merged: stores are",
    );
    print("read as the load has left them.");
    Ok(())
}
