//! Open: finds out what the store is and whether the map belongs to it, and reads the rows that the map misses.
//!
//! A map is good if it belongs to the store, is not ahead of it, and is not from before tables were dropped or a map was
//! rebuilt. Then the rows at or above its marks are read. Otherwise it is thrown away and all rows are read.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use pleach::env::Env;
use pleach::env::sync::{Mutex, RwLock};
use pleach::{Error, ErrorKind, Result};

use crate::checkpoint::Maintenance;
use crate::generations::create_table;
use crate::group::Group;
use crate::handle::Inner;
use crate::ids::{Allocator, Layout};
use crate::in_flight::{InFlight, SLOT_COUNT};
use crate::job::JobErrors;
use crate::latches::{LATCH_COUNT, Latches};
use crate::map::records::Record;
use crate::map::{Base, Map, MapStore, Present, Rows, RunsOf};
use crate::named::{self, CheckpointNumbers, Generation, Identity, store_error};
use crate::options::{MapPlace, Options, Stripes, Update};
use crate::recovery::Recovery;
use crate::replaced::Replaced;
use crate::row_cache::{COUNTER_COUNT, RowCache};
use crate::sorted::remove_leftover;
use crate::store::RowStore;
use crate::versions::Versions;

/// Stripes of a store with concurrent writers: at least as many as threads that insert usually. No store got faster by more.
const STRIPES_DEFAULT: usize = 8;

/// What an open did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// Why the map was rebuilt from all rows; `None` if it was good.
    pub rebuilt: Option<String>,
    /// Rows that were read.
    pub rows_read: u64,
}

pub(crate) fn open(store: Box<dyn RowStore>, dir: &Path, options: Options) -> Result<(Inner, OpenReport)> {
    let identity = match named::identity(&*store)? {
        Some(identity) => identity,
        None => create(&*store, &options)?,
    };
    let layout = identity.layout;
    let generation = named::generation(&*store)?;
    make_tables(&*store, layout, generation)?;
    let had_garbage = named::has_garbage(&*store)?;
    if options.update == Update::Defer && !had_garbage {
        named::set_garbage(&*store, true)?;
    }
    let (garbage, versions) = (named::has_garbage(&*store)?, Versions::new(named::ceiling(&*store)?));
    let mut numbers = named::checkpoint_numbers(&*store)?;
    let dir = &options.env.absolute(dir).map_err(|e| Error::io("find the directory of the map,", dir, e))?;
    remove_leftover(&*options.env, dir)?;
    let edge = if generation.is_draining { named::edge(&*store, generation.number)? } else { None };
    let mut map_store = open_map(&options, dir, layout, &Present { generation, edge: edge.clone() })?;
    let (rebuilt, records) = match good_records(&map_store, &identity, generation, numbers) {
        Ok(records) => (None, Some(records)),
        Err(Distrust::Broken(error)) if !options.rebuilds => return Err(error),
        Err(Distrust::Broken(error)) => (Some(error.to_string()), None),
        Err(Distrust::Because(why)) => (Some(why), None),
    };
    let read = |map_store: &MapStore| read_base(map_store, &*store, &options, layout);
    let base = if records.is_some() { read(&map_store) } else { Ok(map_store.base()) };
    let (rebuilt, records) = match &base {
        Err(error) if !options.rebuilds => return Err(error.clone()),
        Err(error) => (Some(error.to_string()), None),
        Ok(_) => (rebuilt, records),
    };
    if records.is_none() {
        // Maps from before may name ids that are going to be given again.
        let newest = numbers.newest + 1;
        numbers = CheckpointNumbers { newest, oldest: newest, map: options.env.random_u64() };
        named::set_checkpoint_numbers(&*store, numbers)?;
        map_store.clear()?;
    }
    let base = if records.is_some() { base? } else { read(&map_store)? };
    let mut inner = Inner {
        env: Arc::<dyn Env>::clone(&options.env),
        dir: dir.clone(),
        identity: identity.number[0],
        layout,
        map: Map::new(base),
        latches: Latches::new(LATCH_COUNT),
        rows: RowCache::new(options.row_cache_bytes, COUNTER_COUNT),
        in_flight: InFlight::new(SLOT_COUNT),
        tickets: AtomicU64::new(0),
        versions,
        newest_checkpoint: AtomicU64::new(numbers.newest),
        allocator: ArcSwap::from_pointee(Allocator::new(layout, 0, &[], None)),
        group: Group::default(),
        gate: RwLock::new(()),
        moving: Mutex::new(()),
        range_moves: AtomicU64::new(0),
        runs_end_at_open: runs_end(records.as_ref(), layout, generation),
        has_runs_of_writers: AtomicBool::new(map_store.has_runs_of_writers()),
        maintenance: Mutex::new(Maintenance::new(map_store, numbers, options.env.now())),
        garbage: AtomicBool::new(garbage),
        replaced: Replaced::new(had_garbage),
        is_drain_due: AtomicBool::new(generation.is_draining),
        poison: OnceLock::new(),
        unknown: OnceLock::new(),
        is_closing: AtomicBool::new(false),
        job_errors: Mutex::new(JobErrors::default()),
        options,
        store,
    };
    let rows_read = Recovery::new(&inner, generation, edge, records.as_ref()).run(&mut inner)?;
    // Without it all keys are looked for, and damage is an error of who comes to it.
    let _ = inner.map.find_greatest();
    Ok((inner, OpenReport { rebuilt: rebuilt.filter(|_| rows_read > 0), rows_read }))
}

/// Makes a store one of ours, if nothing else is in it.
fn create(store: &dyn RowStore, options: &Options) -> Result<Identity> {
    let concurrent = store.abilities().concurrent_writers;
    let default = if concurrent { Stripes::Ranges(STRIPES_DEFAULT) } else { Stripes::One };
    let layout = Layout::new(options.stripes.unwrap_or(default), options.sequence_bits);
    for table in layout.tables(0) {
        store.create_table(table).map_err(|e| store_error("make a table", &e))?;
        let mut snapshot = store.snapshot().map_err(|e| store_error("make a snapshot", &e))?;
        if snapshot.last(table, 0, u64::MAX).map_err(|e| store_error("read rows", &e))?.is_some() {
            return Err(Error::invalid(
                "the store has rows that were written without key reshaping; import them",
            ));
        }
    }
    let number = [options.env.random_u64(), options.env.random_u64()];
    let identity = Identity { number, layout };
    named::create(store, &identity)?;
    Ok(identity)
}

/// Makes the tables that a crash may have left out, and drops those of a dead generation.
fn make_tables(store: &dyn RowStore, layout: Layout, generation: Generation) -> Result<()> {
    let Generation { number, is_draining } = generation;
    for table in layout.tables(number) {
        create_table(store, layout, (table, number)).map_err(|e| store_error("make a table", &e))?;
    }
    for table in layout.tables(number + 1) {
        let done = if is_draining { store.create_table(table) } else { store.drop_table(table) };
        done.map_err(|e| store_error("make or drop a table", &e))?;
    }
    Ok(())
}

fn open_map(options: &Options, dir: &Path, layout: Layout, present: &Present) -> Result<MapStore> {
    let (env, settings) = (&options.env, (layout, runs_of(options)));
    let open = || MapStore::open(env, dir, options.map_store.clone(), settings, present.clone());
    let opened = open();
    match opened {
        Err(error) if options.rebuilds && error.kind() == ErrorKind::Corruption => {
            pleach::destroy(dir, &options.map_store.clone().env(Arc::clone(&options.env)))?;
            open()
        }
        opened => opened,
    }
}

/// Per stripe the sequence that rows of writers in runs of the map are below.
fn runs_end(records: Option<&(Record, Record)>, layout: Layout, generation: Generation) -> Vec<u64> {
    match records {
        // The sequences are of one generation, and runs may be of two.
        Some(_) if generation.is_draining => vec![u64::MAX; layout.stripe_count()],
        Some((_, ends)) => ends.sequences.clone(),
        None => vec![0; layout.stripe_count()],
    }
}

/// Whose rows become runs of the map.
pub(crate) fn runs_of(options: &Options) -> RunsOf {
    match (options.map, options.update) {
        (MapPlace::Memory, _) => RunsOf::Nobody,
        // A replaced row that is still there would look as if it were its key's.
        (MapPlace::Disk, Update::Defer) => RunsOf::Moves,
        (MapPlace::Disk, Update::InPlace | Update::Replace) => RunsOf::All,
    }
}

fn read_base(map_store: &MapStore, store: &dyn RowStore, options: &Options, layout: Layout) -> Result<Base> {
    match options.map {
        MapPlace::Disk => Ok(map_store.base()),
        MapPlace::Memory => {
            let mut rows = store.snapshot().map_err(|e| store_error("make a snapshot", &e))?;
            map_store.load(&mut Rows { snapshot: &mut *rows, layout, seen: &mut |_, _| {} })
        }
    }
}

/// Why a map is not used.
enum Distrust {
    /// It cannot be read.
    Broken(Error),
    /// It is not of this store, or not of its present.
    Because(String),
}

/// The records of a map that is good for the store.
fn good_records(
    map_store: &MapStore,
    identity: &Identity,
    generation: Generation,
    numbers: CheckpointNumbers,
) -> Result<(Record, Record), Distrust> {
    let because = |why: &str| Err(Distrust::Because(why.into()));
    let Some((checkpoint, ends)) = map_store.records().map_err(Distrust::Broken)? else {
        return because("there is no checkpoint");
    };
    if [&checkpoint, &ends].iter().any(|record| record.identity[0] != identity.number[0]) {
        return because("the map belongs to another store");
    }
    if [&checkpoint, &ends].iter().any(|record| record.identity[1] != numbers.map) {
        return because("the map was replaced by another one");
    }
    if checkpoint.number.max(ends.number) > numbers.newest {
        return because("the map is ahead of its store");
    }
    if checkpoint.number < numbers.oldest {
        return because("the map is older than the store's tables");
    }
    let is_before = generation.is_draining && checkpoint.generation + 1 == generation.number;
    let stripes = identity.layout.stripe_count();
    if !is_before && checkpoint.generation != generation.number {
        return because("the map is of another generation of tables");
    }
    if checkpoint.sequences.len() != stripes || ends.sequences.len() != stripes {
        return because("the map has another number of stripes");
    }
    Ok((checkpoint, ends))
}
