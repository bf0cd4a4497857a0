//! The child process, which writes until it is killed.

use std::io::Write;
use std::path::Path;

use pleach::{Db, Durability};

use crate::history::{Batch, counter_key, options, partition_name};

/// Says that this process is a child: directory, seed and number of writers, separated by colons.
pub(crate) const ORDERS: &str = "PLEACH_KILL_CHILD";

/// Does nothing unless the parent has started this process.
#[test]
fn child() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let mut orders = orders.rsplitn(3, ':');
    let mut number = || orders.next().and_then(|n| n.parse::<u64>().ok()).expect("a number in the orders");
    let (writers, seed) = (number(), number());
    let dir = Path::new(orders.next().expect("a directory in the orders"));
    let db = options().open(dir).expect("a store whose process was killed opens");
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let db = &db;
            scope.spawn(move || write(db, seed, writer));
        }
    });
}

/// Writes for ever, from the batch on that the store does not have yet.
fn write(db: &Db, seed: u64, writer: u64) {
    let count = db.default_partition().get(counter_key(writer)).expect("a read");
    let count = count.map_or(0, |count| u64::from_le_bytes(count[..].try_into().expect("eight bytes")));
    for number in count.. {
        commit(db, writer, &Batch::new(seed, writer, number));
        // One write call, so that the reports of two threads do not mix.
        std::io::stderr().write_all(format!("ack {writer} {}\n", number + 1).as_bytes()).expect("a parent");
        if number % 97 == 96 {
            db.flush().expect("a flush");
        }
    }
}

fn commit(db: &Db, writer: u64, batch: &Batch) {
    if batch.drops_scratch
        && let Some(scratch) = db.find_partition(&partition_name(writer, "scratch"))
    {
        db.drop_partition(scratch).expect("a drop");
    }
    let mut writes = db.batch();
    for operation in &batch.operations {
        let partition = db.partition(&operation.partition).expect("a partition");
        match &operation.value {
            Some(value) => writes.put(&partition, &operation.key, value),
            None => writes.delete(&partition, &operation.key),
        }
    }
    writes.commit(batch.durability).expect("a commit");
    if batch.durability == Durability::Sync && batch.operations.len() > 100 {
        db.sync().expect("a sync");
    }
}
