//! What a store's own part of a reshaped put in the order of keys takes.

use std::time::{Duration, Instant};

use super::{at, pattern, put};
use crate::store::{Durability, RowStore, Table};

/// Bytes of a row whose key has 16 and whose value has 100: its checksum, its version and the length of its key besides.
const ROW_LEN: usize = 125;

/// The time for each row, if so many rows are appended in transactions of `batch`: what is left of puts in the order of keys if
/// the map takes no time. The store is empty.
pub fn measure_appends(store: &dyn RowStore, rows: u64, batch: usize) -> Duration {
    store.create_table(Table(0)).expect("a table");
    let bytes: Vec<_> = (0..1000).map(|number| pattern(number, ROW_LEN)).collect();
    #[expect(clippy::disallowed_methods, reason = "a measurement")]
    let start = Instant::now();
    let mut changes = Vec::with_capacity(batch);
    for (id, row) in (0..rows).zip(bytes.iter().cycle()) {
        changes.push(put(at(0, id), row));
        if changes.len() == batch {
            store.commit(&changes, Durability::Buffered).expect("a commit");
            changes.clear();
        }
    }
    start.elapsed() / u32::try_from(rows / batch as u64 * batch as u64).expect("not that many")
}
