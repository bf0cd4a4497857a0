//! WiredTiger's part of the indexed engine. Transactions of several threads run side by side.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use pleach_bench::{Engine, EngineConfig, EngineFactory, Result};
use pleach_wiredtiger::{Connection, Direction, Session, Statistic};

use super::{Bounds, Indexed, IndexedStore, Tables, factory as indexed};
use crate::wiredtiger::{PAGES, connection_config, group, own_words, version};

/// The factory of WiredTiger with an index.
pub(crate) fn factory() -> EngineFactory {
    let about = format!("WiredTiger {}, rows by id and an index of keys in the same store", version());
    indexed("wiredtiger-indexed", about.leak(), open)
}

const INDEX: (usize, &CStr) = (0, c"table:index");
const ROWS: (usize, &CStr) = (1, c"table:rows");

struct WiredTiger {
    connection: Connection,
    idle: Mutex<Vec<Session>>,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let (words, writes_log) = connection_config(&mut config)?;
    let group = group(&mut config, writes_log)?;
    let table = own_words(&mut config, "table")?;
    config.no_tuning_left()?;
    let connection = Connection::open(&config.dir, &words)?;
    let mut session = connection.session()?;
    for (_, name) in [INDEX, ROWS] {
        session.create(name, &format!("key_format=u,value_format=u{PAGES}{table}"))?;
    }
    let mut last = None;
    session.scan(ROWS.0, ROWS.1, None, Direction::Reverse, &mut |id, _| {
        last = Some(number(id));
        false
    })?;
    let next = AtomicU64::new(last.map_or(0, |last| last + 1));
    let store = WiredTiger { connection, idle: Mutex::new(vec![session]) };
    Ok(Box::new(Indexed { store, partitions: config.partitions, next, group }))
}

#[expect(clippy::big_endian_bytes, reason = "WiredTiger compares keys as bytes")]
fn bytes(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

#[expect(clippy::big_endian_bytes, reason = "as above")]
fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("the index has ids"))
}

impl WiredTiger {
    /// Uses a session of the pool.
    fn with_session<T>(&self, use_it: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let idle = self.idle.lock().map_err(|_| "another thread panicked")?.pop();
        let mut session = idle.map_or_else(|| self.connection.session(), Ok)?;
        let result = use_it(&mut session);
        self.idle.lock().map_err(|_| "another thread panicked")?.push(session);
        result
    }
}

impl IndexedStore for WiredTiger {
    fn transact(&self, change: &mut dyn FnMut(&mut dyn Tables) -> Result<bool>) -> Result<()> {
        self.with_session(|session| {
            loop {
                session.begin()?;
                match change(&mut WiredTigerTables(session)) {
                    Ok(true) => return session.commit(),
                    Ok(false) => session.roll_back()?,
                    Err(error) => {
                        session.roll_back()?;
                        return Err(error);
                    }
                }
            }
        })
    }

    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.with_session(|session| {
            let id = WiredTigerTables(session).id(key)?;
            id.map_or(Ok(false), |id| session.get(ROWS.0, ROWS.1, &bytes(id), read))
        })
    }

    fn scan(
        &self,
        bounds: &Bounds,
        is_reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let (from, to, direction) = match is_reverse {
            false => (&bounds.0, &bounds.1, Direction::Forward),
            true => (&bounds.1, &bounds.0, Direction::Reverse),
        };
        let start = match from {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.as_slice()),
            Bound::Unbounded => None,
        };
        let is_inside = |key: &[u8], end: &Bound<Vec<u8>>, is_upper: bool| match end {
            Bound::Included(end) => {
                if is_upper {
                    key <= end.as_slice()
                } else {
                    key >= end.as_slice()
                }
            }
            Bound::Excluded(end) => {
                if is_upper {
                    key < end.as_slice()
                } else {
                    key > end.as_slice()
                }
            }
            Bound::Unbounded => true,
        };
        self.with_session(|session| {
            session.begin_snapshot()?;
            let mut other = self.connection.session()?;
            let mut failed = None;
            let scanned = session.scan(INDEX.0, INDEX.1, start, direction, &mut |key, id| {
                if !is_inside(key, from, is_reverse) {
                    // An excluded start.
                    return true;
                }
                if !is_inside(key, to, !is_reverse) {
                    return false;
                }
                let mut goes_on = false;
                match other.get(ROWS.0, ROWS.1, id, &mut |row| goes_on = visit(key, row)) {
                    Ok(_) => goes_on,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            });
            session.roll_back()?;
            scanned?;
            failed.map_or(Ok(()), Err)
        })
    }

    fn flush(&self) -> Result<()> {
        self.with_session(|session| session.checkpoint())
    }

    fn details(&self) -> Result<BTreeMap<String, u64>> {
        self.with_session(|session| {
            let written = session.statistic(Statistic::BlockWrittenBytes)?;
            Ok(BTreeMap::from([("block_written_bytes".to_owned(), written)]))
        })
    }
}

struct WiredTigerTables<'s>(&'s mut Session);

impl Tables for WiredTigerTables<'_> {
    fn id(&mut self, key: &[u8]) -> Result<Option<u64>> {
        let mut id = None;
        self.0.get(INDEX.0, INDEX.1, key, &mut |bytes| id = Some(number(bytes)))?;
        Ok(id)
    }

    fn add(&mut self, key: &[u8], id: u64, value: &[u8]) -> Result<bool> {
        Ok(self.0.insert(INDEX.0, INDEX.1, key, &bytes(id))? && self.replace(id, value)?)
    }

    fn replace(&mut self, id: u64, value: &[u8]) -> Result<bool> {
        self.0.insert(ROWS.0, ROWS.1, &bytes(id), value)
    }

    fn remove(&mut self, key: &[u8], id: u64) -> Result<bool> {
        Ok(self.0.remove(INDEX.0, INDEX.1, key)? && self.0.remove(ROWS.0, ROWS.1, &bytes(id))?)
    }
}
