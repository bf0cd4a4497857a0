//! Settings of a run, from the command line; reports repeat them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use pleach_command::parse_bytes;
use serde::{Deserialize, Serialize};

use crate::data::{Distribution, KeySet, ValueSizes};
use crate::engine::{Durability, EngineConfig, Result};
use crate::workload::Planned;

/// Most keys of a dataset: orders of keys are kept in 32 bits.
const KEYS_MAX: u64 = u32::MAX as u64;

/// The settings of a run.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Settings {
    /// Engines to run, by name (see `list`).
    #[arg(long, value_delimiter = ',', default_value = "pleach")]
    pub(crate) engines: Vec<String>,

    /// Workloads in the order in which they run, by name (see `list`); `readrandom@2` runs with two threads for any
    /// `--threads`, `readrandom:500` with 500 operations for any `--ops`. The next turn of a workload draws other keys.
    #[arg(long, value_delimiter = ',', default_value = "fillrandom,readrandom")]
    pub(crate) workloads: Vec<String>,

    /// Keys that are loaded.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) keys: u64,

    /// What keys look like.
    #[arg(long, value_enum, default_value_t = KeySet::Decimal)]
    pub(crate) key_set: KeySet,

    /// Bytes of a value: a number, `uniform:<low>-<high>`, or `pareto` (Facebook's sizes, as in mixgraph).
    #[arg(long, default_value_t = ValueSizes::Fixed(100))]
    pub(crate) value_size: ValueSizes,

    /// Threads that send operations.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,

    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Operations of each workload, shared among its threads; by default as many as there are keys. Loads always put
    /// every key.
    #[arg(long, visible_alias = "reads")]
    pub(crate) ops: Option<u64>,

    /// Seconds after which a workload ends; loads go on until every key is there, or until `--load-limit`.
    #[arg(long)]
    pub(crate) duration: Option<f64>,

    /// Seconds after which a load that has not put every key ends (`fillseq`, `fillrandom`, and `overwrite`, which
    /// then heeds this instead of `--duration`). Workloads that need all keys then find them loaded in key order.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) load_limit: Option<f64>,

    /// Operations a second in all, started on schedule whether the engine keeps up or not; latencies count from the
    /// scheduled start. By default each thread starts its next operation when the last one has ended. A fill is paced only
    /// if nothing else is measured; `readseq`, `readreverse`, `fillstages` and `--in-flight` cannot be paced.
    #[arg(long)]
    pub(crate) rate: Option<f64>,

    /// Gets before the measured part of workloads that read; by default a tenth of the keys, at most a million.
    #[arg(long)]
    pub(crate) warmup: Option<u64>,

    /// Seconds after which the warm-up ends before `--warmup` is reached; by default half of `--duration`.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) warmup_limit: Option<f64>,

    /// Keys per write of loads, `overwrite` and `overwriteonce`.
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: usize,

    /// Keys per call of `multireadrandom`.
    #[arg(long, default_value_t = 32)]
    pub(crate) multi: usize,

    /// Reads in flight on each thread of `readrandom`, `readmissing`, `readwhilewriting`, `readwhileconverting` and
    /// `seekrandom`, by futures, for engines that give them.
    #[arg(long, value_name = "READS")]
    pub(crate) in_flight: Option<usize>,

    /// Entries read by a seek of `seekrandom`.
    #[arg(long, default_value_t = 10)]
    pub(crate) scan_len: usize,

    /// Which keys are touched by workloads whose name does not say.
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    pub(crate) distribution: Distribution,

    /// Writes a second of `readwhilewriting` and `readwhileconverting`.
    #[arg(long, default_value_t = 10_000.0)]
    pub(crate) write_rate: f64,

    /// Let that writer start its next write when the last one has ended, instead of at `--write-rate`.
    #[arg(long, conflicts_with = "write_rate")]
    pub(crate) unpaced_writes: bool,

    /// Memory of each engine for buffers and caches, such as 512MiB.
    #[arg(long, default_value = "512MiB", value_parser = parse_bytes::<u64>)]
    pub(crate) memory: u64,

    /// Limit of memory and page cache together for the whole process, by a memory cgroup.
    #[arg(long, value_parser = parse_bytes::<u64>)]
    pub(crate) memory_limit: Option<u64>,

    /// When a write counts as done.
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,

    /// Read past the page cache, by engines that can.
    #[arg(long)]
    pub(crate) direct: bool,

    /// Compress, by engines that can.
    #[arg(long)]
    pub(crate) compression: bool,

    /// Threads for flushes and compactions, for engines with such a setting; by default the machine's cores.
    #[arg(long)]
    pub(crate) background_threads: Option<usize>,

    /// A setting of one engine by its own name, as `<engine>.<name>=<value>`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) tune: Vec<String>,

    /// Do not wait for flushes and compactions after workloads that write.
    #[arg(long)]
    pub(crate) no_settle: bool,

    /// File that is locked (exclusive flock) while a workload runs and free in between. Other users of the machine can avoid
    /// measurements with it: `flock --shared FILE cargo build`.
    #[arg(long, value_name = "FILE")]
    pub(crate) machine_lock: Option<PathBuf>,

    /// Folder for the stores; it is created. The folders of the engines in it are emptied.
    #[arg(long, default_value = "pleach-bench.data")]
    pub(crate) dir: PathBuf,

    /// Keep the stores at the end.
    #[arg(long)]
    pub(crate) keep: bool,

    /// Flush and settle the store after so many keys of an unmeasured load, which one thread then does. So the files do not
    /// depend on the speed of the machine.
    #[arg(long, value_name = "KEYS")]
    pub(crate) settle_every: Option<u64>,

    /// Choose keys only among those that an unmeasured load puts after so many others.
    #[arg(long, value_name = "KEYS", default_value_t = 0)]
    pub(crate) loaded_after: u64,

    /// Choose keys only among the first so many that an unmeasured load puts.
    #[arg(long, value_name = "KEYS")]
    pub(crate) loaded_before: Option<u64>,

    /// Begin with the stores that an earlier run with --keep has left, where they hold the keys of this one. That run's
    /// --tune is not compared, so files may have been written with other settings.
    #[arg(long)]
    pub(crate) reuse: bool,

    /// Run the workloads so many times on each engine, the engines in turn, on stores that are loaded once.
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: usize,
}

impl Default for Settings {
    /// The defaults of the command line.
    fn default() -> Self {
        Self::from_words(&[]).expect("every option has a default")
    }
}

impl Settings {
    /// Parses them from words of a command line.
    pub(crate) fn from_words(words: &[&str]) -> Result<Self> {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            settings: Settings,
        }
        let words = std::iter::once("pleach-bench").chain(words.iter().copied());
        Ok(<Words as clap::Parser>::try_parse_from(words)?.settings)
    }

    /// An error if they contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let positive = [
            ("--keys", self.keys),
            ("--threads", self.threads as u64),
            ("--batch", self.batch as u64),
            ("--multi", self.multi as u64),
            ("--in-flight", self.in_flight.unwrap_or(1) as u64),
            ("--scan-len", self.scan_len as u64),
            ("--rounds", self.rounds as u64),
            ("--settle-every", self.settle_every.unwrap_or(1)),
            (
                "the number of keys between --loaded-after and --loaded-before",
                self.choices().map_or(1, |part| part.end.saturating_sub(part.start)),
            ),
        ];
        if let Some((name, _)) = positive.into_iter().find(|&(_, number)| number == 0) {
            return Err(format!("{name} must be at least one").into());
        }
        if self.keys > KEYS_MAX {
            return Err(format!("--keys must be at most {KEYS_MAX}").into());
        }
        let numbers = [
            ("--duration", self.duration),
            ("--load-limit", self.load_limit),
            ("--warmup-limit", self.warmup_limit),
            ("--rate", self.rate),
            ("--write-rate", Some(self.write_rate)),
        ];
        for (name, number) in numbers {
            if number.is_some_and(|number| !number.is_finite() || number <= 0.0) {
                return Err(format!("{name} must be above zero").into());
            }
        }
        self.check_rate(&self.plan()?)
    }

    /// An error if there is a rate that something would ignore.
    fn check_rate(&self, planned: &[Planned]) -> Result<()> {
        if self.rate.is_none() {
            return Ok(());
        }
        if self.in_flight.is_some() {
            let message = "--rate and --in-flight exclude each other: a read in flight begins when another one ends. Leave \
                --in-flight out; for more reads at a time raise --threads";
            return Err(message.into());
        }
        if let Some(planned) = planned.iter().find(|planned| !planned.workload.shape.can_be_paced()) {
            let name = planned.workload.name;
            return Err(format!("--rate does not apply to {name}: run it by itself, without --rate").into());
        }
        Ok(())
    }

    /// Whether nothing but fills is measured. A fill that prepares other workloads is to be over soon, so it is not paced.
    pub(super) fn only_fills(&self) -> bool {
        self.plan().is_ok_and(|planned| planned.iter().all(|planned| planned.workload.shape.is_fill()))
    }

    /// The workloads with their threads.
    pub(crate) fn plan(&self) -> Result<Vec<Planned>> {
        let mut turns = BTreeMap::new();
        let planned = self.workloads.iter().map(|text| {
            let planned = Planned::parse(text, self.threads)?;
            let next: &mut u64 = turns.entry((planned.workload.name, planned.threads)).or_default();
            let turn = *next;
            *next += 1;
            Ok(Planned { turn, ..planned })
        });
        Ok(planned.collect::<Result<_, String>>()?)
    }

    /// The configuration of `engine` with its store in `dir`.
    pub(crate) fn engine_config(&self, engine: &str, dir: PathBuf) -> Result<EngineConfig> {
        let mut tuning = BTreeMap::new();
        for text in &self.tune {
            let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
            let Some(((of, name), value)) = parts else {
                return Err(format!("--tune {text:?} is not of the form <engine>.<name>=<value>").into());
            };
            if of == engine {
                tuning.insert(name.to_owned(), value.to_owned());
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        Ok(EngineConfig {
            dir,
            memory_bytes: self.memory,
            durability: self.durability,
            direct_reads: self.direct,
            compression: self.compression,
            background_threads: self.background_threads.unwrap_or(cores),
            partitions: 1,
            tuning,
            known_tuning: BTreeSet::new(),
        })
    }

    /// The keys that operations choose among, by their position in a load in random order; `None` if among all.
    pub(crate) fn choices(&self) -> Option<Range<u64>> {
        let part = self.loaded_after..self.loaded_before.unwrap_or(self.keys).min(self.keys);
        (part != (0..self.keys)).then_some(part)
    }

    /// Gets before the measured part.
    pub(crate) fn warmup_ops(&self) -> u64 {
        self.warmup.unwrap_or_else(|| (self.keys / 10).min(1_000_000))
    }

    /// Seconds after which the warm-up ends. By default a slow engine spends less time on it than on the measured part.
    pub(crate) fn warmup_s(&self) -> Option<f64> {
        self.warmup_limit.or(self.duration.map(|seconds| seconds / 2.0))
    }

    /// The settings without paths of this machine, for reports.
    pub(crate) fn without_paths(&self) -> Self {
        Self { dir: PathBuf::new(), machine_lock: None, ..self.clone() }
    }
}
