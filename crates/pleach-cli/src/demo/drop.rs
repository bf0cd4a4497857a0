//! Step 4 of the demo: drops the largest partition. It measures the time and the space freed, and checks the other
//! partitions.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use pleach::Db;

use super::data::{DROPPED, KINDS};
use super::report::Report;
use super::{Demo, check};
use crate::failure::{Failure, Result};
use crate::output::{bytes, entries};
use crate::progress;

/// How long the background cleaner may take.
const CLEAN_MAX: Duration = Duration::from_secs(10);

/// Length of a disk block as `stat` counts them.
const STAT_BLOCK_BYTES: u64 = 512;

pub(super) fn run(demo: &Demo<'_>, db: &Db, report: &mut Report) -> Result<()> {
    report.step(format!("Drop: the partition \"{}\" at once, whatever its size", DROPPED.name))?;
    let spinner = progress::working("waiting for flushes and compactions");
    db.settle()?;
    spinner.finish_and_clear();
    demo.interrupt.check()?;
    let Some(partition) = db.find_partition(DROPPED.name) else {
        return Err(Failure::damage(format!("CHECK FAILED: partition {} is gone", DROPPED.name)));
    };
    let stats = partition.stats()?;
    let before = disk_usage(demo.dir)?;
    let started = Instant::now();
    db.drop_partition(partition)?;
    let seconds = started.elapsed().as_secs_f64();
    check(db.find_partition(DROPPED.name).is_none(), || format!("{} is still there", DROPPED.name))?;
    // Sections of shared files are freed when their neighbours are compacted; files of its own are freed at once.
    let owed = if stats.sections == 0 { stats.bytes } else { 0 };
    let after = wait_for_space(demo, before.saturating_sub(owed - owed / 10))?;
    let freed = before.saturating_sub(after);
    check(freed >= owed - owed / 10, || format!("{} should be free, {} are", bytes(owed), bytes(freed)))?;
    report.detail(format!("the directory had {}, now {}", bytes(before), bytes(after)))?;
    let dropped = entries(DROPPED.entries(demo.keys));
    report.result("dropped", format!("{dropped} in {:.1} ms, {} freed", seconds * 1e3, bytes(freed)))?;
    count_the_others(demo, db, report)?;
    report.record(
        "drop",
        &[
            ("bytes_before", before),
            ("bytes_after", after),
            ("drop_us", Duration::from_secs_f64(seconds).as_micros().try_into().unwrap_or(u64::MAX)),
        ],
    );
    Ok(())
}

fn count_the_others(demo: &Demo<'_>, db: &Db, report: &mut Report) -> Result<()> {
    for kind in KINDS.iter().filter(|kind| kind.name != DROPPED.name) {
        let Some(partition) = db.find_partition(kind.name) else {
            return Err(Failure::damage(format!("CHECK FAILED: partition {} is gone, too", kind.name)));
        };
        let (mut found, expected) = (0, kind.entries(demo.keys));
        for entry in &partition {
            entry?;
            found += 1;
        }
        check(found == expected, || format!("{} has {found} entries, not {expected}", kind.name))?;
        report.detail(format!("\"{}\" has all its {}", kind.name, entries(found)))?;
        demo.interrupt.check()?;
    }
    Ok(())
}

/// Waits for a while until the directory takes at most `goal` bytes. Returns the bytes it takes then.
fn wait_for_space(demo: &Demo<'_>, goal: u64) -> Result<u64> {
    let started = Instant::now();
    loop {
        let used = disk_usage(demo.dir)?;
        if used <= goal || started.elapsed() > CLEAN_MAX {
            return Ok(used);
        }
        demo.interrupt.check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that the files of a directory take on disk, as `du` counts them.
fn disk_usage(dir: &Path) -> Result<u64> {
    let failed = |e| Failure::io("look into", dir, &e);
    let mut used = 0;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        match entry.and_then(|entry| entry.metadata()) {
            Ok(metadata) => used += metadata.blocks() * STAT_BLOCK_BYTES,
            // The cleaner was faster.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(used)
}
