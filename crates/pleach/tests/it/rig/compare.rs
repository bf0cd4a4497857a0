//! Comparison of a store with a world: names, scans in both directions, point reads of present and missing keys.

use std::sync::Arc;

use fastrand::Rng;
use pleach::{Db, Key, Partition, Value};

use super::timeline::Candidate;
use super::world::{Entries, World};

/// A key and its value.
type Entry<'a> = (&'a Arc<[u8]>, &'a Arc<[u8]>);

/// Finds the candidate that the store holds, by a comparison of all its contents.
pub(crate) fn find(db: &Db, candidates: &[Candidate], rng: &mut Rng) -> Result<Candidate, String> {
    let (seq, names) = (db.last_sequence_number(), db.partitions());
    let alike = |c: &&Candidate| c.seq == seq && c.world.has_names(&names);
    let mut difference = None;
    for candidate in candidates.iter().filter(alike) {
        match check(db, &candidate.world, &candidates[0].world, rng) {
            Ok(()) => return Ok(candidate.clone()),
            Err(message) => difference = Some(format!("point {}: {message}", place(candidate))),
        }
    }
    let expected = candidates.iter().map(|c| format!("{} (sequence number {})", place(c), c.seq));
    let expected = expected.collect::<Vec<_>>().join(", ");
    let difference = difference.unwrap_or_else(|| "no such number, or other partitions".to_owned());
    Err(format!(
        "expected one of the points {expected}; found sequence number {seq}, partitions {names:?}; {difference}"
    ))
}

fn place(candidate: &Candidate) -> String {
    format!("{}.{}", candidate.batches, candidate.changes)
}

/// Compares all contents of the store with `world`. Also looks up the keys of `other`, which may be absent.
pub(crate) fn check(db: &Db, world: &World, other: &World, rng: &mut Rng) -> Result<(), String> {
    let names = db.partitions();
    if !world.has_names(&names) {
        return Err(format!("expected partitions {:?}, found {names:?}", world.partitions.keys()));
    }
    for (name, entries) in &world.partitions {
        let partition = db.find_partition(name).ok_or_else(|| format!("partition {name} is missing"))?;
        let others = other.partitions.get(name);
        check_partition(&partition, entries, others, rng).map_err(|m| format!("partition {name}: {m}"))?;
    }
    Ok(())
}

fn check_partition(
    partition: &Partition,
    entries: &Entries,
    others: Option<&Arc<Entries>>,
    rng: &mut Rng,
) -> Result<(), String> {
    let mut expected = entries.iter();
    for found in partition.prefix(b"") {
        compare(found, expected.next())?;
    }
    missing(expected.next())?;
    if rng.bool() {
        let mut expected = entries.iter().rev();
        for found in partition.iter().rev() {
            compare(found, expected.next()).map_err(|m| format!("downwards: {m}"))?;
        }
        missing(expected.next()).map_err(|m| format!("downwards: {m}"))?;
    }
    let absent =
        others.into_iter().flat_map(|others| others.keys()).filter(|key| !entries.contains_key(*key));
    for key in entries.keys().chain(absent.take(50)) {
        let found = partition.get(key).map_err(|e| format!("get {}: {e}", show(key)))?;
        let expected = entries.get(key).map(|v| &**v);
        if found.as_deref() != expected {
            return Err(format!(
                "get {}: expected {}, found {}",
                show(key),
                tell(expected),
                tell(found.as_deref())
            ));
        }
    }
    Ok(())
}

fn compare(found: pleach::Result<(Key, Value)>, expected: Option<Entry<'_>>) -> Result<(), String> {
    let (key, value) = found.map_err(|e| format!("scan: {e}"))?;
    let expected = expected.map(|(k, v)| (&**k, &**v));
    if expected == Some((&key[..], value.as_ref())) {
        return Ok(());
    }
    let expected =
        expected.map_or_else(|| "the end".to_owned(), |(k, v)| format!("{} {}", show(k), tell(Some(v))));
    Err(format!("scan: expected {expected}, found {} {}", show(&key), tell(Some(value.as_ref()))))
}

fn missing(expected: Option<Entry<'_>>) -> Result<(), String> {
    match expected {
        None => Ok(()),
        Some((key, value)) => {
            Err(format!("scan: expected {} {}, found the end", show(key), tell(Some(value))))
        }
    }
}

pub(crate) fn show(key: &[u8]) -> String {
    let cut = &key[..key.len().min(120)];
    format!("\"{}\"{}", cut.escape_ascii(), if cut.len() < key.len() { "..." } else { "" })
}

fn tell(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => format!("{} bytes {}", value.len(), show(&value[..value.len().min(8)])),
    }
}
