//! `LearnedKV`, Fig. 3: the time of a put and of a get while the store grows.

use super::{Run, SETS, print_cells, print_setup};
use crate::bench::Record;
use crate::engine::Result;
use crate::paper::Session;
use crate::report::nanos;
use crate::workload::STAGES;

/// The figure.
pub(crate) fn fig3(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "from the first to the last stage of RocksDB a read takes up to 1.81 times as long, a write up to 1.53 times. In each\n\
         stage a tenth of the keys is put, then as many gets choose uniformly among those that are there.",
    );
    let head = (1..=STAGES).map(|stage| format!("stage {stage}"));
    let first = ["engine", "keys", "operation", "last / first", "theirs"].map(str::to_owned);
    print_cells(&first.into_iter().chain(head).collect::<Vec<_>>());
    for (name, set) in SETS {
        for engine in session.engines.clone() {
            let run = Run { distribution: "uniform", ..Run::new(session, "fillstages", set) };
            let records = run.records(session, &engine)?;
            let record = records.first().ok_or("a record was expected")?;
            for (kind, theirs) in [("put", "up to 1.53"), ("get", "up to 1.81")] {
                let times = times(record, kind);
                let growth = times.last().zip(times.first()).map_or(0.0, |(last, first)| last / first);
                let mut row = vec![engine.name.to_owned(), name.to_owned(), kind.to_owned()];
                row.extend([format!("{growth:.2}"), theirs.to_owned()]);
                row.extend(times.iter().map(|&time| nanos(time)));
                print_cells(&row);
            }
        }
    }
    Ok(())
}

/// The mean time of an operation in each stage.
fn times(record: &Record, kind: &str) -> Vec<f64> {
    (1..=STAGES).filter_map(|stage| record.extra.get(&format!("{kind}_ns_{stage}")).copied()).collect()
}
