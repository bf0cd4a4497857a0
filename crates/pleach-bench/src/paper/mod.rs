//! Figures of papers, repeated on smaller data. Each figure is a function that runs its workloads and prints the paper's
//! results beside ours. docs/papers.md maps the figures to the papers.

mod learnedkv;
mod reshape;
mod sifrdb;
mod tridentkv;

use std::path::PathBuf;

use clap::Args;
use pleach_command::{Interrupt, SecondSignal, parse_bytes};

use crate::bench::{Record, Settings, remove_store, run_in_child};
use crate::engine::{EngineFactory, Result};
use crate::report;
use crate::results;

/// Arguments of `pleach-bench paper`.
#[derive(Args)]
pub(crate) struct PaperArgs {
    /// `list`, or the name of a figure.
    name: String,
    /// Engines to run, instead of the figure's own choice of Pleach's shapes.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Keys, instead of the figure's own scaled-down number.
    #[arg(long)]
    keys: Option<u64>,
    /// Memory of each engine. A figure that varies the memory refuses it.
    #[arg(long, value_parser = parse_bytes::<u64>)]
    memory: Option<u64>,
    /// The figures of LearnedKV with memory of a tenth of the pairs, and past the page cache where the engine can.
    #[arg(long)]
    uncached: bool,
    /// Limit of memory and page cache together for each process, as of runs.
    #[arg(long, value_parser = parse_bytes::<u64>)]
    memory_limit: Option<u64>,
    /// Seconds after which a load ends, as of runs.
    #[arg(long, value_name = "SECONDS")]
    load_limit: Option<f64>,
    /// Seconds of each measurement of reads, instead of the figure's own.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// How often the indexes of `tridentkv-fig16` to `fig20` are compared, in turns that each begin with another one; the median
    /// counts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// A setting of one engine by its own name, as `<engine>.<name>=<value>`. A setting that the figure varies is refused.
    #[arg(long, value_delimiter = ',')]
    tune: Vec<String>,
    /// File that is locked while a workload runs, as of runs.
    #[arg(long, value_name = "FILE")]
    machine_lock: Option<PathBuf>,
    /// Folder for the stores. Those of the engines in it are removed first, and at the end.
    #[arg(long, default_value = "pleach-bench.data")]
    dir: PathBuf,
    /// Also write all records to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A figure or table of a paper.
struct Figure {
    name: &'static str,
    /// What it shows.
    about: &'static str,
    /// Engines unless the command line names some.
    engines: &'static [&'static str],
    run: fn(&mut Session<'_>) -> Result<()>,
}

/// The shape of `SifrDB`.
const FOREST: &[&str] = &["pleach-forest"];
/// The paper's shape, and the one that Pleach has by default.
const FORESTS: &[&str] = &["pleach-forest", "pleach"];
/// All shapes.
const SHAPES: &[&str] = &["pleach-forest", "pleach", "pleach-leveled"];

/// Values of all lengths in the tree, as in the papers that compare reads of them.
const INLINE: &[&str] = &["pleach-inline"];
/// Values apart from keys, and in the tree.
const APART: &[&str] = &["pleach-separated", "pleach-inline"];

const FIGURES: &[Figure] = &[
    Figure {
        name: "learnedkv-fig3",
        about: "LearnedKV, Fig. 3: time of a put and of a get by ten stages of a growing store",
        engines: APART,
        run: learnedkv::fig3,
    },
    Figure {
        name: "learnedkv-fig8",
        about: "LearnedKV, Fig. 8: reads and writes of a load and three phases of half gets, half updates",
        engines: APART,
        run: learnedkv::fig8,
    },
    Figure {
        name: "learnedkv-fig9",
        about: "LearnedKV, Fig. 9: reads and writes by their shares, 7:3 to 0:10",
        engines: APART,
        run: learnedkv::fig9,
    },
    Figure {
        name: "learnedkv-fig10",
        about: "LearnedKV, Fig. 10: range scans of 500 KB after no, 0.5 and 1 update a key, and after a conversion",
        engines: APART,
        run: learnedkv::fig10,
    },
    Figure {
        name: "learnedkv-fig12",
        about: "LearnedKV, Fig. 12: reads and writes against B-trees",
        engines: APART,
        run: learnedkv::fig12,
    },
    Figure {
        name: "learnedkv-fig13",
        about: "LearnedKV, Fig. 13: reads and writes with filters off and on",
        engines: APART,
        run: learnedkv::fig13,
    },
    Figure {
        name: "learnedkv-table1",
        about: "LearnedKV, Table 1: bytes of keys with pointers, models, upper runs and values",
        engines: APART,
        run: learnedkv::table1,
    },
    Figure {
        name: "learnedkv-table2",
        about: "LearnedKV, Table 2: time of reads through the bottom, through the upper runs, and of the value",
        engines: APART,
        run: learnedkv::table2,
    },
    Figure {
        name: "learnedkv-values",
        about: "LearnedKV, section 5: reads and writes by the size of values, 128 B to 16 KiB",
        engines: APART,
        run: learnedkv::values,
    },
    Figure {
        name: "learnedkv-space",
        about: "LearnedKV, section 5: reads and writes by the space allowed, 1.1 to 2 times the pairs",
        engines: &["pleach-separated"],
        run: learnedkv::space,
    },
    Figure {
        name: "learnedkv-overwrites",
        about: "LearnedKV, beside it: write amplification and space of a load and of overwrites of four times the data",
        engines: APART,
        run: learnedkv::overwrites,
    },
    Figure {
        name: "learnedkv-latency",
        about: "LearnedKV, sections 4.2 and 4.3: latency of puts and gets while values are converted, and while they are moved",
        engines: &["pleach-separated"],
        run: learnedkv::latency,
    },
    Figure {
        name: "reshape-fig1",
        about: "Key reshaping, Fig. 1: a B+tree and an LSM tree, in and out of order",
        engines: reshape::TREES,
        run: reshape::fig1,
    },
    Figure {
        name: "reshape-fig8",
        about: "Key reshaping, Fig. 8: inserts in and out of order by the number of threads",
        engines: reshape::ALL,
        run: reshape::fig8,
    },
    Figure {
        name: "reshape-fig10",
        about: "Key reshaping, Fig. 10: mean and tail latency of inserts",
        engines: reshape::ALL,
        run: reshape::fig10,
    },
    Figure {
        name: "reshape-fig11",
        about: "Key reshaping, Fig. 11: YCSB A and F",
        engines: reshape::ALL,
        run: reshape::fig11,
    },
    Figure {
        name: "reshape-fig15",
        about: "Key reshaping, Fig. 15: size of the table beside the store by the size of values",
        engines: reshape::REMAPPED,
        run: reshape::fig15,
    },
    Figure {
        name: "reshape-table1",
        about: "Key reshaping, Table 1: what the remapping table costs inserts, at the paper's rate and at full speed",
        engines: reshape::PAPER,
        run: reshape::table1,
    },
    Figure {
        name: "reshape-table2",
        about: "Key reshaping, Table 2: what it costs updates",
        engines: reshape::PAPER,
        run: reshape::table2,
    },
    Figure {
        name: "sifrdb-fig2",
        about: "SifrDB, Figs. 2 and 3: write amplification, storage and read latency by growth factor",
        engines: SHAPES,
        run: sifrdb::fig2,
    },
    Figure {
        name: "sifrdb-table2",
        about: "SifrDB, Table 2: processor time and tail latency of gets, one search after the other and 16 at the same time",
        engines: FOREST,
        run: sifrdb::table2,
    },
    Figure {
        name: "sifrdb-fig6",
        about: "SifrDB, Fig. 6: read latency by the number of searches at the same time",
        engines: FOREST,
        run: sifrdb::fig6,
    },
    Figure {
        name: "sifrdb-fig7",
        about: "SifrDB, Fig. 7: read latency, one search after the other and 16 at the same time, by memory",
        engines: FOREST,
        run: sifrdb::fig7,
    },
    Figure {
        name: "sifrdb-fig9",
        about: "SifrDB, Fig. 9: all of the following four from the same loads",
        engines: FORESTS,
        run: sifrdb::fig9,
    },
    Figure {
        name: "sifrdb-fig9a",
        about: "SifrDB, Fig. 9a: write amplification of random and sequential inserts",
        engines: FORESTS,
        run: sifrdb::fig9a,
    },
    Figure {
        name: "sifrdb-fig9b",
        about: "SifrDB, Fig. 9b: throughput of random and sequential inserts",
        engines: FORESTS,
        run: sifrdb::fig9b,
    },
    Figure {
        name: "sifrdb-fig9c",
        about: "SifrDB, Fig. 9c: storage needed while random inserts go on",
        engines: FORESTS,
        run: sifrdb::fig9c,
    },
    Figure {
        name: "sifrdb-fig9d",
        about: "SifrDB, Fig. 9d: memory needed while random inserts go on",
        engines: FORESTS,
        run: sifrdb::fig9d,
    },
    Figure {
        name: "sifrdb-fig11",
        about: "SifrDB, Figs. 11a and 11b, Table 4: read latency and read amplification of stores by memory",
        engines: SHAPES,
        run: sifrdb::fig11,
    },
    Figure {
        name: "sifrdb-fig12",
        about: "SifrDB, Fig. 12: read latency and memory of SST-level filters by bits per key",
        engines: FOREST,
        run: sifrdb::fig12,
    },
    Figure {
        name: "sifrdb-fig13",
        about: "SifrDB, Fig. 13: read latency by policy and by the stage that holds the key",
        engines: FOREST,
        run: sifrdb::fig13,
    },
    Figure {
        name: "sifrdb-fig14",
        about: "SifrDB, Fig. 14: policies and numbers of searches, filters off and on",
        engines: FOREST,
        run: sifrdb::fig14,
    },
    Figure {
        name: "sifrdb-fig15",
        about: "SifrDB, Figs. 15 and 16: throughput and latency under YCSB by policy, filters off and on",
        engines: &["pleach-forest", "pleach-leveled"],
        run: sifrdb::fig15,
    },
    Figure {
        name: "sifrdb-range",
        about: "SifrDB, section 5.3.4: range queries, seeks one after the other and all at the same time",
        engines: &["pleach-forest", "pleach-leveled"],
        run: sifrdb::range,
    },
    Figure {
        name: "tridentkv-fig10",
        about: "TridentKV, Fig. 10: random reads by the size of values",
        engines: INLINE,
        run: tridentkv::fig10,
    },
    Figure {
        name: "tridentkv-fig11",
        about: "TridentKV, Fig. 11: sequential reads by the size of values",
        engines: INLINE,
        run: tridentkv::fig11,
    },
    Figure {
        name: "tridentkv-fig13",
        about: "TridentKV, Fig. 13: reads on this device, and on a SATA SSD and a disk that are simulated by latency",
        engines: &["pleach"],
        run: tridentkv::fig13,
    },
    Figure {
        name: "tridentkv-fig14",
        about: "TridentKV, Fig. 14: YCSB",
        engines: &["pleach"],
        run: tridentkv::fig14,
    },
    Figure {
        name: "tridentkv-fig15",
        about: "TridentKV, Fig. 15: asynchronous reads and learned indexes off and on, with caches of 5 % and 50 % of the data",
        engines: &["pleach"],
        run: tridentkv::fig15,
    },
    Figure {
        name: "tridentkv-fig16",
        about: "TridentKV, Fig. 16: gets by the size of values, with separators and learned indexes",
        engines: INLINE,
        run: tridentkv::fig16,
    },
    Figure {
        name: "tridentkv-fig17",
        about: "TridentKV, Fig. 17: gets by the size of the cache, with separators and learned indexes",
        engines: &["pleach"],
        run: tridentkv::fig17,
    },
    Figure {
        name: "tridentkv-fig18",
        about: "TridentKV, Fig. 18: blocking and asynchronous gets by the number of threads",
        engines: &["pleach"],
        run: tridentkv::fig18,
    },
    Figure {
        name: "tridentkv-fig19",
        about: "TridentKV, Figs. 3a and 19: puts by the number of threads and the time of training",
        engines: &["pleach"],
        run: tridentkv::fig19,
    },
    Figure {
        name: "tridentkv-fig20",
        about: "TridentKV, Fig. 20: gets by keys and the time of training, after puts of one thread (20a) and of eight (20b)",
        engines: &["pleach"],
        run: tridentkv::fig20,
    },
];

/// A figure's way to run engines and to print.
struct Session<'a> {
    args: &'a PaperArgs,
    /// Those that are run.
    engines: Vec<EngineFactory>,
    interrupt: Interrupt,
    records: Vec<Record>,
}

impl Session<'_> {
    /// Keys as the caller wants them, or the figure's own number.
    fn keys(&self, own: u64) -> u64 {
        self.args.keys.unwrap_or(own)
    }

    /// An error if the caller gives the memory. For figures that choose it by the data.
    fn choose_memory(&self) -> Result<()> {
        match self.args.memory {
            Some(_) => {
                Err(format!("figure {} chooses the memory by the data; leave --memory out", self.args.name)
                    .into())
            }
            None => Ok(()),
        }
    }

    /// Seconds of a measurement as the caller wants them, or the figure's own.
    fn seconds(&self, own: f64) -> f64 {
        self.args.duration.unwrap_or(own)
    }

    /// Runs `words`, a command line without engines, on one engine in a process of its own.
    fn run(&mut self, engine: &str, words: &[String]) -> Result<Vec<Record>> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut settings = Settings::from_words(&words)?;
        settings.engines = vec![engine.to_owned()];
        settings.dir.clone_from(&self.args.dir);
        if let Some(memory) = self.args.memory {
            settings.memory = memory;
        }
        settings.memory_limit = self.args.memory_limit;
        settings.load_limit = self.args.load_limit;
        settings.machine_lock.clone_from(&self.args.machine_lock);
        check_tuning(&settings.tune, &self.args.tune)?;
        settings.tune.extend(self.args.tune.iter().cloned());
        settings.check()?;
        let outcome = run_in_child(engine, &settings, &self.interrupt, &mut |_| ());
        self.records.extend(outcome.records.iter().cloned());
        // So that a later failure does not lose these records.
        if let Err(error) = self.save() {
            report::complain(&format!("pleach-bench: {error}"));
        }
        match outcome.error {
            Some(error) => Err(error.into()),
            None => Ok(outcome.records),
        }
    }

    /// Writes the records so far to the file that the caller wants.
    fn save(&self) -> Result<()> {
        if self.records.is_empty() {
            return Ok(()); // The figure refused its arguments. Earlier results stay.
        }
        self.args.json.as_ref().map_or(Ok(()), |path| results::replace(path, &report::json(&self.records)?))
    }

    /// Removes a store that a run has kept.
    fn remove_store(&self, engine: &str) {
        remove_store(&self.args.dir.join(engine));
    }
}

/// An error if the caller gives a setting that the figure gives.
fn check_tuning(figure: &[String], caller: &[String]) -> Result<()> {
    let name_of = |tune: &str| tune.split_once('=').map_or(tune, |(name, _)| name).to_owned();
    match caller.iter().find(|tune| figure.iter().any(|own| name_of(own) == name_of(tune))) {
        Some(tune) => {
            Err(format!("the figure sets {} itself; leave --tune {tune} out", name_of(tune)).into())
        }
        None => Ok(()),
    }
}

/// Whether it is Pleach, in any shape.
fn is_pleach(engine: &str) -> bool {
    engine == "pleach" || engine.starts_with("pleach-")
}

/// The name of an engine's setting for the bits per key of its filters; none where it has no filters.
fn filter_setting(engine: &str) -> Option<&'static str> {
    match engine {
        "leveldb" | "fjall" | "fjall-blob" => Some("filter_bits"),
        _ if engine.starts_with("rocksdb") => Some("filter_bits"),
        _ if is_pleach(engine) => Some("filter_bits_per_key"),
        _ => None,
    }
}

/// The words of a command line.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// One `--tune`.
fn tune(engine: &str, name: &str, value: &str) -> String {
    format!("--tune={engine}.{name}={value}")
}

/// The sub-command.
pub(crate) fn run(engines: &[EngineFactory], args: &PaperArgs) -> Result<()> {
    if args.name == "list" {
        let rows: Vec<_> =
            FIGURES.iter().map(|figure| (figure.name.to_owned(), figure.about.to_owned())).collect();
        report::print_list(&rows);
        return Ok(());
    }
    let figure = FIGURES.iter().find(|figure| figure.name == args.name);
    let figure =
        figure.ok_or_else(|| format!("there is no figure {:?}; `paper list` shows them", args.name))?;
    let engine_of = |name: &str| {
        let factory = engines.iter().find(|factory| factory.name == name).copied();
        factory.ok_or_else(|| format!("there is no engine {name:?}; `pleach-bench list` shows them"))
    };
    let chosen: Result<Vec<_>, _> = match &args.engines[..] {
        [] => figure.engines.iter().copied().map(engine_of).collect(),
        named => named.iter().map(|name| engine_of(name)).collect(),
    };
    args.json.as_ref().map_or(Ok(()), |path| results::check("--json", path))?;
    report::print(figure.about);
    let mut session = Session {
        args,
        engines: chosen?,
        interrupt: Interrupt::install(SecondSignal::EndsProcess)?,
        records: Vec::new(),
    };
    // A figure that was killed may have left stores, which other settings have loaded.
    for engine in &session.engines {
        session.remove_store(engine.name);
    }
    let result = (figure.run)(&mut session);
    if session.interrupt.is_asked() {
        report::print("\nInterrupted: figures that are missing were not measured.");
    }
    let saved = session.save();
    result.and(saved)
}
