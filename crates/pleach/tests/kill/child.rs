//! The child process, which writes until it is killed.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use pleach::{Db, Durability, Result};

use crate::history::{Batch, PerWriter, SEEN, counter_key, options, partition_name};

/// Says that this process is a child: directory, seed and number of writers, separated by colons.
pub(crate) const ORDERS: &str = "PLEACH_KILL_CHILD";

/// Set if the power is cut: then calls fail before the process is killed, and it waits for that.
pub(crate) const POWER: &str = "PLEACH_POWER_CHILD";

/// Begins the report of a call that failed.
pub(crate) const FAILED: &str = "failed:";

/// Batches of each writer that were acknowledged.
static ACKED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Does nothing unless the parent has started this process.
#[test]
fn child() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let mut orders = orders.rsplitn(3, ':');
    let mut number = || orders.next().and_then(|n| n.parse::<u64>().ok()).expect("a number in the orders");
    let (writers, seed) = (number(), number());
    let dir = Path::new(orders.next().expect("a directory in the orders"));
    let db = expect(options().open(dir));
    for (writer, acked) in (0..).zip(&ACKED) {
        let count = count_of(&db, writer);
        acked.store(count, Ordering::SeqCst);
        report("open", writer, count);
    }
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let db = &db;
            scope.spawn(move || write(db, seed, writer));
        }
    });
}

/// A result. Once the power is cut, an error is right: the parent decides about it, and this waits for the end.
fn expect<T>(result: Result<T>) -> T {
    match result {
        Err(error) if std::env::var_os(POWER).is_some() => {
            std::io::stderr().write_all(format!("{FAILED} {error}\n").as_bytes()).expect("a parent");
            loop {
                std::thread::park();
            }
        }
        result => result.expect("no call fails"),
    }
}

fn count_of(db: &Db, writer: u64) -> u64 {
    let count = expect(db.default_partition().get(counter_key(writer)));
    count.map_or(0, |count| u64::from_le_bytes(count[..].try_into().expect("eight bytes")))
}

/// Writes for ever, from the batch on that the store does not have yet.
fn write(db: &Db, seed: u64, writer: u64) {
    for number in count_of(db, writer).. {
        let batch = Batch::new(seed, writer, number);
        expect(commit(db, writer, &batch));
        ACKED[usize::try_from(writer).expect("few writers")].store(number + 1, Ordering::SeqCst);
        report(if batch.durability == Durability::Sync { "sync" } else { "ack" }, writer, number + 1);
        if number % 97 == 96 {
            expect(db.flush());
            report("sync", writer, number + 1);
        }
    }
}

/// One write call, so that the reports of two threads do not mix. With the time, because the parent reads it later.
fn report(what: &str, writer: u64, count: u64) {
    let line = format!("{what} {writer} {count} {}\n", micros());
    std::io::stderr().write_all(line.as_bytes()).expect("a parent");
}

/// Microseconds since 1970.
pub(crate) fn micros() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    u64::try_from(elapsed.as_micros()).expect("a time that fits")
}

fn commit(db: &Db, writer: u64, batch: &Batch) -> Result<()> {
    if batch.drops_scratch
        && let Some(scratch) = db.find_partition(&partition_name(writer, "scratch"))
    {
        db.drop_partition(scratch)?;
    }
    let mut writes = db.batch();
    let seen: PerWriter = std::array::from_fn(|writer| ACKED[writer].load(Ordering::SeqCst));
    writes.put(&db.partition(SEEN)?, counter_key(writer), seen.map(u64::to_le_bytes).concat());
    for operation in &batch.operations {
        let partition = db.partition(&operation.partition)?;
        match &operation.value {
            Some(value) => writes.put(&partition, &operation.key, value),
            None => writes.delete(&partition, &operation.key),
        }
    }
    writes.commit(batch.durability)?;
    if batch.durability == Durability::Sync && batch.operations.len() > 100 {
        db.sync()?;
    }
    Ok(())
}
