//! What a compaction of a key range writes: ranges of one part in a hundred of a store with some runs above its bottom.
//!
//! ```sh
//! cargo run --release -p pleach --example range_compaction -- 4
//! ```
//!
//! The argument is the size of the store in GiB, 1 by default.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    clippy::cast_precision_loss,
    reason = "a program that measures the real machine"
)]

use std::time::{Duration, Instant};

use pleach::{Db, Options};

const VALUE_LEN: usize = 1000;
const CALLS: u64 = 20;

/// A random sequence (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn put(db: &Db, random: &mut Random, key: u64) -> pleach::Result<()> {
    let mut value = [0; VALUE_LEN];
    value.chunks_exact_mut(8).for_each(|eight| eight.copy_from_slice(&random.next().to_le_bytes()));
    db.default_partition().put(key.to_be_bytes(), value)
}

/// Bytes that were written to SSTs.
fn written(db: &Db) -> u64 {
    let stats = db.stats();
    stats.flush_bytes + stats.compaction_written_bytes
}

/// Waits until nothing has been written for a second.
fn settle(db: &Db) {
    loop {
        let before = written(db);
        std::thread::sleep(Duration::from_secs(1));
        if written(db) == before && db.stats().compactions_running == 0 {
            return;
        }
    }
}

fn main() -> pleach::Result<()> {
    let gib = std::env::args().nth(1).map_or(1, |text| text.parse().expect("a number of GiB"));
    let keys: u64 = (gib << 30) / VALUE_LEN as u64;
    let dir = tempfile::tempdir().expect("a directory");
    let db = Options::new().memory(512 << 20).open(dir.path())?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for n in 0..keys {
        put(&db, &mut random, n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys)?;
    }
    db.flush()?;
    settle(&db);
    // Some of them again, in three runs above the others.
    for _ in 0..3 {
        for _ in 0..keys / 100 {
            let key = random.next() % keys;
            put(&db, &mut random, key)?;
        }
        db.flush()?;
    }
    settle(&db);
    let stats = db.stats();
    println!("{} runs, {} SSTs, {} MiB", stats.runs, stats.ssts, stats.sst_bytes >> 20);
    let (all, mut shares, mut longest) = (stats.sst_bytes as f64, Vec::new(), Duration::ZERO);
    for _ in 0..CALLS {
        let from = random.next() % (keys - keys / 100);
        let (before, start) = (written(&db), Instant::now());
        db.default_partition().compact_range(from.to_be_bytes()..(from + keys / 100).to_be_bytes())?;
        longest = longest.max(start.elapsed());
        shares.push((written(&db) - before) as f64 / all);
    }
    shares.sort_by(f64::total_cmp);
    println!(
        "{CALLS} ranges of 1 %: {:.2} % of the store written in the median, {:.2} % at most, {:.2} s at most",
        shares[shares.len() / 2] * 100.0,
        shares[shares.len() - 1] * 100.0,
        longest.as_secs_f64()
    );
    db.close()
}
