//! Lookup: the search for one key, as a state machine without I/O, and the loop that drives it.
//!
//! The lookup probes the memtables. Then it tests clip and key range of *all* runs and prefetches their filter lines
//! together. Then it asks for a block of each run whose filter answers maybe, newest run first.
//!
//! As long as the blocks are in the cache, [`Lookup`] goes on and borrows what it needs. The first block that is not there
//! makes it a [`PendingLookup`], which three drivers run: a thread that reads by itself or waits ([`Search::run`]), a
//! future ([`Search::poll`]), and the loop of [`get_many`].
//!
//! # Cost
//! A cached hit costs one probe per memtable and one filter line per run. Each run whose filter answers maybe costs an
//! index search and a block, until the key is found. A separated value costs one read more.
//!
//! # Origin
//! Filters of SSTs in memory: `SifrDB`, section 4.1; parallel search: its section 4.2 ([`pending`]).

mod many;
mod pending;
mod reads;
mod search;

use std::sync::Arc;

use pleach_env::Result;
use pleach_log::SeqNo;
use pleach_table::{BlockRef, SearchStage, Sst, ValueKind, ValuePlace, key_hash};
use smallvec::SmallVec;

pub(crate) use many::get_many;
pub(crate) use search::{Search, timed_out};

use crate::context::Context;
use crate::keys::{self, PARTITION_PREFIX_LEN, PartitionId, PartitionKey};
use crate::memtable::Found;
use crate::operations::check_key;
use crate::read_options::ReadOptions;
use crate::state::State;
use crate::value::Value;
use crate::value_reads::{cached_value, get_value};
use crate::values::ValueSegments;
use crate::version::edit::RunKind;
use crate::version::reads::GET_NS;
use crate::version::{Run, RunFile, SubTree};

/// The next step of a lookup.
enum Step<'l> {
    /// The block with this number of this SST is needed. Pass it to [`Lookup::supply`].
    NeedBlock(&'l Arc<Sst>, u32),
    /// The lookup has ended with this value, or without one.
    Done(Option<Value>),
}

/// The result of the search in one block, or in all that are in the cache.
enum Supplied {
    /// The answer: a value, or none because of a tombstone or because no run holds the key.
    Found(Option<Value>),
    /// Not there. After the search in one block: a false positive of the filter; go on with [`Lookup::step`].
    NotFound,
}

/// See the module's text. Borrows the state that it reads.
struct Lookup<'s> {
    key: PartitionKey,
    hash: u64,
    candidates: SmallVec<[Candidate<'s>; 16]>,
    /// Index of the next candidate to test.
    next: u32,
    /// The block of that candidate, as [`Lookup::step`] has asked for it.
    block: u32,
    /// Whether the lookup is one of the sample that measures filters and runs.
    is_counted: bool,
}

struct Candidate<'s> {
    file: &'s RunFile,
    run: &'s Run,
}

impl<'s> Lookup<'s> {
    /// A lookup that has probed nothing.
    #[inline]
    fn new(partition: PartitionId, user_key: &[u8], visible: SeqNo) -> Self {
        let hash = key_hash(partition.0, user_key);
        let key = keys::partition_key(partition, user_key);
        let is_counted = is_counted(hash, visible);
        Self { key, hash, candidates: SmallVec::new(), next: 0, block: 0, is_counted }
    }

    /// Probes the memtables. The error is the answer that they gave; otherwise the runs of `tree` are to be searched.
    ///
    /// It changes the lookup in place: a function that returned a lookup would move 400 bytes in each cached get.
    #[inline]
    pub(crate) fn start(
        &mut self,
        ctx: &Context,
        state: &State,
        tree: &'s SubTree,
        visible: SeqNo,
    ) -> Result<(), Option<Value>> {
        for memtable in state.memtables() {
            memtable.prefetch(self.hash);
        }
        for memtable in state.memtables() {
            match memtable.get(self.hash, &self.key, visible) {
                Some(Found::Put(value)) => return Err(Some(Value::in_memtable(value))),
                Some(Found::Tombstone) => return Err(None),
                None => {}
            }
        }
        self.find_candidates(ctx, tree);
        Ok(())
    }

    /// Finds the files that may hold the key by clip and key range, newest first, and prefetches their filter lines.
    #[inline]
    fn find_candidates(&mut self, ctx: &Context, tree: &'s SubTree) {
        if self.is_counted {
            tree.reads.note(tree.runs.len(), GET_NS * COUNTED_EVERY);
            ctx.look_at_reads(&tree.reads);
        }
        let user_key = &self.key[PARTITION_PREFIX_LEN..];
        for run in &tree.runs {
            if let Some(file) = run.file_for(user_key) {
                file.prefetch_filter(self.hash);
                self.candidates.push(Candidate { file, run });
            }
        }
    }

    /// Decides the next step.
    #[inline]
    fn step(&mut self) -> Step<'s> {
        self.skip_excluded();
        let Some(candidate) = self.candidates.get(self.next as usize) else {
            self.note_negative_lookups(self.next);
            return Step::Done(None);
        };
        let sst = candidate.file.sst();
        self.block = sst.block_for(self.stored_key(candidate));
        Step::NeedBlock(sst, self.block)
    }

    /// Goes on to the next candidate that its filter does not exclude.
    #[inline]
    fn skip_excluded(&mut self) {
        while let Some(candidate) = self.candidates.get(self.next as usize)
            && !candidate.file.may_contain(self.hash)
        {
            self.next += 1;
        }
    }

    /// Asks for the memory that [`Lookup::step`] will wait for at `stage` of the search in an index.
    #[inline]
    fn prefetch_index(&mut self, stage: SearchStage) {
        self.skip_excluded();
        if let Some(candidate) = self.candidates.get(self.next as usize) {
            candidate.file.sst().prefetch_index(self.stored_key(candidate), stage);
        }
    }

    /// Goes on until the answer is found or a block is not in the cache.
    #[inline]
    fn cached_steps(&mut self, ctx: &Context) -> Supplied {
        loop {
            let step = self.step();
            if ctx.value_cache.prefetch_value(self.hash)
                && let Step::NeedBlock(sst, number) = step
            {
                sst.prefetch_pointers(number);
            }
            match step {
                Step::Done(answer) => return Supplied::Found(answer),
                Step::NeedBlock(sst, number) => match sst.cached_block(number) {
                    None => return Supplied::NotFound,
                    Some(block) => match self.supply(block) {
                        Supplied::Found(answer) => return Supplied::Found(answer),
                        Supplied::NotFound => ctx.note_wasted_probe(),
                    },
                },
            }
        }
    }

    /// Notes for the candidates before `end` that they do not hold the key, if the lookup is counted.
    #[inline]
    fn note_negative_lookups(&self, end: u32) {
        if self.is_counted {
            note_negative_lookups(&self.candidates[..end as usize]);
        }
    }

    /// The key as the candidate stores it.
    #[inline]
    fn stored_key(&self, candidate: &Candidate<'_>) -> &[u8] {
        if candidate.run.kind == RunKind::Section { &self.key } else { &self.key[PARTITION_PREFIX_LEN..] }
    }

    /// Asks for the memory that [`Lookup::supply`] of the block will search first.
    #[inline]
    fn prefetch_in(&self, block: &BlockRef) {
        self.candidates[self.next as usize].file.sst().prefetch_in_block(block);
    }

    /// Searches the block that the last step asked for.
    #[inline]
    fn supply(&mut self, block: BlockRef) -> Supplied {
        let candidate = &self.candidates[self.next as usize];
        let found = search_block(candidate.file.sst(), block, self.stored_key(candidate), self.hash);
        self.next += 1;
        if let Supplied::Found(_) = found {
            self.note_negative_lookups(self.next - 1);
        }
        found
    }
}

/// Searches a block for a key, in the form in which the SST stores it.
#[inline]
fn search_block(sst: &Sst, block: BlockRef, stored_key: &[u8], hash: u64) -> Supplied {
    match sst.get_in_block(&block, stored_key, hash) {
        None => Supplied::NotFound,
        Some((ValueKind::Tombstone, _)) => Supplied::Found(None),
        Some((ValueKind::Put, ValuePlace::Block(range))) => {
            Supplied::Found(Some(Value::in_block(block, range)))
        }
        Some((_, place)) => Supplied::Found(Some(Value::pointer(place.bytes(&block)))),
    }
}

/// Asks for the memory of the memtables that [`Lookup::start`] of each key will probe first.
fn prefetch_memtables<'k>(state: &State, partition: PartitionId, keys: impl Iterator<Item = &'k [u8]>) {
    for key in keys {
        let hash = key_hash(partition.0, key);
        for memtable in state.memtables() {
            memtable.prefetch(hash);
        }
    }
}

#[cold]
fn note_negative_lookups(candidates: &[Candidate<'_>]) {
    for candidate in candidates {
        candidate.file.file.note_negative_lookup();
    }
}

/// One lookup in this many is counted (arbitrary).
const COUNTED_EVERY: u64 = 16;

/// Chooses one lookup in [`COUNTED_EVERY`] by its key and the last write. A counter would be shared by all threads.
#[inline]
fn is_counted(hash: u64, visible: SeqNo) -> bool {
    (hash ^ visible).wrapping_mul(0x9e37_79b9_7f4a_7c15) < u64::MAX / COUNTED_EVERY
}

/// Takes a lookup as far as it comes without waiting for a block. The error is the answer.
///
/// Requires: as [`get_blocking`].
pub(crate) fn begin(
    ctx: &Context,
    state: &State,
    (partition, tree): (PartitionId, &SubTree),
    user_key: &[u8],
    visible: SeqNo,
    options: &ReadOptions,
) -> Result<Search, Result<Option<Value>>> {
    check_key(user_key).map_err(Err)?;
    let mut lookup = Lookup::new(partition, user_key, visible);
    lookup.start(ctx, state, tree, visible).map_err(Ok)?;
    let segments = &state.version.values;
    match lookup.cached_steps(ctx) {
        Supplied::Found(Some(value)) if value.is_pointer() => {
            if let Some(found) = cached_value(ctx, lookup.hash, &value, options.fill_cache) {
                return Err(Ok(Some(found)));
            }
            Search::of_value(ctx, segments, lookup.key, &value, options.fill_cache).map_err(Err)
        }
        Supplied::Found(answer) => Err(Ok(answer)),
        Supplied::NotFound => Ok(Search::new(ctx, lookup.to_pending(options.policy), segments, options)),
    }
}

/// Runs a lookup to its end. The calling thread reads the blocks, or waits for them.
///
/// Requires: the sub-tree is that of the partition in `state`. Liveness and data then come from one state, so a concurrent
/// drop does not change the answer.
#[inline]
pub(crate) fn get_blocking(
    ctx: &Context,
    state: &State,
    (partition, tree): (PartitionId, &SubTree),
    user_key: &[u8],
    visible: SeqNo,
    options: &ReadOptions,
) -> Result<Option<Value>> {
    check_key(user_key)?;
    let mut lookup = Lookup::new(partition, user_key, visible);
    ctx.value_cache.prefetch(lookup.hash);
    if let Err(answer) = lookup.start(ctx, state, tree, visible) {
        return Ok(answer);
    }
    match lookup.cached_steps(ctx) {
        Supplied::Found(Some(value)) if value.is_pointer() => {
            match cached_value(ctx, lookup.hash, &value, options.fill_cache) {
                Some(found) => Ok(Some(found)),
                None => read_value_blocking(ctx, &state.version.values, lookup.key, &value, options),
            }
        }
        Supplied::Found(answer) => Ok(answer),
        Supplied::NotFound => search_blocking(ctx, &lookup, &state.version.values, options),
    }
}

/// Reads the value that the cached blocks point to.
#[cold]
#[inline(never)]
fn read_value_blocking(
    ctx: &Context,
    segments: &ValueSegments,
    key: PartitionKey,
    value: &Value,
    options: &ReadOptions,
) -> Result<Option<Value>> {
    if options.timeout.is_none() {
        return get_value(ctx, segments, split(&key), value, options.fill_cache).map(Some);
    }
    Search::of_value(ctx, segments, key, value, options.fill_cache)?.run(ctx, options)
}

/// The parts of a partition key that a lookup has made.
fn split(key: &PartitionKey) -> (PartitionId, &[u8]) {
    keys::split_partition_key(key).expect("it begins with a partition's number")
}

/// Goes on where a block is not in the cache. Not inlined, so that cached gets do not pay for its variables.
#[cold]
#[inline(never)]
fn search_blocking(
    ctx: &Context,
    lookup: &Lookup<'_>,
    segments: &ValueSegments,
    options: &ReadOptions,
) -> Result<Option<Value>> {
    Search::new(ctx, lookup.to_pending(options.policy), segments, options).run(ctx, options)
}
