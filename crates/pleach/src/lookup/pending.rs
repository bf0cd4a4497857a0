//! A point lookup that wants blocks which are not in the cache: a state machine that borrows nothing.
//!
//! Its candidates are the files that range and filter did not exclude, newest first. The policy says which of them are
//! searched at the same time. The driver reads the blocks that [`PendingLookup::want`] asks for, in any order, and gives
//! each to [`PendingLookup::supply`]. The newest candidate that has not missed decides: its answer is the lookup's, and so
//! is its error. Candidates behind a known answer are not started any more.
//!
//! # Invariants
//! 1. Candidates before `newest` have missed or were excluded; those from `untried` on have not been started.
//!
//! # Origin
//! `SifrDB`, section 4.2. Departures: `SifrDB` gives each candidate to a search thread; here the threads are reads in
//! flight. The task is woken only for the newest candidate, so FC starts the next candidate when the newest has missed, and
//! not when any search has ended. [`ReadPolicy::Auto`] is ours.

use std::mem;
use std::sync::Arc;

use pleach_env::Result;
use pleach_table::{BlockRef, Sst};
use smallvec::SmallVec;

use super::{Lookup, Supplied, search_block};
use crate::context::Context;
use crate::keys::{PARTITION_PREFIX_LEN, PartitionKey};
use crate::read_options::ReadPolicy;
use crate::value::Value;
use crate::version::SstFile;
use crate::version::edit::RunKind;

/// Candidates without filters that [`ReadPolicy::Auto`] reads at the same time. `SifrDB`'s number (sections 4.2 and 5.3.3).
const AUTO_COUNT: usize = 16;

/// See the module's text. It keeps the files that may hold the key, and nothing else of the state it began with.
pub(crate) struct PendingLookup {
    key: PartitionKey,
    hash: u64,
    policy: ReadPolicy,
    /// Newest first.
    candidates: SmallVec<[Candidate; 1]>,
    /// The block that the first of them wants. It was not in the cache.
    first_block: u32,
    /// The newest candidate that has not missed.
    newest: usize,
    untried: usize,
    in_flight: usize,
    /// Whether a candidate has an answer or failed.
    is_decided: bool,
    /// Whether misses are counted for the review of filters.
    is_counted: bool,
}

struct Candidate {
    file: Arc<SstFile>,
    sst: Arc<Sst>,
    /// Whether the SST holds partition keys.
    shared: bool,
    has_filter: bool,
    stage: u8,
    /// Whether its block was not in the cache.
    was_read: bool,
    progress: Progress,
}

enum Progress {
    Untried,
    /// The filter has excluded it.
    Excluded,
    InFlight,
    Missed,
    Ended(Result<Option<Value>>),
}

/// A block that the lookup wants.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) candidate: usize,
    pub(crate) block: u32,
}

impl Lookup<'_> {
    /// What is left of the lookup.
    ///
    /// Requires: the last step has asked for a block that is not in the cache.
    #[cold]
    pub(crate) fn to_pending(&self, policy: ReadPolicy) -> PendingLookup {
        self.note_negative_lookups(self.next);
        let is_counted = self.is_counted;
        let mut candidates = SmallVec::new();
        for candidate in &self.candidates[self.next as usize..] {
            let may_contain = candidate.file.may_contain(self.hash);
            if may_contain || is_counted {
                candidates.push(Candidate {
                    file: Arc::clone(&candidate.file.file),
                    sst: Arc::clone(candidate.file.sst()),
                    shared: candidate.run.kind == RunKind::Section,
                    has_filter: candidate.file.has_filter(),
                    stage: candidate.run.stage,
                    was_read: false,
                    progress: if may_contain { Progress::Untried } else { Progress::Excluded },
                });
            }
        }
        let (key, hash) = (self.key.clone(), self.hash);
        PendingLookup {
            key,
            hash,
            policy,
            candidates,
            first_block: self.block,
            newest: 0,
            untried: 0,
            in_flight: 0,
            is_decided: false,
            is_counted,
        }
    }
}

impl PendingLookup {
    /// The next block that the policy wants now and that is not in the cache. Those in the cache are searched.
    pub(crate) fn want(&mut self) -> Option<Wanted> {
        loop {
            let number = self.startable()?;
            self.untried = number + 1;
            self.in_flight += 1;
            let candidate = &mut self.candidates[number];
            candidate.progress = Progress::InFlight;
            let (block, cached) = self.block_of(number);
            let Some(found) = cached else {
                self.candidates[number].was_read = true;
                return Some(Wanted { candidate: number, block });
            };
            self.supply(number, Ok(found));
        }
    }

    /// The block of a candidate that may hold the key; also itself if it is in the cache.
    fn block_of(&self, candidate: usize) -> (u32, Option<BlockRef>) {
        if candidate == 0 {
            return (self.first_block, None);
        }
        let candidate = &self.candidates[candidate];
        let sst = &candidate.sst;
        let block = sst.block_for(self.stored_key(candidate));
        (block, sst.cached_block(block))
    }

    /// The next candidate, if the policy wants it now.
    fn startable(&self) -> Option<usize> {
        let untried = self.candidates.get(self.untried..)?;
        let next = self.untried + untried.iter().position(|candidate| !candidate.is_excluded())?;
        let started = &self.candidates[self.newest.min(next)..next];
        let is_wanted = match self.policy {
            ReadPolicy::Serial => self.in_flight == 0,
            ReadPolicy::FixedCount(count) => self.in_flight < count.max(1) as usize,
            ReadPolicy::PriorityAware => {
                started.iter().all(|newer| newer.has_missed() || newer.stage == self.candidates[next].stage)
            }
            ReadPolicy::Auto => {
                self.in_flight < AUTO_COUNT
                    && started.iter().all(|newer| newer.has_missed() || !newer.has_filter)
            }
        };
        (is_wanted && !self.is_decided).then_some(next)
    }

    /// The partition key.
    pub(crate) fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// The hash of the key.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The SST that the block is in.
    pub(crate) fn sst(&self, wanted: Wanted) -> &Arc<Sst> {
        &self.candidates[wanted.candidate].sst
    }

    /// Candidates without filters in memory that have not been started.
    pub(crate) fn unfiltered(&self) -> usize {
        self.candidates[self.untried..].iter().filter(|c| !c.has_filter && !c.is_excluded()).count()
    }

    pub(crate) fn policy(&self) -> ReadPolicy {
        self.policy
    }

    pub(crate) fn set_policy(&mut self, policy: ReadPolicy) {
        self.policy = policy;
    }

    fn stored_key(&self, candidate: &Candidate) -> &[u8] {
        if candidate.shared { &self.key } else { &self.key[PARTITION_PREFIX_LEN..] }
    }

    /// Searches a block that the lookup wanted, or takes the error of its read.
    pub(crate) fn supply(&mut self, candidate: usize, block: Result<BlockRef>) {
        let searched = &self.candidates[candidate];
        let found =
            block.map(|block| search_block(&searched.sst, block, self.stored_key(searched), self.hash));
        let progress = match found {
            Ok(Supplied::NotFound) => Progress::Missed,
            Ok(Supplied::Found(answer)) => Progress::Ended(Ok(answer)),
            Err(error) => Progress::Ended(Err(error)),
        };
        self.in_flight -= 1;
        self.is_decided |= matches!(progress, Progress::Ended(_));
        self.candidates[candidate].progress = progress;
    }

    /// The answer, once it is known. It is given once.
    pub(crate) fn answer(&mut self, ctx: &Context) -> Option<Result<Option<Value>>> {
        while self.candidates.get(self.newest).is_some_and(Candidate::has_missed) {
            self.newest += 1;
        }
        let answer = match self.candidates.get_mut(self.newest) {
            None => Ok(None),
            Some(candidate) => match mem::replace(&mut candidate.progress, Progress::Missed) {
                Progress::Ended(answer) => answer,
                not_yet => {
                    candidate.progress = not_yet;
                    return None;
                }
            },
        };
        let (newer, older) = self.candidates.split_at(self.newest);
        for candidate in newer {
            if self.is_counted {
                candidate.file.note_negative_lookup();
            }
            if let Progress::Missed = candidate.progress {
                ctx.note_wasted_probe();
            }
        }
        // Those still in flight are counted when they end.
        let is_unused = |candidate: &Candidate| candidate.was_read && !candidate.is_in_flight();
        older.iter().skip(1).filter(|older| is_unused(older)).for_each(|_| ctx.loads.note_wasted_read());
        Some(answer)
    }
}

impl Candidate {
    fn is_excluded(&self) -> bool {
        matches!(self.progress, Progress::Excluded)
    }

    fn has_missed(&self) -> bool {
        matches!(self.progress, Progress::Missed | Progress::Excluded)
    }

    fn is_in_flight(&self) -> bool {
        matches!(self.progress, Progress::InFlight)
    }
}
