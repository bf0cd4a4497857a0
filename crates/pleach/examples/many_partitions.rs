//! The cost of many partitions: creating, filling, settling, dropping and reopening a store of them, with the share that the
//! device's syncs have.
//!
//! `cargo run --release -p pleach --example many_partitions -- [partitions] [directory]`

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures the real machine"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pleach::{Db, Partition};

const DROPS: usize = 1000;

fn main() {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().map_or(20_000, |arg| arg.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let dir = args.next().map_or_else(|| temporary.path().to_path_buf(), PathBuf::from);
    let sync = sync_time(&dir);
    println!("| step, {count} partitions | time |\n|---|---|");
    row("a sync of this device, median", sync);

    let path = dir.join("store");
    let db = Db::open(&path).unwrap();
    let names: Vec<_> = (0..count).map(|i| format!("partition {i}")).collect();
    let partitions = timed("create all, by one call", || db.create_partitions(&names).unwrap());
    timed("20 puts into each", || fill(&partitions, 0));
    timed("settle", || db.settle().unwrap());
    timed("20 more puts into each", || fill(&partitions, 20));
    timed("settle again", || db.settle().unwrap());
    timed("settle, nothing to do", || db.settle().unwrap());
    partitions[0].put("key", "value").unwrap();
    timed("flush of one put", || db.flush().unwrap());

    let mut times: Vec<_> = partitions
        .into_iter()
        .take(DROPS)
        .map(|partition| {
            let start = Instant::now();
            db.drop_partition(partition).unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    row("drop, median", times[times.len() / 2]);
    row("drop, 99 of 100", times[times.len() * 99 / 100]);
    timed("settle after the drops", || db.settle().unwrap());
    timed("close", || db.close().unwrap());
    let db = timed("open", || Db::open(&path).unwrap());
    println!("\n{} partitions, {} runs, {} files", db.partitions().len(), db.stats().runs, db.stats().ssts);
}

fn fill(partitions: &[Partition], from: u32) {
    for partition in partitions {
        for key in from..from + 20 {
            partition.put(key.to_le_bytes(), [7; 100]).unwrap();
        }
    }
}

fn timed<T>(step: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let made = run();
    row(step, start.elapsed());
    made
}

fn row(step: &str, time: Duration) {
    println!("| {step} | {:.3} ms |", time.as_secs_f64() * 1000.0);
}

/// Median time of a sync of a small file that has grown by a few bytes.
fn sync_time(dir: &Path) -> Duration {
    let mut file = std::fs::File::create(dir.join("sync")).unwrap();
    let mut times: Vec<_> = (0..101)
        .map(|_| {
            file.write_all(b"some bytes").unwrap();
            let start = Instant::now();
            file.sync_data().unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}
