//! Cleaning: rows that a later row of their key replaced are removed, in the order of their ids.
//!
//! Such rows come from [`Update::Defer`]. Checkpoints remove those of this open (`replaced`); this pass finds those of earlier
//! ones too, and reads all rows. A delete leaves a row there that says so. It goes only after all older rows of its
//! key are gone; otherwise a rebuilt map would find the key again.

use std::sync::atomic::Ordering;

use pleach::{ErrorKind, Result};

use crate::group::{Transaction, commit_alone};
use crate::handle::{Inner, Reshaped};
use crate::ids::{Id, Previous, is_behind};
use crate::map::{Key, key_hash};
use crate::named::{self, store_error};
use crate::options::Update;
use crate::row::Row;
use crate::store::{Durability, Place, Table};

/// Rows that are looked at, and perhaps removed, at a time.
const CHUNK_ROWS: usize = 4096;

/// A row that may be removed.
struct Candidate {
    place: Place,
    id: Id,
    key: Key,
}

/// Which rows a pass removes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Rows with values that the map does not name.
    Replaced,
    /// Rows that say that their key was deleted.
    Deletions,
}

impl Reshaped {
    /// Removes the rows that later ones replaced. Returns how many. Reads and writes go on.
    ///
    /// # Errors
    /// Those of [`put`](Self::put) and [`get`](Self::get).
    pub fn clean(&self) -> Result<u64> {
        self.inner.check_writable()?;
        self.inner.clean()
    }
}

impl Inner {
    fn clean(&self) -> Result<u64> {
        if !self.garbage.load(Ordering::SeqCst) {
            return Ok(0);
        }
        self.replaced.begin_cleaning();
        let replaced = self.clean_pass(Pass::Replaced, self.published_version())?;
        let is_last = self.options.update != Update::Defer;
        if is_last {
            // No row is replaced without being removed any more, so deletes need to leave nothing.
            self.garbage.store(false, Ordering::SeqCst);
        }
        let before = if is_last { self.published_version() } else { replaced.1 };
        let deletions = self.clean_pass(Pass::Deletions, before)?;
        self.replaced.end_cleaning();
        if is_last {
            named::set_garbage(&*self.store, false)?;
        }
        Ok(replaced.0 + deletions.0)
    }

    /// A version below which everything is published.
    fn published_version(&self) -> u64 {
        let version = self.versions.next();
        self.in_flight.wait(&*self.env);
        version
    }

    /// Removes rows with versions below `before`. Returns how many, and `before`.
    fn clean_pass(&self, pass: Pass, before: u64) -> Result<(u64, u64)> {
        // Read after `before`: what was published by then has ids below these.
        let allocator = self.allocator.load_full();
        let present = (allocator.generation, allocator.next());
        let previous = allocator.previous.as_ref();
        let previous = previous.map(|it| (allocator.generation.wrapping_sub(1), it.next.clone()));
        let mut removed = 0;
        for (generation, next) in previous.into_iter().chain([present]) {
            for (stripe, end) in next.into_iter().enumerate() {
                removed += self.clean_stripe(pass, before, (generation, stripe, end))?;
            }
        }
        Ok((removed, before))
    }

    fn clean_stripe(
        &self,
        pass: Pass,
        before: u64,
        (generation, stripe, end): (u64, usize, u64),
    ) -> Result<u64> {
        let (table, mut first, _) = self.layout.stripe_range(generation, stripe, 0);
        let Some(last_sequence) = end.checked_sub(1).filter(|last| *last > 0) else { return Ok(0) };
        let last = self.layout.stripe_range(generation, stripe, last_sequence).1;
        let mut removed = 0;
        while first <= last {
            let (candidates, seen_up_to) =
                self.candidates(pass, before, (generation, stripe), (table, first, last))?;
            removed += self.remove_unnamed(pass, generation, &candidates)?;
            first = seen_up_to + 1;
        }
        Ok(removed)
    }

    /// Rows of a kind, and the id up to which all were seen.
    fn candidates(
        &self,
        pass: Pass,
        before: u64,
        (generation, stripe): (u64, usize),
        (table, first, last): (Table, u64, u64),
    ) -> Result<(Vec<Candidate>, u64)> {
        let mut snapshot = self.snapshot()?;
        let (mut found, mut seen, mut at, mut failure) = (Vec::new(), 0, last, None);
        // Tables of the generation before are dropped, with the rows that have moved.
        let allocator = self.allocator.load_full();
        let before_it =
            allocator.previous.as_ref().filter(|_| generation.wrapping_add(1) == allocator.generation);
        if before_it.is_none() && generation != allocator.generation {
            // It is dead by now, and its tables may go at any time.
            return Ok((Vec::new(), last));
        }
        let edge = before_it.and_then(Previous::edge);
        let mut visit = |id: u64, bytes: &[u8]| {
            seen += 1;
            let place = Place { table, id };
            match Row::decode(place, bytes) {
                Ok(row) => {
                    let is_wanted = row.value.is_some() == (pass == Pass::Replaced);
                    if row.version < before && is_wanted && !is_behind(edge.as_ref(), row.key) {
                        let id = self.layout.id_in(generation, stripe, id);
                        found.push(Candidate { place, id, key: Key::from_slice(row.key) });
                    }
                }
                Err(error) => failure = Some(error),
            }
            let goes_on = seen < CHUNK_ROWS && failure.is_none();
            if !goes_on {
                at = id;
            }
            goes_on
        };
        snapshot.rows().scan(table, first, last, &mut visit).map_err(|e| store_error("read rows", &e))?;
        failure.map_or(Ok((found, at)), Err)
    }

    /// The row that the map names for a key.
    fn newest_of(&self, key: &[u8]) -> Result<Option<Id>> {
        let hash = key_hash(key);
        let answer = self.map.get(key, hash)?;
        if answer.is_sure {
            return Ok(answer.ids.first().copied());
        }
        let _held = self.latches.hold(std::iter::once(hash));
        self.resolve(&self.map.get(key, hash)?, key)
    }

    fn remove_unnamed(&self, pass: Pass, generation: u64, candidates: &[Candidate]) -> Result<u64> {
        // Under this lock no table is dropped, and none is made under the name of one that was.
        let _alone = self.maintenance.lock();
        let allocator = self.allocator.load();
        let is_before = allocator.previous.is_some() && generation.wrapping_add(1) == allocator.generation;
        if generation != allocator.generation && !is_before {
            return Ok(0);
        }
        let mut transaction = Transaction::default();
        let mut removed = 0;
        for candidate in candidates {
            let Candidate { place, id, key } = candidate;
            // No id becomes a key's again once another row has replaced it.
            if pass == Pass::Deletions || self.newest_of(key)? != Some(*id) {
                transaction.remove(*place);
                removed += 1;
            }
        }
        if removed > 0 {
            let outcome = commit_alone(&*self.store, &transaction, Durability::Buffered);
            outcome.inspect_err(|error| {
                if error.kind() == ErrorKind::Io {
                    self.poison(error);
                }
            })?;
        }
        Ok(removed)
    }
}
