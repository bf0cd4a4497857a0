//! Entries of a key range, merged from the layers and the base of a version.
//!
//! Each source gives a chunk of its entries. Up to the nearest end of a chunk that may go on, all sources are known, and the
//! newest source that has a key decides.

use std::collections::BTreeMap;
use std::ops::Bound;

use pleach::Result;

use super::{Bounds, Direction, Entries, Key, Version, is_empty};
use crate::ids::Id;

/// Entries asked of each source beyond those that are wanted, for those that turn out to be deleted.
const MARGIN: usize = 8;

pub(super) fn entries(
    version: &Version,
    bounds: Bounds<'_>,
    direction: Direction,
    at: u64,
    limit: usize,
) -> Result<Vec<(Key, Id)>> {
    let mut found = Vec::new();
    let mut edge: Option<Key> = None;
    while found.len() < limit {
        let bounds = rest(bounds, direction, edge.as_ref());
        if is_empty(bounds) {
            break;
        }
        let (chunk, is_end) = merge_chunk(version, bounds, direction, at, limit - found.len() + MARGIN)?;
        edge = chunk.last().map(|(key, _)| key.clone());
        found.extend(chunk.into_iter().filter_map(|(key, id)| Some((key, id?))));
        if is_end {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// What is left of a range behind `edge`.
pub(crate) fn rest<'a>(bounds: Bounds<'a>, direction: Direction, edge: Option<&'a Key>) -> Bounds<'a> {
    match (edge, direction) {
        (None, _) => bounds,
        (Some(edge), Direction::Up) => (Bound::Excluded(edge), bounds.1),
        (Some(edge), Direction::Down) => (bounds.0, Bound::Excluded(edge)),
    }
}

/// The next entries of all sources, deleted ones too, and whether there are no more.
fn merge_chunk(
    version: &Version,
    bounds: Bounds<'_>,
    direction: Direction,
    at: u64,
    limit: usize,
) -> Result<(Entries, bool)> {
    let mut merged: BTreeMap<Key, Option<Id>> = BTreeMap::new();
    let mut frontier: Option<Key> = None;
    let mut entries = Vec::new();
    let mut layers = version.layers();
    loop {
        let layer = layers.next();
        let is_end = match layer {
            Some(layer) => layer.collect(bounds, direction, at, limit, &mut entries),
            None => version.base.collect(bounds, direction, limit, &mut entries)?,
        };
        if !is_end && let Some((last, _)) = entries.last() {
            let is_nearer = frontier.as_ref().is_none_or(|frontier| is_before(last, frontier, direction));
            frontier = if is_nearer { Some(last.clone()) } else { frontier };
        }
        for (key, id) in entries.drain(..) {
            // Newer sources come first.
            merged.entry(key).or_insert(id);
        }
        if layer.is_none() {
            break;
        }
    }
    let is_known = |key: &Key| frontier.as_ref().is_none_or(|frontier| !is_before(frontier, key, direction));
    let known = merged.into_iter().filter(|(key, _)| is_known(key));
    let mut known: Vec<_> = known.collect();
    if direction == Direction::Down {
        known.reverse();
    }
    Ok((known, frontier.is_none()))
}

fn is_before(key: &Key, other: &Key, direction: Direction) -> bool {
    match direction {
        Direction::Up => key < other,
        Direction::Down => key > other,
    }
}
