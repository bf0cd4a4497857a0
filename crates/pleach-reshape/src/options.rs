//! Options: how a reshaped store is opened.

use std::path::Path;
use std::sync::Arc;

use pleach::env::{Env, RealEnv};
use pleach::{Error, Result};

use crate::handle::Reshaped;
use crate::ids::STRIPES_MAX;
use crate::store::RowStore;

/// How many counters give ids, and where their rows are. Fixed when a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stripes {
    /// One counter: the right choice where a store has one writer at a time.
    One,
    /// So many counters, each with a range of ids of one table.
    Ranges(usize),
    /// So many counters, each with a table of its own.
    Tables(usize),
}

/// What a put does with the row that its key has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// Writes over it.
    #[default]
    InPlace,
    /// Appends a row and removes the one before, in one transaction.
    Replace,
    /// Appends a row. The one before is removed later, with others: see [`Options::replaced_rows`]. A row that was
    /// moved is removed at once, and, if [`Stats::has_runs_of_writers`](crate::Stats::has_runs_of_writers), one from before the
    /// open.
    Defer,
}

/// Where the map is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapPlace {
    /// In a Pleach store in the directory, with recent changes in memory. With the background job, or regular calls of
    /// [`Reshaped::checkpoint`], memory is bounded.
    #[default]
    Disk,
    /// In memory too. Reads do not ask the Pleach store, which still makes the next open short.
    Memory,
}

/// How to open a reshaped store. Every option can be left alone.
///
#[cfg_attr(feature = "redb", doc = "```")]
#[cfg_attr(not(feature = "redb"), doc = "```ignore")]
/// # let dir = tempfile::tempdir().unwrap();
/// use pleach_reshape::store::redb::{RedbOptions, RedbStore};
/// use pleach_reshape::{MapPlace, Options};
///
/// let rows = RedbStore::open(&dir.path().join("rows"), &RedbOptions::default()).expect("a store");
/// let store = Options::new().map(MapPlace::Memory).open(Box::new(rows), dir.path().join("map"))?;
/// store.put(b"k", b"v")?;
/// assert_eq!(store.get(b"k")?.as_deref(), Some(&b"v"[..]));
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) stripes: Option<Stripes>,
    pub(crate) sequence_bits: u32,
    pub(crate) update: Update,
    pub(crate) map: MapPlace,
    pub(crate) delta_bytes: usize,
    pub(crate) row_cache_bytes: usize,
    pub(crate) map_store: pleach::Options,
    pub(crate) runs_checkpoints: bool,
    pub(crate) rebuilds: bool,
    pub(crate) move_bytes: usize,
    pub(crate) move_keys: usize,
    pub(crate) replaced_rows: usize,
}

/// Memory of the map's Pleach store by default: its memtables, filters, indexes and cache.
const MAP_MEMORY: usize = 128 << 20;
/// Memory of the changes since the last checkpoint, by default.
const DELTA_BYTES: usize = 32 << 20;
/// Memory of cached rows, by default.
const ROW_CACHE_BYTES: usize = 32 << 20;
/// Bytes of rows that a move reads at a time.
const MOVE_BYTES: usize = 16 << 20;
/// Keys that a move latches at a time: few, so that writers hardly meet it.
const MOVE_KEYS: usize = 128;
/// Replaced rows before they are removed: their ids take half a MiB, and several are in one page of a table of a million rows.
const REPLACED_ROWS: usize = 1 << 16;
/// Fewest bits of a sequence: stripes of 15 rows, for tests.
const SEQUENCE_BITS_MIN: u32 = 4;
const SEQUENCE_BITS_MAX: u32 = 56;

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            env: Arc::new(RealEnv::new()),
            stripes: None,
            sequence_bits: SEQUENCE_BITS_MAX,
            update: Update::default(),
            map: MapPlace::default(),
            delta_bytes: DELTA_BYTES,
            row_cache_bytes: ROW_CACHE_BYTES,
            map_store: pleach::Options::new().memory(MAP_MEMORY),
            runs_checkpoints: true,
            rebuilds: false,
            move_bytes: MOVE_BYTES,
            move_keys: MOVE_KEYS,
            replaced_rows: REPLACED_ROWS,
        }
    }

    /// The environment of the map's files, clock and job (default: the machine).
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Stripes of a store that is made (default: one where the store has one writer at a time, otherwise 8 ranges). A store that
    /// is there keeps its own.
    #[must_use]
    pub fn stripes(mut self, stripes: Stripes) -> Self {
        self.stripes = Some(stripes);
        self
    }

    /// Bits of a sequence, from 4 to 56 (default), of a store that is made. A store that is there keeps its own. With few bits
    /// its ids are exhausted soon.
    #[must_use]
    pub fn sequence_bits(mut self, bits: u32) -> Self {
        self.sequence_bits = bits;
        self
    }

    /// What a put does with the row that its key has already (default: [`Update::InPlace`]).
    #[must_use]
    pub fn update(mut self, update: Update) -> Self {
        self.update = update;
        self
    }

    /// How many replaced rows of [`Update::Defer`] may be there before checkpoints, and the background job, remove them
    /// (default: 65,536). With twice as many, writers remove what they replace themselves. [`Reshaped::close`] removes the
    /// rest. Those that a crash leaves stay until [`Reshaped::clean`].
    #[must_use]
    pub fn replaced_rows(mut self, rows: usize) -> Self {
        self.replaced_rows = rows.max(1);
        self
    }

    /// Where the map is (default: [`MapPlace::Disk`]).
    #[must_use]
    pub fn map(mut self, place: MapPlace) -> Self {
        self.map = place;
        self
    }

    /// Memory of the changes since the last checkpoint (default: 32 MiB). When a quarter of it is used (half of it
    /// with [`MapPlace::Memory`]), a checkpoint begins; when all of it is used, writers wait for the checkpoint. With
    /// [`MapPlace::Memory`] it is at least half of the map.
    #[must_use]
    pub fn delta_bytes(mut self, bytes: usize) -> Self {
        self.delta_bytes = bytes;
        self
    }

    /// Memory of the cache of rows (default: 32 MiB; 0: no cache). Rows lie in the order in which they were written, so a page of
    /// the store has few rows that are read often; a cache of single rows holds many more of them. Memory is taken as rows are
    /// read; rows of more than a 256th of it are not cached. Ranges, snapshots and [`Reshaped::get_many`] do not use it.
    #[must_use]
    pub fn row_cache_bytes(mut self, bytes: usize) -> Self {
        self.row_cache_bytes = bytes;
        self
    }

    /// Options of the map's Pleach store, except for its environment (default: those of Pleach, with 128 MiB of memory).
    ///
    /// Give it about four bytes of memory for each key: then its filters, 1.3 bytes a key, are all in memory beside its other
    /// parts, and a put of a new key reads nothing. With less, puts read blocks of the map. Those of a batch are read at the same
    /// time, those of single puts one after the other. Where rows are in the order of their keys, behind a recluster or because
    /// they came so, the map is smaller, and a put of a key among them reads a block unless it is in memory. A map in memory
    /// needs only enough for its writes.
    #[must_use]
    pub fn map_options(mut self, options: pleach::Options) -> Self {
        self.map_store = options;
        self
    }

    /// Whether a background job makes checkpoints, ends what a crash has interrupted, and lets readers leave files that the map's
    /// store has replaced (default: yes). Without it, [`Reshaped::checkpoint`] and [`Reshaped::drain`] do, and writers wait for
    /// no checkpoint: until the next one, the changes of the map take as much memory as they need.
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.runs_checkpoints = yes;
        self
    }

    /// Whether a map that cannot be read is thrown away, and made again by reading all rows (default: no; the open returns the
    /// error).
    #[must_use]
    pub fn rebuild_damaged_map(mut self, yes: bool) -> Self {
        self.rebuilds = yes;
        self
    }

    /// How much [`Reshaped::recluster`] moves at a time: bytes of rows in memory, and keys in one transaction (default: 16 MiB,
    /// 128 keys). A transaction also ends behind about 1 MiB of values.
    #[must_use]
    pub fn moves(mut self, bytes: usize, keys: usize) -> Self {
        self.move_bytes = bytes;
        self.move_keys = keys.max(1);
        self
    }

    /// Opens the reshaped store of `store`, whose map is in `dir`, or makes it.
    ///
    /// # Errors
    /// - `InvalidArgument`: an option is out of range, or `store` has rows that this crate has not written.
    /// - `Unsupported`: the store was written by a newer version.
    /// - `Corruption`: a row, a named value or the map is damaged. See [`Options::rebuild_damaged_map`] for the map.
    /// - `Io`: the store, or the system, refused a call.
    pub fn open(self, store: Box<dyn RowStore>, dir: impl AsRef<Path>) -> Result<Reshaped> {
        self.check()?;
        Reshaped::open_with(store, dir.as_ref(), self)
    }

    fn check(&self) -> Result<()> {
        let stripes = match self.stripes {
            None | Some(Stripes::One) => 1,
            Some(Stripes::Ranges(count) | Stripes::Tables(count)) => count,
        };
        if !(1..STRIPES_MAX).contains(&stripes) {
            return Err(Error::invalid(format!(
                "{stripes} stripes; from 1 to {} are possible",
                STRIPES_MAX - 1
            )));
        }
        if !(SEQUENCE_BITS_MIN..=SEQUENCE_BITS_MAX).contains(&self.sequence_bits) {
            let message = format!("{} bits of a sequence; from 4 to 56 are possible", self.sequence_bits);
            return Err(Error::invalid(message));
        }
        Ok(())
    }
}
