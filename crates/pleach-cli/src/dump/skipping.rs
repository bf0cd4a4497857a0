//! A walk over a partition that skips damage.
//!
//! A damaged value that is stored apart costs its own entry. Of a damaged block of an SST, the walk skips all keys between the
//! two keys around it, also those in other files: these may be older values of keys in the block.

use std::ops::Bound;

use pleach::{DamagedPlace, Db, Error, ErrorKind, Partition};

use super::lost_values::LostValues;
use super::{Visit, Wanted, visit_range};
use crate::damage::tell_places;
use crate::failure::Result;

/// How many damaged places were skipped.
#[derive(Default)]
pub(super) struct Skipped {
    /// Of SSTs.
    pub(super) blocks: u64,
    /// Of files of values.
    pub(super) values: u64,
}

/// Calls `visit` with the entries of `partition`, and skips damage, which it prints.
pub(super) fn walk(db: &Db, partition: &Partition, wanted: Wanted, visit: &mut Visit<'_>) -> Result<Skipped> {
    let mut lost = LostValues::default();
    let walked = walk_past_damage(db, partition, wanted, &mut lost, visit);
    lost.tell(partition.name());
    walked.map(|blocks| Skipped { blocks, values: lost.places() })
}

/// Returns how many damaged places of SSTs were skipped.
fn walk_past_damage(
    db: &Db,
    partition: &Partition,
    wanted: Wanted,
    lost: &mut LostValues,
    visit: &mut Visit<'_>,
) -> Result<u64> {
    let mut skipped = 0;
    let mut known: Option<Vec<DamagedPlace>> = None;
    let mut from: Bound<Vec<u8>> = Bound::Unbounded;
    loop {
        let mut last = None;
        let Some(error) = walk_from(partition, &from, wanted, &mut last, visit)? else { return Ok(skipped) };
        if !is_damage(&error) {
            return Err(error.into());
        }
        if let Some(last) = last {
            // The walk reads ahead, so entries before the damage may still be unread.
            from = Bound::Excluded(last);
            continue;
        }
        if let Some(key) = next_key(partition, &from) {
            // The key can be read, so the value is damaged, unless it was a failure that has passed.
            match partition.get(&key) {
                Ok(value) => value.map_or(Ok(()), |value| visit(&key, &value))?,
                Err(error) if is_damage(&error) => lost.add(key.clone(), error),
                Err(error) => return Err(error.into()),
            }
            from = Bound::Excluded(key);
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
            skipped += 1;
        }
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io) && !error.is_out_of_files()
}

/// Walks from `from` on. Returns the error that ended the walk, if there was one. `last` is the last key visited.
fn walk_from(
    partition: &Partition,
    from: &Bound<Vec<u8>>,
    wanted: Wanted,
    last: &mut Option<Vec<u8>>,
    visit: &mut Visit<'_>,
) -> Result<Option<Error>> {
    let mut range = partition.range((from.clone(), Bound::Unbounded::<Vec<u8>>));
    visit_range(&mut range, wanted, &mut |key, value| {
        visit(key, value)?;
        let last = last.get_or_insert_with(Vec::new);
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    })
}

/// The first key from `from` on; `None` if it cannot be read, or there is none.
fn next_key(partition: &Partition, from: &Bound<Vec<u8>>) -> Option<Vec<u8>> {
    let mut range = partition.range((from.clone(), Bound::Unbounded::<Vec<u8>>));
    range.next_key().ok().flatten().map(|(key, _)| key.to_vec())
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
