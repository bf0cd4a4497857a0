//! Lookups and gets in a run of resident SSTs by the kind of their index, over the same files.
//!
//! A run has 64 SSTs of 8 MiB with values of 100 bytes. All its blocks are in the cache. Each SST is open with three indexes:
//! the model made when it was written, separators between the same blocks, and a model learned from these. They share file
//! and cached blocks. The indexes take turns of 20 ms. A *lookup* finds the block of a key in one SST after the other and
//! waits for the lookup before; half of the keys are absent. A *get* finds a value at a random place of the run. It *waits*
//! for the get before, or does not: then a processor begins the next get while it waits for memory, as far as the number of
//! instructions between allows. *At hand* are keys that lie one behind the other in memory; else the key itself is read from
//! a random place.
//!
//! ```sh
//! cargo run --release -p pleach-table --example index_run -- --json figures.json
//! ```
//!
//! `--sets decimal,url` takes only these sets, `--ssts` another number of SSTs. A ratio is that of the time to the time with
//! separators in the same round, with the 95 % interval of its mean.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement tool")]
#![expect(clippy::cast_precision_loss, reason = "figures of a few digits")]
#![expect(clippy::cast_possible_truncation, reason = "places are below 2^32")]
#![expect(clippy::indexing_slicing, reason = "places are computed from lengths")]

#[path = "../index_table/data.rs"]
mod data;

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{KeySet, Part, mix64};
use pleach_env::{Env, Error, FileId, RealEnv, Result};
use pleach_index::IndexBuilder;
use pleach_table::{
    CursorMode, FrameCache, IndexChoice, IndexKind, Sst, SstBuilder, SstCursor, SstOptions, ValueKind,
    key_hash,
};

const SST_BYTES: u64 = 8 << 20;
/// Keys of an SST: fewer than fit, so that a run has at least as many SSTs as are wanted.
const KEYS_OF_SST: u64 = 65_000;
const PROBES: usize = 1 << 20;
/// Keys between one probe and the next, so that each probe is read from memory.
const STRIDE: usize = 0x9e37_79b9;
const TURN: Duration = Duration::from_millis(20);
const ROUNDS: usize = 61;

/// A run of SSTs with one kind of index.
struct Run {
    kind: &'static str,
    ssts: Vec<Arc<Sst>>,
}

/// Writes the keys as SSTs and opens them.
fn write(env: &Arc<dyn Env>, dir: &Path, keys: &[Vec<u8>], cache: &Arc<FrameCache>) -> Result<Vec<Arc<Sst>>> {
    let value: Vec<u8> = (0..100).map(|i| mix64(i) as u8).collect();
    let mut ssts = Vec::new();
    let mut keys = keys.iter().enumerate().peekable();
    while keys.peek().is_some() {
        let id = FileId(ssts.len() as u64 + 1);
        let path = dir.join(format!("{:06}.sst", id.0));
        let options =
            SstOptions { filter_bits_per_key: 0.0, index: IndexChoice::Learned, ..SstOptions::default() };
        let mut builder = SstBuilder::create(env, &path, id, options)?;
        for (i, key) in keys.by_ref() {
            builder.add(key, ValueKind::Put, &value, key_hash(0, key))?;
            if i % 64 == 63 && builder.estimated_len() >= SST_BYTES {
                break;
            }
        }
        let summary = builder.finish()?;
        let sst = Sst::open(env, &path, id, Some(&summary), Arc::clone(cache), false)?;
        env.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        ssts.push(Arc::new(sst));
    }
    Ok(ssts)
}

/// The SST with separators between its blocks.
fn with_separators(sst: &Arc<Sst>) -> Result<Sst> {
    let mut builder = IndexBuilder::new();
    let mut cursor = SstCursor::new(Arc::clone(sst), CursorMode::Cached);
    cursor.seek(b"")?;
    let (mut block, mut last) = (0, Vec::new());
    while cursor.valid() {
        let found = sst.block_for(cursor.key());
        if found != block {
            builder.boundary(&last, cursor.key());
            block = found;
        }
        last.clear();
        last.extend_from_slice(cursor.key());
        cursor.next()?;
    }
    Ok(sst.with_index(builder.finish_as(IndexChoice::Separators).0))
}

/// Keys to look up, the SST of each, and its hash.
struct Probes {
    bytes: Vec<u8>,
    places: Vec<(u32, u16, u16, u64)>,
}

impl Probes {
    /// `of_absent` of two are absent.
    fn new(part: &Part, ssts: &[Arc<Sst>], of_absent: usize) -> Self {
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for i in 0..PROBES {
            let keys = if i % 2 < of_absent { &part.missing } else { &part.keys };
            let key = &keys[mix64(i as u64) as usize % keys.len()];
            let after = ssts.partition_point(|sst| sst.summary().smallest.as_slice() <= key.as_slice());
            let place =
                (bytes.len() as u32, key.len() as u16, after.saturating_sub(1) as u16, key_hash(0, key));
            places.push(place);
            bytes.extend_from_slice(key);
        }
        Self { bytes, places }
    }

    fn probe(&self, at: usize) -> (&[u8], usize, u64) {
        let (from, len, sst, hash) = self.places[at];
        (&self.bytes[from as usize..from as usize + usize::from(len)], usize::from(sst), hash)
    }

    /// Nanoseconds of a lookup; the next key depends on the answer.
    fn lookups(&self, run: &Run, first: usize) -> f64 {
        let mut at = first;
        timed(|i| {
            let (key, sst, _) = self.probe(at);
            let found = run.ssts[sst].block_for(key);
            at = (first.wrapping_add(i.wrapping_mul(STRIDE)) + found as usize) % (PROBES / 64);
            found as usize
        })
    }

    /// Nanoseconds of a get, `stride` keys behind the last one; with `WAITS` the next key depends on the answer.
    fn gets<const WAITS: bool>(&self, run: &Run, first: usize, stride: usize) -> f64 {
        let mut found = 0;
        timed(|i| {
            let at = (first + i.wrapping_mul(stride) + if WAITS { found } else { 0 }) % PROBES;
            let (key, sst, hash) = self.probe(at);
            let got = run.ssts[sst].get(key, hash).ok().flatten();
            found = got.map_or(0, |(_, block, value)| usize::from(block[value.start]) + value.start);
            found
        })
    }
}

/// Nanoseconds of one call of `step`, over a turn.
fn timed(mut step: impl FnMut(usize) -> usize) -> f64 {
    let (start, mut steps) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        for i in steps..steps + 1024 {
            black_box(step(i));
        }
        steps += 1024;
    }
    start.elapsed().as_nanos() as f64 / steps as f64
}

/// The median of each run, and the mean ratio to the first run with half of its 95 % interval.
fn in_turns(runs: &[Run], turn: impl Fn(&Run, usize) -> f64) -> Vec<(f64, f64, f64)> {
    let mut turns = vec![Vec::new(); runs.len()];
    for round in 0..ROUNDS {
        for (i, (run, turns)) in runs.iter().zip(&mut turns).enumerate() {
            turns.push(turn(run, mix64((round * runs.len() + i) as u64) as usize % PROBES));
        }
    }
    let base = turns[0].clone();
    let figures = turns.into_iter().map(|mut turns| {
        // The fifth of the rounds that differ most from the others were interrupted.
        let mut logs: Vec<f64> = turns.iter().zip(&base).map(|(turn, base)| (turn / base).ln()).collect();
        logs.sort_by(f64::total_cmp);
        let logs = &logs[ROUNDS / 10..ROUNDS - ROUNDS / 10];
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (logs.len() - 1) as f64;
        turns.sort_by(f64::total_cmp);
        (turns[ROUNDS / 2], mean.exp(), 1.96 * (variance / logs.len() as f64).sqrt())
    });
    figures.collect()
}

fn measure(env: &Arc<dyn Env>, dir: &Path, part: &Part, objects: &mut Vec<String>) -> Result<()> {
    let bytes = part.keys.len() * (part.keys[0].len() + 130);
    let cache = FrameCache::new(bytes + bytes / 4);
    let written = write(env, dir, &part.keys, &cache)?;
    let mut separators = Vec::new();
    for sst in &written {
        (0..sst.blocks()).try_for_each(|block| sst.read_block(block).map(drop))?;
        separators.push(Arc::new(with_separators(sst)?));
    }
    let learned = written.iter().filter(|sst| sst.index_kind() == IndexKind::Learned).count();
    let later: Option<Vec<_>> =
        separators.iter().map(|sst| sst.learn_index(IndexChoice::Learned).ok().map(Arc::new)).collect();
    let mut runs = vec![Run { kind: "separators", ssts: separators }];
    if learned > 0 {
        runs.push(Run { kind: "learned", ssts: written });
    }
    runs.extend(later.map(|ssts| Run { kind: "later", ssts }));
    let (half, present) = (Probes::new(part, &runs[0].ssts, 1), Probes::new(part, &runs[0].ssts, 0));
    let lookups = in_turns(&runs, |run, first| half.lookups(run, first));
    let [at_hand, gets, waiting] = [
        in_turns(&runs, |run, first| present.gets::<false>(run, first, 1)),
        in_turns(&runs, |run, first| present.gets::<false>(run, first, STRIDE)),
        in_turns(&runs, |run, first| present.gets::<true>(run, first, STRIDE)),
    ];
    for (i, run) in runs.iter().enumerate() {
        let blocks: u32 = run.ssts.iter().map(|sst| sst.blocks()).sum();
        let resident: usize = run.ssts.iter().map(|sst| sst.index_memory()).sum();
        let figures = [
            ("ssts", run.ssts.len() as f64),
            ("resident_bytes_per_block", resident as f64 / f64::from(blocks)),
            ("lookup_ns", lookups[i].0),
            ("lookup_ratio", lookups[i].1),
            ("lookup_interval", lookups[i].2),
            ("get_at_hand_ns", at_hand[i].0),
            ("get_at_hand_ratio", at_hand[i].1),
            ("get_at_hand_interval", at_hand[i].2),
            ("get_ns", gets[i].0),
            ("get_ratio", gets[i].1),
            ("get_interval", gets[i].2),
            ("waiting_get_ns", waiting[i].0),
            ("waiting_get_ratio", waiting[i].1),
            ("waiting_get_interval", waiting[i].2),
        ];
        let mut line = format!("{:12} {:10}", part.name, run.kind);
        let mut json = format!("{{\"set\":\"{}\",\"kind\":\"{}\"", part.name, run.kind);
        for (name, value) in figures {
            write!(line, " {value:8.3}").expect("a string takes it");
            write!(json, ",\"{name}\":{value:.4}").expect("a string takes it");
        }
        println!("{line}");
        objects.push(json + "}");
    }
    Ok(())
}

/// The value of an option, if it was given.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

fn main() -> Result<()> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let dir: PathBuf = std::env::temp_dir().join(format!("pleach-index-run-{}", std::process::id()));
    env.create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
    let ssts: u64 = option("--ssts").map_or(64, |text| text.parse().expect("a number"));
    let wanted = option("--sets");
    let mut objects = Vec::new();
    println!(
        "set          index          SSTs resident lookup ns   ratio      +-  at hand    ratio      +-   get ns    ratio      +- waits ns    ratio      +-"
    );
    for set in KeySet::ALL {
        let name = set.description().0;
        if wanted.as_ref().is_none_or(|sets| sets.split(',').any(|wanted| wanted == name)) {
            measure(&env, &dir, &Part::run(set, ssts * KEYS_OF_SST), &mut objects)?;
        }
    }
    let _leftover = std::fs::remove_dir(&dir);
    if let Some(path) = option("--json") {
        let json = format!("[\n{}\n]\n", objects.join(",\n"));
        std::fs::write(&path, json).map_err(|e| Error::io("write", path.as_ref(), e))?;
    }
    Ok(())
}
