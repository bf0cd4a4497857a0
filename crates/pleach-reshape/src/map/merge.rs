//! Entries of a key range, merged from the layers and the base of a version.
//!
//! The base gives a chunk of its entries first, because it has most of them: those of runs, then single ones. Each source gives
//! those up to the end of the chunks before.
//! Up to the nearest end of a chunk that may go on, the *frontier*, all sources are known, and the newest source that has a key
//! decides.

use std::cmp::Ordering;
use std::ops::Bound;

use pleach::Result;
use smallvec::SmallVec;

use super::{Bounds, Direction, Entries, Key, Rows, Version, is_empty};
use crate::ids::Id;

/// Entries asked of each source beyond those that are wanted, for those that turn out to be deleted.
const MARGIN: usize = 8;
/// Entries asked of each source of single ones at most, if the first do not suffice: where much was deleted, there is one for
/// each deleted key, and runs would be asked again for the same rows behind each few of them.
const SINGLES_MAX: usize = 4096;
/// The same for runs, whose rows are read: rows of the generation before may be dead in a row, too.
const RUN_ROWS_MAX: usize = 128;

pub(super) fn entries(
    version: &Version,
    rows: &mut Rows<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
    at: u64,
    limit: usize,
) -> Result<Vec<(Key, Id)>> {
    let mut found = Vec::new();
    let mut edge: Option<Key> = None;
    let mut factor = 1;
    while found.len() < limit {
        let bounds = rest(bounds, direction, edge.as_ref());
        if is_empty(bounds) {
            break;
        }
        // The base alone has hardly any entries of deleted keys.
        let margin = if version.layers().any(|layer| layer.bytes() > 0) { MARGIN } else { 0 };
        let wanted = limit - found.len() + margin;
        let further = wanted.saturating_mul(factor);
        let limits = [further.min(RUN_ROWS_MAX).max(wanted), further.min(SINGLES_MAX).max(wanted)];
        factor = factor.saturating_mul(4);
        let (chunk, frontier) = merge_chunk(version, rows, bounds, direction, at, limits)?;
        found.extend(chunk.into_iter().filter_map(|(key, id)| Some((key, id?))));
        edge = frontier;
        if edge.is_none() {
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

/// The next entries of all sources, deleted ones too, and up to which key these are all; `None`: there are no more. So many at
/// most are asked of each source: of runs, and of single entries.
fn merge_chunk(
    version: &Version,
    rows: &mut Rows<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
    at: u64,
    [of_runs, of_singles]: [usize; 2],
) -> Result<(Entries, Option<Key>)> {
    let sources = version.base.sources();
    // Of each source of the base, the newest first.
    let mut found: SmallVec<[Entries; 4]> = sources.iter().map(|_| Entries::new()).collect();
    let mut frontier = None;
    for has_runs in [true, false] {
        for ((source, edge), found) in sources.iter().zip(&mut found) {
            if source.has_runs() != has_runs {
                continue;
            }
            let known = above(up_to(bounds, direction, frontier.as_ref()), *edge);
            let limit = if has_runs { of_runs } else { of_singles };
            frontier = source.collect(rows, known, direction, limit, found)?.or(frontier);
        }
    }
    found.retain(|entries| !entries.is_empty());
    let mut newer = Vec::new();
    for layer in version.layers() {
        let known = up_to(bounds, direction, frontier.as_ref());
        let start = newer.len();
        let is_end = layer.collect(known, direction, at, start + of_singles, &mut newer);
        frontier = frontier_of(&newer[start..], is_end).or(frontier);
    }
    let is_merged = !newer.is_empty() || found.len() > 1;
    let mut entries = newer;
    for found in found {
        // A chunk is not copied if it is the only one.
        if entries.is_empty() {
            entries = found;
        } else {
            entries.extend(found);
        }
    }
    if is_merged {
        // The newest source of a key comes first. The sort keeps that order, and it is a merge of the sources.
        entries.sort_by(|(key, _), (other, _)| order(key, other, direction));
        entries.dedup_by(|(key, _), (before, _)| key == before);
    }
    // A later source may have ended before the entries of an earlier one.
    if let Some(frontier) = &frontier {
        let known = entries.partition_point(|(key, _)| order(key, frontier, direction).is_le());
        entries.truncate(known);
    }
    Ok((entries, frontier))
}

/// The last key of a chunk that may go on.
pub(super) fn frontier_of(entries: &[(Key, Option<Id>)], is_end: bool) -> Option<Key> {
    entries.last().filter(|_| !is_end).map(|(key, _)| key.clone())
}

/// The part of a range up to `frontier`, inclusive.
fn up_to<'a>(bounds: Bounds<'a>, direction: Direction, frontier: Option<&'a Key>) -> Bounds<'a> {
    match (frontier, direction) {
        (None, _) => bounds,
        (Some(frontier), Direction::Up) => (bounds.0, Bound::Included(frontier)),
        (Some(frontier), Direction::Down) => (Bound::Included(frontier), bounds.1),
    }
}

/// The part of a range above `edge`.
fn above<'a>(bounds: Bounds<'a>, edge: Option<&'a Key>) -> Bounds<'a> {
    match (edge, bounds.0) {
        (None, _) => bounds,
        (Some(edge), Bound::Included(lower) | Bound::Excluded(lower)) if lower > &edge[..] => bounds,
        (Some(edge), _) => (Bound::Excluded(edge), bounds.1),
    }
}

fn order(key: &Key, other: &Key, direction: Direction) -> Ordering {
    match direction {
        Direction::Up => key.cmp(other),
        Direction::Down => other.cmp(key),
    }
}
