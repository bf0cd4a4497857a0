//! A point lookup as a state machine that knows nothing of I/O.
//!
//! It asks the memtables, then tests clip and key range of *all* runs and has their filter lines fetched together, and
//! only then asks for blocks, newest run first, where the filter says maybe. Whoever drives it (a blocking `pread`, or
//! later an asynchronous ring) brings the blocks it asks for.
//!
//! # Cost
//! A cached hit: one probe per memtable, one filter line per run (prefetched together), one index search and one block
//! for each run whose filter says maybe, newest first until the key is found.
//!
//! # Origin
//! Filters of SSTs in memory: `SifrDB`, section 4.1; the serial policy is its "no parallel search" case.

use std::sync::Arc;

use pleach_env::Result;
use pleach_log::SeqNo;
use pleach_table::{BlockRef, Sst, ValueKind, key_hash};
use smallvec::SmallVec;

use crate::context::Context;
use crate::keys::{self, PARTITION_PREFIX_LEN, PartitionId, PartitionKey};
use crate::memtable::Memtable;
use crate::state::State;
use crate::value::Value;
use crate::version::edit::RunKind;
use crate::version::reads::GET_NS;
use crate::version::{RunFile, SubTree};

/// The next step of a lookup.
pub(crate) enum Step<'l> {
    /// Block `1` of SST `0`; bring it to [`Lookup::supply`].
    NeedBlock(&'l Arc<Sst>, u32),
    /// The answer: the value, or none.
    Done(Option<Value>),
}

/// The answer of a block.
pub(crate) enum Supplied {
    /// The answer: the value, or none, for the newest version is a tombstone.
    Answer(Option<Value>),
    /// The key is not in it: the filter's maybe was wrong. Go on with [`Lookup::step`].
    NotThere,
}

/// The lookup. Borrows the state it reads.
pub(crate) struct Lookup<'s> {
    key: PartitionKey,
    hash: u64,
    candidates: SmallVec<[Candidate<'s>; 16]>,
    /// Candidates up to here are settled.
    next: u32,
    /// Whether it is one of those by which the most useful filters are found.
    /// Stored as u32: a bool grows the result of [`Lookup::start`] and slows the call (measured).
    is_counted: u32,
}

struct Candidate<'s> {
    file: &'s RunFile,
    /// Whether the SST holds partition keys.
    shared: bool,
}

impl<'s> Lookup<'s> {
    /// Asks the memtables; the answer, or a lookup that still has runs to ask.
    #[inline]
    pub(crate) fn start(
        state: &'s State,
        (partition, tree): (PartitionId, &'s SubTree),
        user_key: &[u8],
        visible: SeqNo,
    ) -> Result<Self, Option<Value>> {
        let hash = key_hash(partition.0, user_key);
        let key = keys::partition_key(partition, user_key);
        for memtable in state.memtables() {
            memtable.prefetch(hash);
        }
        for memtable in state.memtables() {
            if let Some(found) = memtable.get(hash, &key, visible) {
                return Err(match found.kind {
                    ValueKind::Tombstone => None,
                    _ => Some(Self::memtable_value(memtable, found)),
                });
            }
        }
        let is_counted = u32::from(is_counted(hash, visible));
        let mut lookup = Self { key, hash, candidates: SmallVec::new(), next: 0, is_counted };
        lookup.find_candidates(tree);
        Ok(lookup)
    }

    fn memtable_value(memtable: &Arc<Memtable>, found: crate::memtable::VersionView<'_>) -> Value {
        Value::in_memtable(Arc::clone(memtable), found.value_at, found.value.len())
    }

    /// The files that may hold the key by clip and key range, newest first. Their filters are on the way to the cache.
    #[inline]
    fn find_candidates(&mut self, tree: &'s SubTree) {
        if self.is_counted != 0 {
            tree.reads.note(tree.runs.len(), GET_NS * COUNTED_EVERY);
        }
        let user_key = &self.key[PARTITION_PREFIX_LEN..];
        for run in &tree.runs {
            if let Some(file) = run.file_for(user_key) {
                file.prefetch_filter(self.hash);
                self.candidates.push(Candidate { file, shared: run.kind == RunKind::Section });
            }
        }
    }

    /// Decides the next step.
    #[inline]
    pub(crate) fn step(&mut self) -> Step<'_> {
        loop {
            let Some(candidate) = self.candidates.get(self.next as usize) else {
                self.note_absences(self.next);
                return Step::Done(None);
            };
            if candidate.file.may_contain(self.hash) {
                let sst = candidate.file.file.sst();
                return Step::NeedBlock(sst, sst.block_for(self.stored_key(candidate)));
            }
            self.next += 1;
        }
    }

    /// Counts the candidates before this one as wasted probes, if the lookup is one of those that are counted.
    #[inline]
    fn note_absences(&self, end: u32) {
        if self.is_counted != 0 {
            note_absences(&self.candidates[..end as usize]);
        }
    }

    /// The key as the candidate stores it.
    #[inline]
    fn stored_key(&self, candidate: &Candidate<'_>) -> &[u8] {
        if candidate.shared { &self.key } else { &self.key[PARTITION_PREFIX_LEN..] }
    }

    /// Takes the block last asked for.
    #[inline]
    pub(crate) fn supply(&mut self, block: BlockRef) -> Supplied {
        let candidate = &self.candidates[self.next as usize];
        let found = candidate.file.file.sst().get_in_block(&block, self.stored_key(candidate), self.hash);
        self.next += 1;
        if found.is_some() {
            self.note_absences(self.next - 1);
        }
        match found {
            None => Supplied::NotThere,
            Some((ValueKind::Tombstone, _)) => Supplied::Answer(None),
            Some((_, range)) => Supplied::Answer(Some(Value::in_block(block, range))),
        }
    }
}

#[cold]
fn note_absences(candidates: &[Candidate<'_>]) {
    for candidate in candidates {
        candidate.file.file.note_absence();
    }
}

/// One lookup in so many is counted.
const COUNTED_EVERY: u64 = 16;

/// One lookup in [`COUNTED_EVERY`]: by key, and another choice after each write. No counter, which threads would have to
/// share.
#[inline]
fn is_counted(hash: u64, visible: SeqNo) -> bool {
    (hash ^ visible).wrapping_mul(0x9e37_79b9_7f4a_7c15) < u64::MAX / COUNTED_EVERY
}

/// Runs a lookup to its end, reading blocks with the caller's thread.
///
/// Requires: the sub-tree is that of the partition in `state`. So liveness and data come from one state, and a concurrent
/// drop does not change the answer.
#[inline]
pub(crate) fn get_blocking(
    ctx: &Context,
    state: &State,
    partition: (PartitionId, &SubTree),
    user_key: &[u8],
    visible: SeqNo,
) -> Result<Option<Value>> {
    let mut lookup = match Lookup::start(state, partition, user_key, visible) {
        Ok(lookup) => lookup,
        Err(answer) => return Ok(answer),
    };
    loop {
        let block = match lookup.step() {
            Step::Done(answer) => return Ok(answer),
            Step::NeedBlock(sst, number) => {
                sst.read_block(number).map_err(|error| ctx.status.read_failed(error))?
            }
        };
        match lookup.supply(block) {
            Supplied::Answer(answer) => return Ok(answer),
            Supplied::NotThere => ctx.note_wasted_probe(),
        }
    }
}
