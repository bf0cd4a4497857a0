//! A walk over a partition that skips damage.
//!
//! The walk skips all keys between the two keys around a damaged block, also those in other files: these may be older values of
//! keys in the block.

use std::ops::Bound;

use pleach::{DamagedPlace, Db, Error, ErrorKind, Partition};

use crate::damage::tell_places;
use crate::failure::Result;

/// Called with each key and value.
pub(super) type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

/// The parts that were skipped.
#[derive(Default)]
pub(super) struct Skipped {
    pub(super) places: Vec<DamagedPlace>,
}

/// Calls `visit` with the entries of `partition`, and skips damage, which `Skipped` lists.
pub(super) fn walk(db: &Db, partition: &Partition, visit: &mut Visit<'_>) -> Result<Skipped> {
    let mut skipped = Skipped::default();
    let mut known: Option<Vec<DamagedPlace>> = None;
    let mut from: Bound<Vec<u8>> = Bound::Unbounded;
    loop {
        let mut last = None;
        let Some(error) = walk_from(partition, &from, &mut last, visit)? else { return Ok(skipped) };
        if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io) || error.is_out_of_files() {
            return Err(error.into());
        }
        if let Some(last) = last {
            // The walk reads ahead, so entries before the damage may still be unread.
            from = Bound::Excluded(last);
            continue;
        }
        if known.is_none() {
            known = Some(db.verify_all(&mut |_, _| true)?.1);
        }
        let Some(place) = place_of(&error, known.as_deref().unwrap_or_default(), &from) else {
            return Err(error.into());
        };
        let upper = place.upper.clone().unwrap_or_default();
        let was_here = matches!(&from, Bound::Included(key) if *key == upper);
        from = if was_here { Bound::Excluded(upper) } else { Bound::Included(upper) };
        if !was_here {
            tell_places(std::slice::from_ref(place), 1);
            skipped.places.push(place.clone());
        }
    }
}

/// Walks from `from` on. Returns the error that ended the walk, if there was one. `last` is the last key visited.
fn walk_from(
    partition: &Partition,
    from: &Bound<Vec<u8>>,
    last: &mut Option<Vec<u8>>,
    visit: &mut Visit<'_>,
) -> Result<Option<Error>> {
    for entry in partition.range((from.clone(), Bound::Unbounded::<Vec<u8>>)) {
        match entry {
            Ok((key, value)) => {
                visit(&key, &value)?;
                let last = last.get_or_insert_with(Vec::new);
                last.clear();
                last.extend_from_slice(&key);
            }
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}

/// The damaged place of `error`, if it can be skipped: it ends behind `from`.
fn place_of<'p>(
    error: &Error,
    places: &'p [DamagedPlace],
    from: &Bound<Vec<u8>>,
) -> Option<&'p DamagedPlace> {
    let ends_behind = |place: &&DamagedPlace| match (&place.upper, from) {
        (None, _) => false,
        (Some(_), Bound::Unbounded) => true,
        (Some(upper), Bound::Included(from)) => upper >= from,
        (Some(upper), Bound::Excluded(from)) => upper > from,
    };
    let is_here = |place: &&DamagedPlace| {
        let offset = place.offset.unwrap_or(0);
        Some(&*place.path) == error.path()
            && error.offset().is_none_or(|at| (offset..offset + place.len.unwrap_or(1)).contains(&at))
    };
    places.iter().filter(ends_behind).find(is_here)
}
