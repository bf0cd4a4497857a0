//! Sizes and lookup times of SSTs by the kind of their index, over generated key sets.
//!
//! Each SST has 64 MiB of values of 100 bytes. Its keys are a sixteenth of those of a run. A lookup finds the block of a key
//! and waits for the lookup before; half of the keys are absent. A get finds the value of a key that is there, all blocks
//! being in the cache. The kinds take turns of 2 ms, and the median turn counts. `add ns` is processor time for an entry,
//! `finish` and training included; `open us` the least time of an open, the file being in the page cache.
//!
//! ```sh
//! cargo run --release -p pleach-table --example index_table -- --json figures.json
//! ```
//!
//! `--sets decimal,url` takes only these sets, `--mib 8` other lengths of SSTs, `--value 12` other lengths of values, and
//! `--spread` lengths from half to one and a half times that. `--lz4` compresses blocks; half of a value's bytes are random.
//! `place_ns` is the time to find a block's offset and length.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement tool")]
#![expect(clippy::cast_precision_loss, reason = "figures of a few digits")]
#![expect(clippy::cast_possible_truncation, reason = "places are below 2^32")]
#![expect(clippy::indexing_slicing, reason = "places are computed from lengths")]

mod data;

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{KeySet, Part, mix64};
use pleach_env::{Env, Error, FileId, RealEnv, Result};
use pleach_table::{
    Codec, FrameCache, IndexChoice, IndexKind, Sst, SstBuilder, SstOptions, SstSummary, ValueKind, key_hash,
};

/// Keys that are looked up, in random order.
const PROBES: usize = 1 << 12;
/// Short, so that on a busy machine most turns are not interrupted.
const TURN: Duration = Duration::from_millis(2);
const TURNS: usize = 301;
/// How often each SST is written. The least time counts.
const BUILDS: usize = 3;
/// How often each SST is opened. The least time counts.
const OPENS: usize = 5;
/// Lengths of SSTs for the share that is learned: from a flush's to a compaction's.
const SHARE_MIB: [u64; 3] = [1, 8, 64];

/// The file has separators, and a model is learned from them in memory.
const LATER: &str = "later";

const KINDS: [(&str, IndexChoice); 4] = [
    ("separators", IndexChoice::Separators),
    ("learned", IndexChoice::Learned),
    ("smallest", IndexChoice::Smallest),
    (LATER, IndexChoice::Separators),
];

struct Bench {
    env: Arc<dyn Env>,
    dir: PathBuf,
    values: Values,
    codec: Codec,
    sst_bytes: u64,
}

/// Values: random bytes, and as many zeros behind them if blocks are compressed.
struct Values {
    random: Vec<u8>,
    len: usize,
    is_spread: bool,
}

impl Values {
    fn new(len: usize, is_spread: bool) -> Self {
        let random = (0..1 << 20).map(|i| mix64(i) as u8).collect();
        Self { random, len, is_spread }
    }

    /// Puts the value of entry `no` into `value`.
    fn put(&self, no: u64, codec: Codec, value: &mut Vec<u8>) {
        let spread = if self.is_spread { mix64(no) as usize % (self.len + 1) } else { self.len / 2 };
        let len = self.len - self.len / 2 + spread;
        let random_len = if codec == Codec::None { len } else { len / 2 };
        let at = mix64(no ^ 1 << 63) as usize % (self.random.len() - random_len);
        value.clear();
        value.extend_from_slice(&self.random[at..at + random_len]);
        value.resize(len, 0);
    }
}

/// An SST that was written and opened.
struct Built {
    kind: &'static str,
    sst: Sst,
    summary: SstSummary,
    /// Microseconds of an open.
    open_us: f64,
}

impl Built {
    fn entries(&self) -> usize {
        usize::try_from(self.summary.entries).expect("they were in memory")
    }
}

impl Bench {
    /// Writes an SST of the first `keys` that it has room for, and opens it.
    fn build(
        &self,
        keys: &[Vec<u8>],
        (kind, choice): (&'static str, IndexChoice),
        bytes: u64,
    ) -> Result<Built> {
        let path = self.dir.join("000001.sst");
        let codec = self.codec;
        let options = SstOptions { codec, filter_bits_per_key: 0.0, index: choice, ..SstOptions::default() };
        let mut builder = SstBuilder::create(&self.env, &path, FileId(1), options)?;
        let mut value = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            self.values.put(i as u64, codec, &mut value);
            builder.add(key, ValueKind::Put, &value, key_hash(0, key))?;
            if i % 64 == 63 && builder.estimated_len() >= bytes {
                break;
            }
        }
        let summary = builder.finish()?;
        let cache_bytes = if codec == Codec::None { bytes + bytes / 4 } else { 3 * bytes };
        let cache = FrameCache::new(usize::try_from(cache_bytes).expect("a cache fits in memory"));
        let mut open_us = f64::MAX;
        let mut opened = None;
        for _ in 0..OPENS {
            let start = Instant::now();
            let sst = Sst::open(&self.env, &path, FileId(1), Some(&summary), Arc::clone(&cache), false)?;
            open_us = open_us.min(start.elapsed().as_nanos() as f64 / 1e3);
            opened = Some(sst);
        }
        self.env.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        Ok(Built { kind, sst: opened.expect("it was opened"), summary, open_us })
    }

    /// The share of SSTs of several lengths for which a model is taken.
    fn learned_share(&self, keys: &[Vec<u8>]) -> Result<f64> {
        let (mut learned, mut all) = (0, 0);
        for mib in SHARE_MIB.iter().filter(|&&mib| mib << 20 <= self.sst_bytes) {
            let mut rest = keys;
            while !rest.is_empty() {
                let built = self.build(rest, ("smallest", IndexChoice::Smallest), mib << 20)?;
                rest = &rest[built.entries()..];
                // The rest of a run may be of any length.
                if !rest.is_empty() || all == 0 {
                    all += 1;
                    learned += u32::from(built.sst.index_kind() == IndexKind::Learned);
                }
            }
        }
        Ok(f64::from(learned) / f64::from(all))
    }

    /// The objects of one set.
    fn measure(&self, part: &Part) -> Result<Vec<String>> {
        let mut add_ns = [f64::MAX; KINDS.len()];
        let mut all = Vec::new();
        for _ in 0..BUILDS {
            all.clear();
            for (kind, add_ns) in KINDS.into_iter().zip(&mut add_ns) {
                let start = processor_ns();
                let mut built = self.build(&part.keys, kind, self.sst_bytes)?;
                if kind.0 == LATER
                    && let Ok(learned) = built.sst.learn_index(IndexChoice::Learned)
                {
                    built.sst = learned;
                }
                *add_ns = add_ns.min((processor_ns() - start) / built.entries() as f64);
                all.push(built);
            }
        }
        let entries = all.iter().map(Built::entries).min().unwrap_or(0);
        let probes = Probes::of(&part.keys[..entries], &part.missing);
        let ssts: Vec<_> = all.iter().map(|built| &built.sst).collect();
        let ns = probes.in_turns(&ssts, |sst, key| sst.block_for(key) as usize);
        for sst in &ssts {
            (0..sst.blocks()).try_for_each(|block| sst.read_block(block).map(drop))?;
        }
        let get_ns = Probes::of(&part.keys[..entries], &[]).in_turns(&ssts, |sst, key| {
            sst.get(key, key_hash(0, key)).ok().flatten().map_or(0, |(.., value)| value.start)
        });
        let place_ns = probes.in_turns(&ssts, |sst, key| {
            let block = u32::try_from((key_word(key) * u64::from(sst.blocks())) >> 32);
            let (offset, len) = sst.block_extent(block.expect("below the number of blocks"));
            offset as usize + len as usize
        });
        let share = self.learned_share(&part.keys)?;
        let bytes_per_entry = |built: &Built| built.summary.file_len as f64 / built.summary.entries as f64;
        let objects = all.iter().enumerate().map(|(i, built)| {
            let blocks = f64::from(built.sst.blocks());
            let figures = [
                ("resident_bytes_per_block", built.sst.index_memory() as f64 / blocks),
                ("stored_bytes_per_block", stored_len(&built.summary) as f64 / blocks),
                ("file_overhead", bytes_per_entry(built) / bytes_per_entry(&all[0]) - 1.0),
                ("learned_share", share),
                ("lookup_ns", ns[i]),
                ("separators_lookup_ns", ns[0]),
                ("get_ns", get_ns[i]),
                ("separators_get_ns", get_ns[0]),
                ("blocks", blocks),
                ("entries", built.summary.entries as f64),
                ("add_ns", add_ns[i]),
                ("open_us", built.open_us),
                ("place_ns", place_ns[i]),
            ];
            object(&part.name, built, &figures)
        });
        Ok(objects.collect())
    }
}

/// Length of the stored index: what the tail of an SST without filter and note has beside footer, headers and properties.
fn stored_len(summary: &SstSummary) -> usize {
    let properties = 6 * 14 + 3 * 6 + summary.smallest.len() + summary.largest.len();
    summary.tail_len as usize - 64 - 2 * 16 - properties
}

fn object(set: &str, built: &Built, figures: &[(&str, f64)]) -> String {
    let is_learned = built.sst.index_kind() == IndexKind::Learned;
    let mut line = format!("{set:12} {:10} {:8}", built.kind, if is_learned { "model" } else { "" });
    let mut json = format!("{{\"set\":\"{set}\",\"kind\":\"{}\",\"is_learned\":{is_learned}", built.kind);
    for (name, value) in figures {
        write!(line, " {value:9.3}").expect("a string takes it");
        write!(json, ",\"{name}\":{value:.4}").expect("a string takes it");
    }
    println!("{line}");
    json + "}"
}

/// 32 bits that a key's last bytes give.
fn key_word(key: &[u8]) -> u64 {
    mix64(key.last_chunk().map_or(0, |last| u64::from_le_bytes(*last))) >> 32
}

/// Keys to look up: half of them are absent.
struct Probes {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Probes {
    fn of(keys: &[Vec<u8>], missing: &[Vec<u8>]) -> Self {
        let last = keys.last().expect("an SST has keys");
        let missing: Vec<&Vec<u8>> = missing.iter().filter(|key| *key < last).collect();
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for i in 0..PROBES {
            let at = mix64(i as u64) as usize;
            let key = if i % 2 == 0 || missing.is_empty() {
                &keys[at % keys.len()]
            } else {
                missing[at % missing.len()]
            };
            places.push((bytes.len(), key.len()));
            bytes.extend_from_slice(key);
        }
        Self { bytes, places }
    }

    /// Nanoseconds of `look` in each of the SSTs.
    fn in_turns(&self, ssts: &[&Sst], look: impl Fn(&Sst, &[u8]) -> usize) -> Vec<f64> {
        let mut turns = vec![Vec::new(); ssts.len()];
        for _ in 0..TURNS {
            for (sst, turns) in ssts.iter().zip(&mut turns) {
                turns.push(self.turn(|key| look(sst, key)));
            }
        }
        let median = |mut turns: Vec<f64>| {
            turns.sort_by(f64::total_cmp);
            turns[turns.len() / 2]
        };
        turns.into_iter().map(median).collect()
    }

    fn turn(&self, look: impl Fn(&[u8]) -> usize) -> f64 {
        let (start, mut lookups, mut at) = (Instant::now(), 0_usize, 0_usize);
        while start.elapsed() < TURN {
            for i in lookups..lookups + PROBES {
                let (from, len) = self.places[at];
                let found = look(&self.bytes[from..from + len]);
                // The next key depends on the answer.
                at = (i.wrapping_mul(0x9e37_79b9) + found) % PROBES;
            }
            lookups += PROBES;
        }
        black_box(at);
        start.elapsed().as_nanos() as f64 / lookups as f64
    }
}

/// Nanoseconds that this thread has had of a processor; of the clock where the system does not tell.
fn processor_ns() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let told = told.and_then(|text| text.split(' ').next()?.parse().ok());
    told.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0.0, |now| now.as_nanos() as f64)
    })
}

/// The value of an option, if it was given.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

fn main() -> Result<()> {
    let number = |name, default| option(name).map_or(default, |text| text.parse().expect("a number"));
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let dir = std::env::temp_dir().join(format!("pleach-index-table-{}", std::process::id()));
    env.create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
    let has = |name: &str| std::env::args().any(|arg| arg == name);
    let values = Values::new(number("--value", 100) as usize, has("--spread"));
    let codec = if has("--lz4") { Codec::Lz4 } else { Codec::None };
    let bench = Bench { env, dir, values, codec, sst_bytes: number("--mib", 64) << 20 };
    let wanted = option("--sets");
    let is_wanted =
        |name: &str| wanted.as_ref().is_none_or(|sets| sets.split(',').any(|wanted| wanted == name));
    let mut objects = Vec::new();
    println!(
        "set          kind       chosen    resident  stored B  overhead   learned lookup ns sep.'s ns    get ns sep.'s ns    blocks   entries    add ns   open us  place ns"
    );
    for set in KeySet::ALL {
        let name = set.description().0;
        if is_wanted(name) {
            objects.extend(bench.measure(&Part::of_run(set))?);
        }
        if matches!(set, KeySet::Ar | KeySet::Osm) && is_wanted(&format!("{name}-shuffle")) {
            objects.extend(bench.measure(&Part::of_shuffled(set))?);
        }
    }
    let _leftover = std::fs::remove_dir(&bench.dir);
    if let Some(path) = option("--json") {
        let json = format!("[\n{}\n]\n", objects.join(",\n"));
        std::fs::write(&path, json).map_err(|e| Error::io("write", path.as_ref(), e))?;
    }
    Ok(())
}
