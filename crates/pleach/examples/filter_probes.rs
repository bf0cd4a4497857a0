//! Measures what filters let through: the figures on filters of docs/testing/figures.md.
//!
//! `cargo run --release -p pleach --example filter_probes -- [keys] [directory] [bits per key]`
//!
//! Puts `keys` keys in scattered order and flushes 2400 times on the way, each time waiting for the compactions, so that
//! a forest as full as a slow writer's grows. After every 199th flush it prints the runs, the memory of the filters per
//! entry and, from a million gets of missing keys, the wasted probes per get.

#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::path::PathBuf;
use std::time::Duration;

use pleach::{Db, Options, Partition, Result};

const VALUE_LEN: usize = 40;
const FLUSHES: u64 = 2400;
/// A prime, so that the forest is seen in all states of fullness.
const STOP_EVERY: u64 = 199;
const MISSING: u64 = 1_000_000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let keys: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(4_000_000);
    let path = args.next().map_or_else(|| std::env::temp_dir().join("pleach-filter-probes"), PathBuf::from);
    let bits: f32 = args.next().and_then(|a| a.parse().ok()).unwrap_or(10.0);
    let _absent = std::fs::remove_dir_all(&path);
    let options = Options::new().memory(1 << 30).filter_bits_per_key(bits);
    let db = options.open(&path)?;
    let partition = db.default_partition();
    println!("entries runs ssts bits_per_entry wasted_per_missing_get ns_per_missing_get");
    let mut sums = (0.0, 0.0, 0.0);
    for flush in 0..FLUSHES {
        for i in keys * flush / FLUSHES..keys * (flush + 1) / FLUSHES {
            partition.put(key(2 * scattered(i, keys)), [b'v'; VALUE_LEN])?;
        }
        db.settle()?;
        if (flush + 1) % STOP_EVERY == 0 {
            let (runs, bits, wasted) = probe(&db, &partition, keys)?;
            sums = (sums.0 + runs, sums.1 + bits, sums.2 + wasted);
        }
    }
    let stops = (FLUSHES / STOP_EVERY) as f64;
    println!("mean: {:.1} runs, {:.3} bits, {:.5} wasted", sums.0 / stops, sums.1 / stops, sums.2 / stops);
    drop((partition, db));
    std::fs::remove_dir_all(&path).expect("the directory is ours");
    Ok(())
}

/// Runs, bits per entry and wasted probes per get of a missing key.
fn probe(db: &Db, partition: &Partition, keys: u64) -> Result<(f64, f64, f64)> {
    let (before, started) = (db.stats(), thread_time());
    for i in 0..MISSING {
        assert!(partition.get(key(2 * scattered(i, keys) + 1))?.is_none(), "a key that was never put");
    }
    let (after, seconds) = (db.stats(), thread_time().saturating_sub(started).as_secs_f64());
    let bits = 8.0 * after.filter_bytes as f64 / after.sst_entries as f64;
    let wasted = (after.wasted_probes - before.wasted_probes) as f64 / MISSING as f64;
    println!(
        "{} {} {} {bits:.3} {wasted:.5} {:.0}",
        after.sst_entries,
        after.runs,
        after.ssts,
        1e9 * seconds / MISSING as f64
    );
    Ok((after.runs as f64, bits, wasted))
}

/// Number `i` of a permutation of the numbers below `keys`, scattered.
fn scattered(i: u64, keys: u64) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c55;
    u64::try_from(u128::from(i) * u128::from(PRIME) % u128::from(keys)).expect("below keys")
}

fn key(number: u64) -> [u8; 16] {
    let (mut key, mut rest) = ([0; 16], number);
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
