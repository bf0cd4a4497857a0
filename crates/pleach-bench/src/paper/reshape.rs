//! Key reshaping's figures: Kim and Son, "Optimizing Key-Value Stores for Flash-Based SSDs via Key Reshaping", IEEE Access 2021,
//! section IV.
//!
//! Their set-up: WiredTiger, 100 million pairs with values of 100 B, 8 GB of memory, 4 cores; two SSDs. Here
//! the data are four times the memory. The paper's bars carry no numbers; quoted is what its text says.

use super::{Session, words};
use crate::bench::Record;
use crate::engine::Result;
use crate::report::{bytes, count, nanos, print};

/// Keys here, and bytes of a pair.
const KEYS: u64 = 1_000_000;
const PAIR_BYTES: u64 = 116;
/// So many times the memory are the data.
const DATA_PER_MEMORY: u64 = 4;
/// Seconds after which a load ends.
const LOAD_LIMIT_S: u32 = 120;

/// The engines of most figures.
pub(super) const ALL: &[&str] = &[
    "wiredtiger",
    "wiredtiger-indexed",
    "wiredtiger-paper",
    "wiredtiger-reshaped",
    "wiredtiger-reshaped-pleach",
    "pleach",
];
/// Those of Fig. 1.
pub(super) const TREES: &[&str] = &["wiredtiger", "wiredtiger-lsm", "pleach"];
/// Those of Tables 1 and 2.
pub(super) const PAPER: &[&str] = &["wiredtiger-paper"];
/// Those of Fig. 15: what has a table beside the store.
pub(super) const REMAPPED: &[&str] = &["wiredtiger-paper", "wiredtiger-reshaped-pleach"];

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const THEIRS_SEQUENTIAL: [&str; 5] = ["+1 %", "+45 %", "+43 %", "+67 %", "+47 %"];
const THEIRS_RANDOM: [&str; 5] = ["+1 %", "+7 %", "+65 %", "+201 %", "+281 %"];

/// B+tree and LSM tree, in and out of order.
pub(super) fn fig1(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    print(
        "Theirs: the B+tree reads faster, the LSM tree inserts faster, and order matters more to the B+tree.\n",
    );
    let workloads = ["fillseq", "fillrandom", "readseq", "readrandom"];
    print_head("operations/s", &workloads);
    for engine in session.engines.clone() {
        let records = run(session, engine.name, &workloads.join(","), 1, 100)?;
        print_cells(engine.name, records.iter().map(|record| count(record.ops_per_s)));
    }
    Ok(())
}

/// Inserts by the number of threads.
pub(super) fn fig8(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    for (workload, theirs) in [("fillseq", THEIRS_SEQUENTIAL), ("fillrandom", THEIRS_RANDOM)] {
        print_head(&format!("{workload}, keys/s"), &THREADS.map(|threads| format!("{threads} threads")));
        print_cells("proposed (theirs)", theirs.map(str::to_owned));
        let mut base: Option<Vec<f64>> = None;
        for engine in session.engines.clone() {
            let mut rates = Vec::new();
            for threads in THREADS {
                rates.push(one(session, engine.name, workload, threads, 100)?.ops_per_s);
            }
            let cells = rates.iter().enumerate().map(|(at, rate)| match &base {
                Some(base) => format!("{} ({:+.0} %)", count(*rate), (rate / base[at] - 1.0) * 100.0),
                None => count(*rate),
            });
            print_cells(engine.name, cells);
            base.get_or_insert(rates);
        }
        print("");
    }
    Ok(())
}

/// Mean and tail latency of inserts.
pub(super) fn fig10(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    print(
        "Theirs: in order both are alike, the proposed tail slightly higher; out of order the proposed is lower.\n",
    );
    print_head("latency", &["mean", "p95", "p99", "p99.9"]);
    for workload in ["fillseq", "fillrandom"] {
        for engine in session.engines.clone() {
            let record = one(session, engine.name, workload, 8, 100)?;
            let tails = [record.p95_ns, record.p99_ns, record.p999_ns].map(|tail| nanos(tail as f64));
            let cells = std::iter::once(nanos(record.mean_ns)).chain(tails);
            print_cells(&format!("{} {workload}", engine.name), cells);
        }
    }
    Ok(())
}

/// YCSB A and F on a store that was loaded at random.
pub(super) fn fig11(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    print_head("operations/s", &["YCSB A", "YCSB F"]);
    print_cells("SATA (theirs)", ["+13 %", "+12 %"].map(str::to_owned));
    print_cells("NVMe (theirs)", ["+9 %", "+10 %"].map(str::to_owned));
    let mut base: Option<Vec<f64>> = None;
    for engine in session.engines.clone() {
        let records = run(session, engine.name, "fillrandom,ycsb-a,ycsb-f", 4, 100)?;
        let rates: Vec<f64> = records.iter().skip(1).map(|record| record.ops_per_s).collect();
        let cells = rates.iter().enumerate().map(|(at, rate)| match &base {
            Some(base) => format!("{} ({:+.0} %)", count(*rate), (rate / base[at] - 1.0) * 100.0),
            None => count(*rate),
        });
        print_cells(engine.name, cells);
        base.get_or_insert(rates);
    }
    Ok(())
}

/// Bytes of the table beside the store, as a part of the pairs. The order of keys makes no difference to the paper's table. The
/// map names rows that came in the order of their keys by runs.
pub(super) fn fig15(session: &mut Session<'_>) -> Result<()> {
    print_setup(session);
    let sizes = [64, 128, 256, 512, 1024];
    print_head("remap / pairs", &sizes.map(|size| format!("{size} B")));
    print_cells("32 MB (theirs)", ["34 %", "-", "-", "-", "2.5 %"].map(str::to_owned));
    for workload in ["fillseq", "fillrandom"] {
        for engine in session.engines.clone() {
            let mut cells = Vec::new();
            for size in sizes {
                let record = one(session, engine.name, workload, 1, size)?;
                let pairs = record.ops * (PAIR_BYTES - 100 + size);
                let remap = record.engine_stats.details.get("remap_file_bytes").copied();
                cells.push(remap.map_or_else(
                    || "not told".to_owned(),
                    |remap| {
                        let share = remap as f64 / pairs.max(1) as f64;
                        format!("{} ({:.1} %)", bytes(remap as f64), share * 100.0)
                    },
                ));
            }
            print_cells(&format!("{} {workload}", engine.name), cells);
        }
    }
    Ok(())
}

/// The paper's rate: a million inserts in 30.7 s.
const THEIR_RATE: u32 = 33_000;

/// What the remapping table costs inserts.
pub(super) fn table1(session: &mut Session<'_>) -> Result<()> {
    overhead(session, "fillrandom", ["30.7 s", "0.16 % (insert)", "1.88 %"])
}

/// What it costs updates, in the paper by delete and insert, in the scheme here in place (Fig. 6).
pub(super) fn table2(session: &mut Session<'_>) -> Result<()> {
    overhead(session, "overwrite", ["62.4 s", "0.56 %", "1.69 %"])
}

fn overhead(session: &mut Session<'_>, workload: &str, theirs: [&str; 3]) -> Result<()> {
    print_setup(session);
    print_head(workload, &["run time", "table", "file"]);
    print_cells("theirs", theirs.map(str::to_owned));
    for engine in session.engines.clone() {
        for rate in [Some(THEIR_RATE), None] {
            let paced = rate.map_or_else(String::new, |rate| format!("--rate {rate}"));
            let record = run_with(session, engine.name, workload, 1, 100, &paced)?.pop();
            let record = record.ok_or("a record was expected")?;
            let share = |name: &str| match record.extra.get(&format!("{name}_meanwhile")) {
                Some(&spent) => format!("{} ({:.2} %)", nanos(spent), spent / record.seconds / 1e7),
                None => "not told".to_owned(),
            };
            let pace = rate.map_or_else(|| "at full speed".to_owned(), |rate| format!("{rate}/s"));
            let cells = [format!("{:.1} s", record.seconds), share("remap_table_ns"), share("remap_file_ns")];
            print_cells(&format!("{} {pace}", engine.name), cells);
        }
    }
    Ok(())
}

fn print_setup(session: &Session<'_>) {
    let limit = session.args.load_limit.unwrap_or(f64::from(LOAD_LIMIT_S));
    print(&format!(
        "Theirs: WiredTiger, 100 M pairs with values of 100 B, 8 GB of memory. Ours: {} pairs, all memory a quarter of the\n\
         data; a load ends after {limit} s.\n",
        count(session.keys(KEYS) as f64)
    ));
}

/// Runs workloads on a fresh store.
fn run(
    session: &mut Session<'_>,
    engine: &str,
    workloads: &str,
    threads: usize,
    value_bytes: u64,
) -> Result<Vec<Record>> {
    run_with(session, engine, workloads, threads, value_bytes, "")
}

fn run_with(
    session: &mut Session<'_>,
    engine: &str,
    workloads: &str,
    threads: usize,
    value_bytes: u64,
    further: &str,
) -> Result<Vec<Record>> {
    let keys = session.keys(KEYS);
    let memory = keys * (PAIR_BYTES - 100 + value_bytes) / DATA_PER_MEMORY;
    let limit =
        session.args.load_limit.map_or_else(|| format!("--load-limit {LOAD_LIMIT_S}"), |_| String::new());
    let mut all = words(&format!(
        "--workloads {workloads} --keys {keys} --value-size {value_bytes} --key-set random16 --threads {threads} --duration {} \
         --no-settle {limit} {further}",
        session.seconds(10.0)
    ));
    if session.args.memory.is_none() {
        all.extend(words(&format!("--memory {memory}")));
    }
    let records = session.run(engine, &all);
    session.remove_store(engine);
    records
}

fn one(
    session: &mut Session<'_>,
    engine: &str,
    workload: &str,
    threads: usize,
    value_bytes: u64,
) -> Result<Record> {
    let records = run(session, engine, workload, threads, value_bytes)?;
    records.into_iter().next().ok_or_else(|| "a record was expected".into())
}

fn print_head<T: AsRef<str>>(first: &str, others: &[T]) {
    print_cells(first, others.iter().map(|cell| cell.as_ref().to_owned()));
}

fn print_cells(first: &str, others: impl IntoIterator<Item = String>) {
    let others: Vec<String> = others.into_iter().map(|cell| format!("{cell:<18}")).collect();
    print(format!("{first:<32} {}", others.join(" ")).trim_end());
}
