//! A session: one thread's access to a store, and what it does with rows.

use std::sync::Arc;

use pleach_bench::{EngineConfig, Result, Session};

use crate::store::{Store, Stores};

/// One thread's access to a store.
pub struct PeersSession {
    // Before the store: it is dropped first.
    session: Box<dyn Session>,
    store: Arc<Store>,
    /// The row that is updated.
    row: Vec<u8>,
}

impl PeersSession {
    pub(crate) fn open(name: &str, config: EngineConfig) -> Result<Self> {
        let mut stores = Stores::lock();
        let store = stores.open(name, config)?;
        // SAFETY: it borrows from the engine, which the box in `store` keeps in its place. It is dropped before `store`.
        let session = store.engine.session().map(|session| unsafe {
            std::mem::transmute::<Box<dyn Session + '_>, Box<dyn Session + 'static>>(session)
        });
        match session {
            Ok(session) => Ok(Self { session, store, row: Vec::new() }),
            Err(error) => {
                stores.close(store)?;
                Err(error)
            }
        }
    }

    /// Ends the session. The last one of a store closes the store.
    pub(crate) fn close(self) -> Result<()> {
        let Self { session, store, row: _ } = self;
        drop(session);
        Stores::lock().close(store)
    }

    pub(crate) fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<()> {
        self.check(table)?;
        self.session.put(table, key, row)
    }

    /// Reads a row, sets `field` at `offset` in it and writes it; whether there is one. Of two updates of one row at a time the
    /// last one may undo the other.
    pub(crate) fn update(&mut self, table: usize, key: &[u8], offset: usize, field: &[u8]) -> Result<bool> {
        self.check(table)?;
        let Self { session, row, .. } = self;
        row.clear();
        if !session.get(table, key, &mut |bytes| row.extend_from_slice(bytes))? {
            return Ok(false);
        }
        let len = row.len();
        let place = offset.checked_add(field.len()).and_then(|end| row.get_mut(offset..end));
        let Some(place) = place else {
            return Err(format!("the row has {len} bytes, and no field at {offset}").into());
        };
        place.copy_from_slice(field);
        session.put(table, key, row)?;
        Ok(true)
    }

    /// Shows a row; whether there is one.
    pub(crate) fn read(&mut self, table: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.check(table)?;
        self.session.get(table, key, read)
    }

    /// Removes all tables. They are not used afterwards.
    pub(crate) fn drop_tables(&mut self) -> Result<()> {
        (0..self.store.tables()).try_for_each(|table| self.store.engine.drop_partition(table))
    }

    fn check(&self, table: usize) -> Result<()> {
        let tables = self.store.tables();
        if table < tables { Ok(()) } else { Err(format!("no table {table}: there are {tables}").into()) }
    }
}
