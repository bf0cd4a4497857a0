//! Partitions as prefixes of keys, for engines that have none.

use std::borrow::Cow;
use std::ops::Bound;

use pleach_bench::{Direction, Result, Scan, Session, Write};

/// A key with the prefix of its partition; the key alone if there is one partition.
pub(crate) fn prefixed(partitions: usize, partition: usize, key: &[u8]) -> Cow<'_, [u8]> {
    match prefix(partitions, partition) {
        None => key.into(),
        Some(first) => [&[first], key].concat().into(),
    }
}

/// The first byte of a partition's keys; none if there is one partition.
pub(crate) fn prefix(partitions: usize, partition: usize) -> Option<u8> {
    (partitions > 1).then(|| u8::try_from(partition).expect("there are few partitions"))
}

/// Deletes of a transaction that removes a partition key by key.
const DELETES: usize = 1000;

/// All keys of a partition, ascending.
pub(crate) fn keys_of(session: &mut dyn Session, partition: usize) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let scan = Scan { partition, from: None, direction: Direction::Forward, limit: usize::MAX };
    session.scan(&scan, &mut |key, _| {
        keys.push(key.to_vec());
        true
    })?;
    Ok(keys)
}

/// Removes all keys of a partition, for engines that cannot remove a range.
pub(crate) fn remove_all(session: &mut dyn Session, partition: usize) -> Result<()> {
    for keys in keys_of(session, partition)?.chunks(DELETES) {
        let deletes: Vec<_> = keys.iter().map(|key| Write { partition, key, value: None }).collect();
        session.write(&deletes)?;
    }
    Ok(())
}

/// Bounds of a scan, among the keys of its partition.
pub(crate) fn bounds(partitions: usize, scan: &Scan<'_>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let prefix = prefix(partitions, scan.partition);
    let from = scan.from.map(|key| Bound::Included(prefixed(partitions, scan.partition, key).into_owned()));
    let lower = prefix.map_or(Bound::Unbounded, |first| Bound::Included(vec![first]));
    let upper = prefix.map_or(Bound::Unbounded, |first| Bound::Excluded(vec![first + 1]));
    match scan.direction {
        Direction::Forward => (from.unwrap_or(lower), upper),
        Direction::Reverse => (lower, from.unwrap_or(upper)),
    }
}
