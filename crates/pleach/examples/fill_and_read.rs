//! Measures random puts and cached random gets with one thread: the figures of docs/testing/figures.md.
//!
//! `cargo run --release -p pleach --example fill_and_read -- [keys] [directory]`
//!
//! Keys are `%016d` of a scattered number, values 100 bytes; puts are `Buffered`. Gets read existing keys, in another
//! scattered order, after everything is in memory.

#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "it measures the machine")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pleach::{Db, Options, Partition, Result};

const VALUE_LEN: usize = 100;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let keys: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(10_000_000);
    let path = args.next().map_or_else(|| std::env::temp_dir().join("pleach-fill-and-read"), PathBuf::from);
    let _absent = std::fs::remove_dir_all(&path);
    let db = Options::new().memory(4 << 30).open(&path)?;
    let partition = db.default_partition();
    fill(&db, &partition, keys)?;
    read(&partition, keys, "gets, runs as they are")?;
    db.compact()?;
    println!("runs after compaction: {}", partition.stats()?.runs);
    read(&partition, keys, "gets, one run")?;
    scan(&partition, keys)?;
    drop((partition, db));
    std::fs::remove_dir_all(&path).expect("the directory is ours");
    Ok(())
}

/// Number `i` of a permutation of the even numbers below twice `keys`, scattered.
fn scattered(i: u64, keys: u64) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c55;
    2 * u64::try_from(u128::from(i) * u128::from(PRIME) % u128::from(keys)).expect("below keys")
}

fn write_key(number: u64, key: &mut [u8; 16]) {
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

fn fill(db: &Db, partition: &Partition, keys: u64) -> Result<()> {
    let (mut key, mut value) = ([0; 16], [b'v'; VALUE_LEN]);
    let mut worst = Duration::ZERO;
    let watch = Stopwatch::start();
    for i in 0..keys {
        let number = scattered(i, keys);
        write_key(number, &mut key);
        value[..8].copy_from_slice(&number.to_le_bytes());
        let before = (i % 64 == 0).then(Instant::now);
        partition.put(key, value)?;
        worst = worst.max(before.map_or(Duration::ZERO, |b| b.elapsed()));
    }
    watch.report("puts", keys);
    let stats = db.stats();
    println!(
        "  worst sampled put {worst:?}, stalled {:?}, runs {}, flushed {} MB, compacted {} MB",
        stats.stalled,
        stats.runs,
        stats.flush_bytes >> 20,
        stats.compaction_written_bytes >> 20
    );
    let settling = Instant::now();
    db.settle()?;
    let stats = db.stats();
    println!(
        "  settled after {:?}: runs {}, flushed {} MB, compacted {} MB, sst bytes {} MB",
        settling.elapsed(),
        stats.runs,
        stats.flush_bytes >> 20,
        stats.compaction_written_bytes >> 20,
        stats.sst_bytes >> 20
    );
    Ok(())
}

fn read(partition: &Partition, keys: u64, name: &str) -> Result<()> {
    let mut key = [0; 16];
    let pass = |count: u64, start: u64, key: &mut [u8; 16]| -> Result<u64> {
        let mut found = 0;
        for i in start..start + count {
            write_key(scattered(i.wrapping_mul(7_919) % keys, keys), key);
            found += u64::from(partition.get(*key)?.is_some_and(|v| v.len() == VALUE_LEN));
        }
        Ok(found)
    };
    for entry in partition {
        entry?; // Brings every block into the cache.
    }
    for warm in [true, false] {
        let watch = Stopwatch::start();
        let count = if warm { keys / 4 } else { keys };
        let found = pass(count, 1, &mut key)?;
        assert_eq!(found, count, "every key is found");
        if !warm {
            watch.report(name, keys);
        }
    }
    let watch = Stopwatch::start();
    for i in 0..keys / 4 {
        write_key(1 + scattered(i, keys), &mut key);
        assert!(partition.get(key)?.is_none(), "a key that was never put");
    }
    watch.report("  missing keys", keys / 4);
    Ok(())
}

fn scan(partition: &Partition, keys: u64) -> Result<()> {
    let mut key = [0; 16];
    let scans = (keys / 100).min(100_000);
    let watch = Stopwatch::start();
    for i in 0..scans {
        write_key(scattered(i, keys), &mut key);
        let mut range = partition.range(key..);
        for _ in 0..100 {
            if range.next_entry()?.is_none() {
                break;
            }
        }
    }
    watch.report("scans of 100", scans);
    Ok(())
}

/// Wall clock and this thread's processor time, from one moment on.
struct Stopwatch {
    wall: Instant,
    thread: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Self { wall: Instant::now(), thread: thread_time() }
    }

    fn report(&self, name: &str, count: u64) {
        let (wall, thread) =
            (self.wall.elapsed().as_secs_f64(), thread_time().saturating_sub(self.thread).as_secs_f64());
        let each = |seconds: f64| seconds * 1e9 / count as f64;
        println!(
            "{name}: {count} in {wall:.2} s, {:.0} K/s, {:.0} ns each ({:.0} of this thread)",
            count as f64 / wall / 1e3,
            each(wall),
            each(thread)
        );
    }
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
