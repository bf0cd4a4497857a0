//! Reads of one key, which take no latch unless they meet a writer.
//!
//! A row in the cache is the answer. Otherwise the map says where the row is. A row that is found there under the right key is
//! the answer. If it is not, its key has been moved or deleted, or is being so: the map is read again, and at last under the
//! key's latch. Then the map's entry is stale, and the key is not there.
//!
//! Before it returns what a writer has committed and not yet published, a read waits for the publication. Otherwise it
//! could show one part of a batch while the next read misses another. If the map's base says that a key is not there, the read
//! waits for any writer that holds its latch: a checkpoint may have taken that writer's deletion before the writer has
//! invalidated the cached rows of its batch (`Latches::wait_for`).

use pleach::Result;

use crate::handle::{Inner, Reshaped};
use crate::ids::Id;
use crate::map::{Answer, key_hash};
use crate::named::store_error;
use crate::row::Row;

/// How often a read believes that its key was moved just now. Then it takes the latch.
const ATTEMPTS_MAX: usize = 3;

impl Reshaped {
    /// The value of a key.
    ///
    /// # Errors
    /// - `Corruption`: the row or the map is damaged.
    /// - `Io`: the store, or the map's store, refused.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.inner.check_readable()?;
        self.inner.get(key.as_ref())
    }

    /// The values of some keys, all of one moment. Rows that are neighbours in the store are read together.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        self.snapshot()?.get_many(keys)
    }
}

impl Inner {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let hash = key_hash(key);
        let miss = match self.rows.get(key, hash) {
            Ok(value) => return Ok(Some(value)),
            Err(miss) => miss,
        };
        let mut missed = None;
        for _ in 0..ATTEMPTS_MAX {
            let answer = self.map.get(key, hash)?;
            if answer.ids.is_empty() {
                self.latches.wait_for(hash, answer.version);
                return Ok(None);
            }
            if missed.as_ref() == Some(&answer.ids) {
                break;
            }
            if let Some((id, value, version)) = self.row_of(&answer, key, false, <[u8]>::to_vec)? {
                self.latches.wait_for(hash, version);
                self.rows.fill(miss, key, hash, id, &value);
                return Ok(Some(value));
            }
            missed = Some(answer.ids);
        }
        let _held = self.latches.hold(std::iter::once(hash));
        let answer = self.map.get(key, hash)?;
        Ok(self.row_of(&answer, key, true, <[u8]>::to_vec)?.map(|(_, value, _)| value))
    }

    /// The row of a key, of which the map says this: its id, what `take` makes of its value, and its version.
    ///
    /// Of several ids that may be the key's the first one counts whose row has the key: a later one may be of the generation
    /// before, and dead. If a row is gone, it may have been the key's when the map was read. Then only who holds the key's latch
    /// (`is_latched`), and has read the map under it, can go on to the next.
    pub(crate) fn row_of<T>(
        &self,
        answer: &Answer,
        key: &[u8],
        is_latched: bool,
        take: impl Fn(&[u8]) -> T,
    ) -> Result<Option<(Id, T, u64)>> {
        for id in &answer.ids {
            let mut is_there = false;
            if let Some((value, version)) = self.look(*id, key, &mut is_there, &take)? {
                return Ok(Some((*id, value, version)));
            }
            if !is_there && !is_latched {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// What `take` makes of the value of a row, if it is there and has this key; and its version.
    pub(crate) fn read_row<T>(
        &self,
        id: Id,
        key: &[u8],
        take: impl Fn(&[u8]) -> T,
    ) -> Result<Option<(T, u64)>> {
        self.look(id, key, &mut false, take)
    }

    /// The same; `is_there` is set if there is a row, of whichever key.
    fn look<T>(
        &self,
        id: Id,
        key: &[u8],
        is_there: &mut bool,
        take: impl Fn(&[u8]) -> T,
    ) -> Result<Option<(T, u64)>> {
        let place = self.layout.place(id);
        let mut row = Ok(None);
        let mut read = |bytes: &[u8]| {
            row = Row::decode(place, bytes).map(|row| {
                let value = row.value.filter(|_| row.key == key)?;
                Some((take(value), row.version))
            });
        };
        *is_there = self.store.get(place, &mut read).map_err(|e| store_error("read a row", &e))?;
        row
    }
}
