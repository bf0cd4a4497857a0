//! TridentKV, Fig. 14: YCSB with its load.

use super::{BASE, CACHES, IN_FLIGHT, KEYS, Reads, VALUE_BYTES, against, print_cells, print_hint};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{count, print};

/// The load and the six mixes.
const WORKLOADS: [&str; 7] = ["fillrandom", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"];
/// The gain of TridentKV over RocksDB as far as the text names it.
const THEIRS: [&str; 7] =
    ["figure only", "2.6x to 5x", "about 4x", "about 4x", "about 4x", "no gain", "2.6x to 5x"];

/// The figure.
pub(crate) fn fig14(session: &mut Session<'_>) -> Result<()> {
    print(&format!(
        "Theirs: 40 GB, cache 256 MB, one thread each for flush and compaction. Ours: {} pairs of 1016 B past the page cache,\n\
         cache {} % of them, one thread; writes settle before the next workload. Asynchronous is only C, whose operations are all\n\
         gets: {IN_FLIGHT} in flight, on a fresh store; in brackets against blocking gets of C on the same one.\n",
        count(session.keys(KEYS) as f64),
        CACHES[0],
    ));
    print_hint(session);
    let names = ["load", "A", "B", "C", "D", "E", "F"].map(str::to_owned);
    print_cells(&[&["operations/s".to_owned()][..], &names].concat());
    print_cells(&[&["theirs/RocksDB".to_owned()][..], &THEIRS.map(str::to_owned)].concat());
    let mut base: Option<Vec<f64>> = None;
    for engine in session.engines.clone() {
        let measured = measure(session, &engine);
        session.remove_store(engine.name);
        let (records, gets) = measured?;
        let rates: Vec<f64> = records.iter().map(|record| record.ops_per_s).collect();
        let cells = rates.iter().map(|&rate| count(rate));
        print_cells(&std::iter::once(engine.name.to_owned()).chain(cells).collect::<Vec<_>>());
        if engine.name == BASE {
            base = Some(rates);
        } else if let Some(base) = &base {
            let cells = rates.iter().zip(base).map(|(&rate, &base)| against(rate, Some(base)));
            print_cells(&std::iter::once("against RocksDB".to_owned()).chain(cells).collect::<Vec<_>>());
        }
        if let Some([blocking, futures]) = gets {
            let gain = futures.ops_per_s / blocking.ops_per_s;
            let gets = format!("{} ({gain:.2}x)", count(futures.ops_per_s));
            let cells =
                WORKLOADS.iter().map(|&name| if name == "ycsb-c" { gets.clone() } else { "-".to_owned() });
            print_cells(&std::iter::once("asynchronous".to_owned()).chain(cells).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// The records of all workloads, and of C by blocking gets and by futures on one fresh store. The inserts of D and E make the
/// first store unfit for another run.
fn measure(session: &mut Session<'_>, engine: &EngineFactory) -> Result<(Vec<Record>, Option<[Record; 2]>)> {
    let workloads = WORKLOADS.join(",");
    let keys = session.keys(KEYS);
    let all = Reads {
        workloads: &workloads,
        keys,
        value_bytes: VALUE_BYTES,
        cache_percent: CACHES[0],
        is_async: false,
        device: None,
        tunes: &[],
    };
    let records = all.run(session, engine)?;
    if !engine.capabilities.async_get {
        return Ok((records, None));
    }
    let blocking = Reads { workloads: "ycsb-c", ..all }.run_one(session, engine)?;
    let futures = Reads { workloads: "ycsb-c", is_async: true, ..all }.run_one(session, engine)?;
    Ok((records, Some([blocking, futures])))
}
