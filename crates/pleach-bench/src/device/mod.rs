//! Raw random reads of a store's files: what the device, the kernel and the read queue give before any engine adds its work.
//!
//! `pleach-bench device` measures them by driver and depth; `bench::flanks` measures them around uncached workloads.

mod files;
mod fio;
mod reads;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use pleach::env::{OpenOptions, ReadDriver, RealEnv};
use pleach_command::{Interrupt, SecondSignal};
use serde::{Deserialize, Serialize};

use crate::bench::{Settings, with_loaded};
use crate::engine::{PLEACH, Result};
use crate::measure::Machine;
use crate::report;
use crate::results;
pub(crate) use files::StoreFiles;
pub(crate) use reads::{Manner, Sample, sample};

/// Length of a read: a block of an SST.
const BLOCK_BYTES: u64 = 4096;
/// Most reads in flight of a queue.
pub(crate) const DEPTH_MAX: u32 = 256;

/// Arguments of `pleach-bench device`.
#[derive(Args)]
pub(crate) struct DeviceArgs {
    /// Folder of a store of any engine, which must not be open. By default one of Pleach is loaded.
    store: Option<PathBuf>,
    /// Keys of the store that is loaded.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Bytes of its values.
    #[arg(long, default_value_t = 1000)]
    value_size: u32,
    /// Folder for it; it is removed at the end.
    #[arg(long, default_value = "pleach-bench.data")]
    dir: PathBuf,
    /// Reads in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32, 128])]
    depths: Vec<u32>,
    /// What reads: `blocking` (as many threads as reads in flight, each by `pread`), `ring` (`io_uring`), `device-polled` or
    /// `kernel-polled` (a ring that is polled; what is not polled here is left out) or `threads` (the read queue's).
    #[arg(long, value_delimiter = ',', value_parser = ReadDriver::from_str, default_value = "blocking,ring")]
    drivers: Vec<ReadDriver>,
    /// Measure read queues also in calls: so many reads begin together, and the next ones when all have ended. No `get_many`
    /// of so many keys can be faster.
    #[arg(long)]
    in_calls: bool,
    /// Threads with a ring of their own, each with so many reads in flight.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Past the page cache, or through it.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "direct,cached")]
    paths: Vec<ReadPath>,
    /// Rounds; each measures everything once, and figures are medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// Do not run fio beside it.
    #[arg(long)]
    no_fio: bool,
    /// Write the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Whether reads go through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReadPath {
    Direct,
    Cached,
}

/// One line of the result, and one object of the JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct DeviceRecord {
    /// The driver's name; behind `fio-` if fio reads, before `, calls` if reads begin together.
    driver: String,
    direct: bool,
    /// Reads in flight of each thread.
    depth: u32,
    threads: usize,
    /// Medians of the rounds.
    reads_per_s: f64,
    cpu_us_per_read: f64,
    p50_ns: u64,
    p99_ns: u64,
    /// Reads a second of each round.
    rounds: Vec<f64>,
    machine: Machine,
}

/// The sub-command.
pub(crate) fn run(args: &DeviceArgs) -> Result<()> {
    let depth_fits = |depth: &u32| (1..=DEPTH_MAX).contains(depth);
    if !args.depths.iter().all(depth_fits) || args.threads == 0 || args.rounds == 0 || args.duration <= 0.0 {
        return Err(
            format!("depths are 1 to {DEPTH_MAX}; threads, rounds and duration are above zero").into()
        );
    }
    args.json.as_ref().map_or(Ok(()), |path| results::check("--json", path))?;
    let interrupt = Interrupt::install(SecondSignal::EndsProcess)?;
    let Some(store) = &args.store else {
        let words = ["--keys", &args.keys.to_string(), "--value-size", &args.value_size.to_string()];
        let settings = Settings { dir: args.dir.clone(), ..Settings::from_words(&words)? };
        return with_loaded(&PLEACH, &settings, &interrupt, |dir| measure(args, dir, &interrupt));
    };
    measure(args, store, &interrupt)
}

/// A manner of reading, on one path.
struct Row {
    manner: Manner,
    direct: bool,
    by_fio: bool,
    samples: Vec<Sample>,
}

fn measure(args: &DeviceArgs, store: &Path, interrupt: &Interrupt) -> Result<()> {
    let has_fio = !args.no_fio && fio::is_installed();
    let (direct, cached) = (StoreFiles::open(store, true)?, StoreFiles::open(store, false)?);
    let mut rows = rows(args, has_fio);
    rows.retain(|row| is_given(row, if row.direct { &direct } else { &cached }));
    for round in 0..args.rounds as u64 {
        direct.read_through()?;
        if args.paths.contains(&ReadPath::Cached) {
            cached.read_through()?;
        }
        for (number, row) in (0..).zip(&mut rows) {
            interrupt.check()?;
            let files = if row.direct { &direct } else { &cached };
            row.samples.push(if row.by_fio {
                fio::sample(files, row.manner, row.direct, args.duration)?
            } else {
                sample(files, row.manner, args.duration, round << 32 | number)?
            });
        }
    }
    let machine = Machine::this(store);
    let records: Vec<_> = rows.iter().map(|row| row.record(&machine)).collect();
    print(&records);
    for driver in args.drivers.iter().filter(|driver| !rows.iter().any(|row| row.manner.driver == **driver)) {
        report::print(&format!("{driver}: this system does not poll these files"));
    }
    if !has_fio && !args.no_fio {
        report::print("fio is not installed: nothing stands beside these figures");
    }
    if let Some(path) = &args.json {
        results::replace(path, &(serde_json::to_string_pretty(&records)? + "\n"))?;
    }
    Ok(())
}

/// The rows in the order in which they are measured: fio's next to ours.
fn rows(args: &DeviceArgs, has_fio: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for path in &args.paths {
        for &driver in &args.drivers {
            for &depth in &args.depths {
                let (depth, threads) = match driver {
                    ReadDriver::Blocking => (1, depth as usize),
                    _ => (depth, args.threads),
                };
                let manner = Manner { driver, depth, threads, in_calls: false };
                let direct = *path == ReadPath::Direct;
                let row = |by_fio| Row { manner, direct, by_fio, samples: Vec::new() };
                rows.push(row(false));
                if has_fio && driver != ReadDriver::Threads {
                    rows.push(row(true));
                }
                if args.in_calls && driver != ReadDriver::Blocking {
                    rows.push(Row { manner: Manner { in_calls: true, ..manner }, ..row(false) });
                }
            }
        }
    }
    rows
}

/// Whether this machine has the row's driver for these files.
fn is_given(row: &Row, files: &StoreFiles) -> bool {
    let wanted = row.manner.driver;
    if !matches!(wanted, ReadDriver::DevicePolled | ReadDriver::KernelPolled) {
        return true;
    }
    let opened = OpenOptions { direct: row.direct, ..OpenOptions::default() };
    let chosen = ReadDriver::choose(&RealEnv::new(), Some(wanted), files.first(), opened);
    chosen.is_ok_and(|chosen| chosen == wanted)
}

impl Row {
    fn record(&self, machine: &Machine) -> DeviceRecord {
        let median = |figure: fn(&Sample) -> f64| {
            let mut figures: Vec<f64> = self.samples.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            report::median(&figures)
        };
        DeviceRecord {
            driver: format!(
                "{}{}{}",
                if self.by_fio { "fio-" } else { "" },
                self.manner.driver,
                if self.manner.in_calls { ", calls" } else { "" }
            ),
            direct: self.direct,
            depth: self.manner.depth,
            threads: self.manner.threads,
            reads_per_s: median(|sample| sample.reads_per_s),
            cpu_us_per_read: median(|sample| sample.cpu_us_per_read),
            p50_ns: median(|sample| sample.p50_ns as f64) as u64,
            p99_ns: median(|sample| sample.p99_ns as f64) as u64,
            rounds: self.samples.iter().map(|sample| sample.reads_per_s.round()).collect(),
            machine: machine.clone(),
        }
    }
}

fn print(records: &[DeviceRecord]) {
    report::print(
        "path    driver             depth  threads    reads/s  (lowest to highest)   CPU/read       p50       p99",
    );
    for record in records {
        let DeviceRecord { driver, depth, threads, rounds, .. } = record;
        let lowest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = rounds.iter().copied().fold(0.0, f64::max);
        report::print(&format!(
            "{:6}  {driver:17}  {depth:5}  {threads:7}  {:>9}  {:>20}  {:>9}  {:>8}  {:>8}",
            if record.direct { "direct" } else { "cached" },
            report::count(record.reads_per_s),
            format!("{} to {}", report::count(lowest), report::count(highest)),
            report::nanos(record.cpu_us_per_read * 1e3),
            report::nanos(record.p50_ns as f64),
            report::nanos(record.p99_ns as f64),
        ));
    }
}

/// The best driver of this machine that reads `files`.
pub(crate) fn best_driver(files: &StoreFiles) -> ReadDriver {
    ReadDriver::choose(&RealEnv::new(), None, files.first(), OpenOptions::default())
        .expect("a driver was not demanded")
}
