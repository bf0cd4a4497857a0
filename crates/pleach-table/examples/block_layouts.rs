//! Compares blocks of value pointers and of short values in rows and in columns, on the real machine: bytes an entry, and the
//! time of adding, of lookups in a block, of seeks and of scans.
//!
//! `cargo run --release -p pleach-table --example block_layouts`
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement tool")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]
#![expect(clippy::big_endian_bytes, reason = "numbers whose order is that of their bytes")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pleach_env::{Env, Error, FileId, RealEnv, Result};
use pleach_table::{
    BlockRef, Codec, CursorMode, FrameCache, IndexChoice, Sst, SstBuilder, SstCursor, SstOptions, ValueKind,
    key_hash,
};

const SETS: [&str; 6] = [
    "dense, 8 bytes",
    "random, 8 bytes",
    "decimal, 16 bytes",
    "random digits, 16 bytes",
    "hexadecimal, 32 bytes",
    "URLs",
];
const ENTRIES: usize = 1_000_000;
const LOOKUPS: usize = 1 << 17;
/// Bytes of a value with its checksum.
const VALUE_LEN: usize = 1016 + 4;
/// Bytes of a segment.
const SEGMENT_LEN: usize = 64 << 20;

fn keys(set: &str) -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut keys: Vec<Vec<u8>> = (0..ENTRIES as u64)
        .map(|i| match set {
            "dense, 8 bytes" => i.to_be_bytes().to_vec(),
            "random, 8 bytes" => rng.u64(..).to_be_bytes().to_vec(),
            "decimal, 16 bytes" => format!("{:016}", i * 7).into_bytes(),
            "random digits, 16 bytes" => format!("{:016}", rng.u64(..10_000_000_000_000_000)).into_bytes(),
            "hexadecimal, 32 bytes" => format!("{:032x}", rng.u128(..)).into_bytes(),
            _ => {
                let site = ["docs", "shop", "news", "mail"][rng.usize(..4)];
                let page = format!("{:x}", rng.u64(..) >> rng.u32(..40));
                format!("https://{site}.example.org/{:03}/{page}", rng.u16(..500)).into_bytes()
            }
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The values of `count` entries, and their kind: pointers to values in key order or not, or numbers of 8 bytes.
fn values(count: usize, values: &str) -> (ValueKind, Vec<Vec<u8>>) {
    let mut places: Vec<usize> = (0..count).collect();
    if values != "in order" {
        fastrand::Rng::with_seed(2).shuffle(&mut places);
    }
    if values == "8 bytes" {
        return (
            ValueKind::Put,
            places.into_iter().map(|place| (place as u64).to_le_bytes().to_vec()).collect(),
        );
    }
    let per_segment = SEGMENT_LEN / VALUE_LEN;
    let pointer = |place: usize| {
        let (segment, offset) = (1000 + place / per_segment, 64 + place % per_segment * VALUE_LEN);
        let mut bytes = Vec::new();
        for number in [segment, offset, VALUE_LEN - 4] {
            pleach_coding::put_varint(&mut bytes, number as u64);
        }
        bytes
    };
    (ValueKind::ValuePointer, places.into_iter().map(pointer).collect())
}

struct Place<'a> {
    env: &'a Arc<dyn Env>,
    path: &'a Path,
}

impl Place<'_> {
    /// Nanoseconds of adding an entry: the best of three.
    fn build(
        &self,
        keys: &[Vec<u8>],
        kind: ValueKind,
        values: &[Vec<u8>],
        options: SstOptions,
    ) -> Result<f64> {
        let hashes: Vec<u64> = keys.iter().map(|key| key_hash(0, key)).collect();
        let mut best = f64::MAX;
        for _ in 0..3 {
            let _missing_at_first = self.env.remove_file(self.path);
            let mut builder = SstBuilder::create(self.env, self.path, FileId(1), options)?;
            let start = Instant::now();
            for ((key, value), &hash) in keys.iter().zip(values).zip(&hashes) {
                builder.add(key, kind, value, hash)?;
            }
            best = best.min(start.elapsed().as_nanos() as f64 / keys.len() as f64);
            builder.finish()?;
        }
        Ok(best)
    }

    fn open(&self) -> Result<Arc<Sst>> {
        Sst::open(self.env, self.path, FileId(1), None, FrameCache::new(256 << 20), false).map(Arc::new)
    }
}

/// Nanoseconds of a call of `body` with numbers below `LOOKUPS`: the best of eight rounds.
fn time<T>(mut body: impl FnMut(usize) -> T) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..LOOKUPS).for_each(|i| drop(black_box(body(i))));
        start.elapsed().as_nanos() as f64 / LOOKUPS as f64
    };
    (0..8).map(round).fold(f64::MAX, f64::min)
}

/// Nanoseconds of a lookup in blocks that the processor's caches mostly do not have, in sixteen that they have, and of a seek.
fn searches(sst: &Arc<Sst>, keys: &[Vec<u8>]) -> Result<[f64; 3]> {
    let mut rng = fastrand::Rng::with_seed(3);
    let blocks = (0..sst.blocks()).map(|no| sst.read_block(no)).collect::<Result<Vec<BlockRef>>>()?;
    let pick = |keys: Vec<&Vec<u8>>| -> Vec<(Vec<u8>, u64, u32)> {
        let with = |key: &Vec<u8>| (key.clone(), key_hash(0, key), sst.block_for(key));
        keys.into_iter().map(with).collect()
    };
    let anywhere = pick((0..LOOKUPS).map(|_| &keys[rng.usize(..keys.len())]).collect());
    let first = keys.partition_point(|key| sst.block_for(key) < 16);
    let near = pick((0..LOOKUPS).map(|_| &keys[rng.usize(..first)]).collect());
    let get = |picks: &[(Vec<u8>, u64, u32)]| {
        time(|i| {
            let (key, hash, no) = &picks[i];
            sst.get_in_block(&blocks[*no as usize], key, *hash).expect("it is there")
        })
    };
    let mut cursor = SstCursor::new(Arc::clone(sst), CursorMode::Cached);
    let seek = time(|i| cursor.seek(&anywhere[i].0));
    Ok([get(&anywhere), get(&near), seek])
}

/// Nanoseconds of a step of a scan.
fn scan(sst: &Arc<Sst>) -> Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let mut cursor = SstCursor::new(Arc::clone(sst), CursorMode::Streaming { forget: false });
        let start = Instant::now();
        cursor.seek_first()?;
        let mut bytes = 0;
        while cursor.valid() {
            bytes += cursor.key().len() + cursor.value().len();
            cursor.next()?;
        }
        black_box(bytes);
        best = best.min(start.elapsed().as_nanos() as f64 / sst.summary().entries as f64);
    }
    Ok(best)
}

fn main() -> Result<()> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let dir = std::env::temp_dir().join(format!("pleach-block-layouts-{}", std::process::id()));
    env.create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
    let path = dir.join("000001.sst");
    let place = Place { env: &env, path: &path };
    println!(
        "| keys | values | layout | B an entry | index B | add ns | lookup ns | near | seek | scan step |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for set in SETS {
        let keys = keys(set);
        for order in ["in order", "random", "8 bytes"] {
            let (kind, values) = values(keys.len(), order);
            for columns in [false, true] {
                let index = IndexChoice::Smallest;
                let options = SstOptions { columns, codec: Codec::None, index, ..SstOptions::default() };
                let add = place.build(&keys, kind, &values, options)?;
                let sst = place.open()?;
                let (summary, count) = (sst.summary(), keys.len() as f64);
                let data = (summary.file_len - u64::from(summary.tail_len)) as f64 / count;
                let index = sst.index_memory();
                let [cold, warm, seek] = searches(&sst, &keys)?;
                let step = scan(&sst)?;
                let layout = if columns { "columns" } else { "rows" };
                println!(
                    "| {set} | {order} | {layout} | {data:.2} | {index} | {add:.1} | {cold:.1} | {warm:.1} | {seek:.1} | {step:.1} |"
                );
            }
        }
    }
    let removed = env.remove_file(&path).and_then(|()| std::fs::remove_dir(&dir));
    removed.map_err(|e| Error::io("remove", &dir, e))
}
