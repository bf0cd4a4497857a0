//! Times the steps of a cached point read, adding, scanning, and the sizes of SSTs, on the real machine.
//!
//! `cargo run --release -p pleach-table --example table_bench`
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement tool")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pleach_env::{Env, Error, FileId, RealEnv, Result};
use pleach_table::{
    Codec, CursorMode, FrameCache, Sst, SstBuilder, SstCursor, SstOptions, ValueKind, key_hash,
};

const KEYS: usize = 500_000;
const ROUNDS: usize = 2_000_000;

fn key(i: usize) -> Vec<u8> {
    format!("{:016}", i * 7).into_bytes()
}

/// Nanoseconds per call of `body` with numbers from 0 to `rounds`: of the best hundredth part, and of the median one.
/// The best tells what the code costs where other processes share the machine.
fn time<T>(name: &str, rounds: usize, mut body: impl FnMut(usize) -> T) {
    let part = rounds / 100;
    let mut parts: Vec<u128> = (0..100)
        .map(|i| {
            let start = Instant::now();
            (i * part..(i + 1) * part).for_each(|i| drop(black_box(body(i))));
            start.elapsed().as_nanos()
        })
        .collect();
    parts.sort_unstable();
    let ns = |i: usize| parts[i] as f64 / part as f64;
    println!("{name:32} {:8.1} ns, median {:.1}", ns(0), ns(50));
}

fn build(
    env: &Arc<dyn Env>,
    path: &Path,
    options: SstOptions,
    value_len: usize,
    keys: &[Vec<u8>],
) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(1);
    // Values that LZ4 halves, as db_bench has them.
    let pool: Vec<u8> = (0..1 << 20).map(|i| if i / 50 % 2 == 0 { rng.u8(..) } else { b'x' }).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| key_hash(0, key)).collect();
    let mut builder = SstBuilder::create(env, path, FileId(1), options)?;
    let start = Instant::now();
    for (i, (key, &hash)) in keys.iter().zip(&hashes).enumerate() {
        let at = i * 37 % (pool.len() - value_len);
        builder.add(key, ValueKind::Put, &pool[at..at + value_len], hash)?;
    }
    let added = start.elapsed();
    let summary = builder.finish()?;
    println!(
        "{:?}, values of {value_len}: {:.1} ns an add, {:.1} ns with tail and sync; {:.3} of raw size in {} blocks, tail {}",
        options.codec,
        added.as_nanos() as f64 / keys.len() as f64,
        start.elapsed().as_nanos() as f64 / keys.len() as f64,
        summary.file_len as f64 / summary.raw_bytes as f64,
        summary.data_blocks,
        summary.tail_len,
    );
    Ok(())
}

/// Fills the cache, in memory never used before and then again.
fn admit(env: &Arc<dyn Env>, path: &Path, sst: Arc<Sst>, cache: &Arc<FrameCache>) -> Result<Arc<Sst>> {
    let admit = |sst: &Sst, name: &str| {
        let start = Instant::now();
        (0..sst.blocks()).try_for_each(|no| sst.read_block(no).map(drop))?;
        println!(
            "admit, {name}: {:.0} ns a block",
            start.elapsed().as_nanos() as f64 / f64::from(sst.blocks())
        );
        Ok(())
    };
    admit(&sst, "fresh memory")?;
    drop(sst);
    let sst = Arc::new(Sst::open(env, path, FileId(1), None, cache.clone(), false)?);
    admit(&sst, "used memory")?;
    Ok(sst)
}

fn points(sst: &Sst, keys: &[Vec<u8>]) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(2);
    // The keys stand close together, as a caller's would: their own cache misses are not what is measured.
    let chosen: Vec<u8> = (0..1 << 14).flat_map(|_| keys[rng.usize(..keys.len())].clone()).collect();
    let picks: Vec<(&[u8], u64, u32)> =
        chosen.chunks(16).map(|key| (key, key_hash(0, key), sst.block_for(key))).collect();
    let pick = |i: usize| picks[i & 0x3fff];
    let blocks = (0..sst.blocks()).map(|no| sst.read_block(no)).collect::<Result<Vec<_>>>()?;
    time("hash", ROUNDS, |i| key_hash(0, pick(i).0));
    time("filter", ROUNDS, |i| sst.may_contain(pick(i).1));
    time("filter, absent", ROUNDS, |i| sst.may_contain((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    time("index", ROUNDS, |i| sst.block_for(pick(i).0));
    time("cached block, one", ROUNDS, |_| sst.cached_block(black_box(5)));
    time("cached block, random", ROUNDS, |i| sst.cached_block(pick(i).2));
    time("find, one key", ROUNDS, |_| {
        let (key, hash, no) = black_box(picks[0]);
        sst.get_in_block(&blocks[no as usize], key, hash)
    });
    time("find, random of 256 keys", ROUNDS, |i| {
        let (key, hash, no) = picks[i & 0xff];
        sst.get_in_block(&blocks[no as usize], key, hash)
    });
    time("find, random", ROUNDS, |i| {
        let (key, hash, no) = pick(i);
        sst.get_in_block(&blocks[no as usize], key, hash)
    });
    time("get, all of it, random", ROUNDS, |i| {
        let (key, ..) = pick(i);
        sst.get(key, key_hash(0, key)).is_ok_and(|found| found.is_some())
    });
    Ok(())
}

fn walks(sst: &Arc<Sst>) -> Result<()> {
    for mode in [CursorMode::Cached, CursorMode::Streaming { forget: false }] {
        let mut cursor = SstCursor::new(sst.clone(), mode);
        let start = Instant::now();
        cursor.seek_first()?;
        let mut bytes = 0;
        while cursor.valid() {
            bytes += cursor.key().len() + cursor.value().len();
            cursor.next()?;
        }
        let ns = start.elapsed().as_nanos() as f64 / sst.summary().entries as f64;
        println!("step of a cursor, {mode:?}: {ns:.1} ns ({bytes} bytes)");
    }
    Ok(())
}

fn main() -> Result<()> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let dir = std::env::temp_dir().join(format!("pleach-table-bench-{}", std::process::id()));
    env.create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
    let path = dir.join("000001.sst");
    let remove = |path: &Path| env.remove_file(path).map_err(|e| Error::io("remove", path, e));
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    for codec in [Codec::Lz4, Codec::None] {
        for value_len in [400, 1000, 100] {
            let options = SstOptions { codec, ..SstOptions::default() };
            build(&env, &path, options, value_len, &keys[..if value_len == 100 { KEYS } else { 50_000 }])?;
            if value_len == 100 {
                let cache = FrameCache::new(256 << 20);
                let sst = Arc::new(Sst::open(&env, &path, FileId(1), None, cache.clone(), false)?);
                let start = Instant::now();
                sst.verify(|key| key_hash(0, key))?;
                println!("verify: {:.1} ns an entry", start.elapsed().as_nanos() as f64 / KEYS as f64);
                let sst = admit(&env, &path, sst, &cache)?;
                points(&sst, &keys)?;
                walks(&sst)?;
            }
            remove(&path)?;
        }
    }
    let removed = std::fs::remove_dir(&dir);
    println!("{removed:?}");
    Ok(())
}
