//! Step 1 of the demo: loads the entries in batches.

use std::time::Instant;

use pleach::{Db, Durability};

use super::data::{KEY_LEN, KINDS, VALUE_LEN, key, value};
use super::report::Report;
use super::{Demo, check};
use crate::failure::Result;
use crate::output::{bytes, count, entries, per_second};
use crate::progress;

/// Entries in a batch.
const BATCH: u64 = 1000;

pub(super) fn run(demo: &Demo<'_>, db: &Db, report: &mut Report) -> Result<()> {
    report.step("Load: batches of 1,000 entries, 16-byte keys, 100-byte values")?;
    for kind in KINDS {
        let order = if kind.scattered { "scattered" } else { "ascending" };
        report.detail(format!("{:<8} {:>11} keys, {order}", kind.name, count(kind.entries(demo.keys))))?;
    }
    let bar = progress::over_entries(demo.keys);
    let started = Instant::now();
    let mut loaded = 0;
    let partitions = db.create_partitions(KINDS.map(|kind| kind.name))?;
    for (kind, partition) in KINDS.into_iter().zip(&partitions) {
        let entries = kind.entries(demo.keys);
        for first in (0..entries).step_by(usize::try_from(BATCH).expect("small")) {
            demo.interrupt.check()?;
            let mut batch = db.batch();
            for n in first..entries.min(first + BATCH) {
                let number = kind.nth(n, entries);
                batch.put(partition, key(number), value(kind.name, number));
            }
            loaded += batch.len() as u64;
            batch.commit(Durability::Buffered)?;
            bar.set_position(loaded);
            bar.set_message(kind.name);
        }
    }
    db.sync()?;
    let seconds = started.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let expected: u64 = KINDS.iter().map(|kind| kind.entries(demo.keys)).sum();
    check(loaded == expected, || format!("{loaded} entries were loaded, {expected} expected"))?;
    let size = loaded * (KEY_LEN + VALUE_LEN) as u64;
    let rate = per_second(loaded, seconds);
    report.result(
        "loaded",
        format!("{}, {} in {seconds:.2} s: {} a second", entries(loaded), bytes(size), count(rate)),
    )?;
    report.record("load", &[("entries", loaded), ("bytes", size), ("entries_per_second", rate)]);
    Ok(())
}
