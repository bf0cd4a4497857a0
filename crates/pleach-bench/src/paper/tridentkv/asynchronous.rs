//! TridentKV, Figs. 15 and 18: asynchronous reads, and learned indexes, by cache; asynchronous reads by the number of
//! threads. The figures are bars and curves without numbers; quoted is what the text says. In place of SPDK's polling thread
//! stands a polled `io_uring`.

use super::{CACHES, IN_FLIGHT, KEYS, Reads, VALUE_BYTES, print_row, share_of_device};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::{Session, is_pleach};
use crate::report::{count, nanos, print};

/// Threads of Fig. 18; its cache is the smaller one.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

/// Techniques of Fig. 15: name, whether reads are asynchronous, and `learned_index`.
const TECHNIQUES: [(&str, bool, &str); 4] = [
    ("none", false, "never"),
    ("asynchronous", true, "never"),
    ("learned index", false, "always"),
    ("both", true, "always"),
];

/// Asynchronous reads and learned indexes off and on, with a small and a large cache.
pub(crate) fn fig15(session: &mut Session<'_>) -> Result<()> {
    print(&format!(
        "Theirs, in words: with a small cache asynchronous reads gain most of the three techniques; with a large one, which\n\
         answers most reads, the learned index does; writes gain nothing. Ours: {} pairs of 1016 B past the page cache, one\n\
         thread; asynchronous: {IN_FLIGHT} gets in flight, puts are the same code; partitions do not take part, as in the paper.\n",
        count(session.keys(KEYS) as f64),
    ));
    print_row(&["engine", "cache", "techniques", "gets a second", "CPU/get", "of device", "puts a second"]);
    for engine in session.engines.clone() {
        let mut bases = CACHES.map(|_| None);
        for (name, is_async, learned_index) in TECHNIQUES {
            let is_learned = learned_index != "never";
            if is_async && !engine.capabilities.async_get || is_learned && !is_pleach(engine.name) {
                continue;
            }
            let tunes: &[_] = if is_pleach(engine.name) { &[("learned_index", learned_index)] } else { &[] };
            for (percent, base) in CACHES.into_iter().zip(&mut bases) {
                // The puts change the store that the larger cache then reads, so all techniques make them.
                let records = run(session, &engine, "readrandom,overwrite", percent, is_async, tunes)?;
                let [read, put] = &records[..] else { return Err("two records were expected".into()) };
                let base = *base.get_or_insert(read.ops_per_s);
                print_row(&[
                    engine.name,
                    &format!("{percent} %"),
                    name,
                    &format!("{} ({:.2}x)", count(read.ops_per_s), read.ops_per_s / base),
                    &nanos(read.cpu_us_per_op * 1e3),
                    &share_of_device(read),
                    &if is_async { "-".to_owned() } else { count(put.ops_per_s) },
                ]);
            }
            // The next technique has files of its own.
            session.remove_store(engine.name);
        }
    }
    Ok(())
}

/// How the gets of Fig. 18 are made: its name, whether by futures, and the driver asked for.
const MANNERS: [(&str, bool, Option<&str>); 3] =
    [("off", false, None), ("on", true, None), ("polled", true, Some("device-polled"))];

/// Gets by the number of threads.
pub(crate) fn fig18(session: &mut Session<'_>) -> Result<()> {
    print(&format!(
        "Theirs, in words: blocking gets grow with the threads; asynchronous ones are very fast with few threads and gain\n\
         nothing by more, because the processors are busy. Ours: {} pairs of 1016 B past the page cache, cache {} % of\n\
         them, {} processors; asynchronous: {IN_FLIGHT} gets in flight of each thread; polled: the same by a polled driver,\n\
         which is a ring where the system does not poll.\n",
        count(session.keys(KEYS) as f64),
        CACHES[0],
        std::thread::available_parallelism().map_or(1, Into::into),
    ));
    print_row(&[
        "engine",
        "asynchronous",
        "driver",
        "threads",
        "gets a second",
        "CPU/get",
        "processors",
        "p99",
        "of device",
    ]);
    let workloads = THREADS.map(|threads| format!("readrandom@{threads}")).join(",");
    for engine in session.engines.clone() {
        for (name, is_on, read_driver) in MANNERS {
            if is_on && !engine.capabilities.async_get || read_driver.is_some() && !is_pleach(engine.name) {
                continue;
            }
            let tunes: Vec<_> = read_driver.iter().map(|&driver| ("read_driver", driver)).collect();
            for read in run(session, &engine, &workloads, CACHES[0], is_on, &tunes)? {
                let driver = read.engine_stats.settings.get("read_driver").filter(|_| is_on);
                print_row(&[
                    engine.name,
                    name,
                    driver.map_or("-", String::as_str),
                    &read.threads.to_string(),
                    &count(read.ops_per_s),
                    &nanos(read.cpu_us_per_op * 1e3),
                    &format!("{:.2}", read.cpu_ops_s / read.seconds),
                    &nanos(read.p99_ns as f64),
                    &share_of_device(&read),
                ]);
            }
        }
        session.remove_store(engine.name);
    }
    Ok(())
}

/// Runs workloads on a store that is loaded once for each engine.
fn run(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    workloads: &str,
    cache_percent: u64,
    is_async: bool,
    tunes: &[(&str, &str)],
) -> Result<Vec<Record>> {
    let keys = session.keys(KEYS);
    let (value_bytes, device) = (VALUE_BYTES, None);
    let reads = Reads { workloads, keys, value_bytes, cache_percent, is_async, device, tunes };
    reads.run(session, engine)
}
