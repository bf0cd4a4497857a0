//! Search: a pending lookup and the loads that it waits for, and then the separated value that it may find. Futures poll it,
//! and so do threads that read more than one block at a time.

use std::task::{Poll, Waker, ready};

use pleach_env::{Error, ErrorKind, ReadDriver, Result};
use pleach_table::Warmth;
use smallvec::SmallVec;

use super::pending::{PendingLookup, Wanted};
use crate::context::Context;
use crate::keys::PartitionKey;
use crate::loads::{LoadFuture, Paced, block_on};
use crate::read_options::{ReadOptions, ReadPolicy};
use crate::value::Value;
use crate::value_reads::{ValueLoad, cached_value, get_value};
use crate::values::ValueSegments;

/// See the module's text.
pub(crate) enum Search {
    /// Searches blocks of SSTs. A pointer that it finds leads into these segments.
    Blocks(BlockSearch, ValueSegments),
    /// Reads the value that was found.
    Value(ValueLoad),
}

impl Search {
    pub(crate) fn new(
        ctx: &Context,
        lookup: PendingLookup,
        segments: &ValueSegments,
        options: &ReadOptions,
    ) -> Self {
        Self::Blocks(BlockSearch::new(ctx, lookup, options), segments.clone())
    }

    /// A search that has found a pointer to the value of `key`.
    pub(super) fn of_value(
        ctx: &Context,
        segments: &ValueSegments,
        key: PartitionKey,
        value: &Value,
        fills_cache: bool,
    ) -> Result<Self> {
        ValueLoad::begin(ctx, segments, key, value, fills_cache).map(Self::Value)
    }

    /// Goes on until the answer is known or all reads that the lookup wants are in flight.
    pub(crate) fn poll(&mut self, ctx: &Context, waker: &Waker) -> Poll<Result<Option<Value>>> {
        if let Self::Blocks(search, segments) = self {
            match ready!(search.poll(ctx, waker)) {
                Ok(Some(value)) if value.is_pointer() => {
                    let fills_cache = search.fills_cache();
                    if let Some(found) = cached_value(ctx, search.lookup.hash(), &value, fills_cache) {
                        return Poll::Ready(Ok(Some(found)));
                    }
                    *self = Self::of_value(ctx, segments, search.lookup.key().clone(), &value, fills_cache)?;
                }
                answer => return Poll::Ready(answer),
            }
        }
        let Self::Value(load) = self else { unreachable!("set above") };
        load.poll(ctx, waker).map_ok(Some)
    }

    /// Runs the search to its end. A block that is the only one wanted is read by the calling thread, and so is the value.
    pub(super) fn run(mut self, ctx: &Context, options: &ReadOptions) -> Result<Option<Value>> {
        if options.timeout.is_none()
            && let Self::Blocks(search, segments) = self
        {
            let key = search.lookup.key().clone();
            return match search.run(ctx)? {
                Some(value) if value.is_pointer() => {
                    get_value(ctx, &segments, super::split(&key), &value, options.fill_cache).map(Some)
                }
                answer => Ok(answer),
            };
        }
        let deadline = options.timeout.map(|timeout| ctx.env.now().saturating_add(timeout));
        block_on(&*ctx.env, deadline, |waker| self.poll(ctx, waker)).unwrap_or_else(|| Err(timed_out()))
    }
}

/// The search in blocks.
pub(crate) struct BlockSearch {
    lookup: PendingLookup,
    /// By candidates, newest first.
    loads: SmallVec<[(usize, LoadFuture); 1]>,
    warmth: Warmth,
    /// Present if the time of this lookup is measured for [`LookupPace`](crate::loads::LookupPace).
    paced: Option<Paced>,
}

impl BlockSearch {
    fn new(ctx: &Context, mut lookup: PendingLookup, options: &ReadOptions) -> Self {
        let mut paced = None;
        if lookup.policy() == ReadPolicy::Auto {
            // Tasks that read by themselves do it one after the other in any case.
            if ctx.read_driver() != ReadDriver::Blocking {
                paced = ctx.loads.pace.begin(lookup.unfiltered(), || ctx.env.now());
            }
            if !paced.as_ref().is_some_and(|paced| paced.is_parallel) {
                lookup.set_policy(ReadPolicy::Serial);
            }
        }
        Self { lookup, loads: SmallVec::new(), warmth: warmth(options), paced }
    }

    /// Whether what it reads enters the caches.
    fn fills_cache(&self) -> bool {
        self.warmth != Warmth::Uncached
    }

    fn load(&mut self, ctx: &Context, wanted: Wanted) {
        match ctx.loads.load(ctx.read_driver(), self.lookup.sst(wanted), wanted.block, self.warmth) {
            Ok(load) => self.loads.push((wanted.candidate, load)),
            Err(error) => self.lookup.supply(wanted.candidate, Err(error)),
        }
    }

    /// The answer, once it is known. It is given once.
    fn answer(&mut self, ctx: &Context) -> Option<Result<Option<Value>>> {
        let answer = self.lookup.answer(ctx)?;
        if let Some(paced) = self.paced.take() {
            ctx.loads.pace.end(&paced, || ctx.env.now());
        }
        Some(answer.map_err(|error| ctx.status.read_failed(error)))
    }

    /// As [`Search::poll`].
    fn poll(&mut self, ctx: &Context, waker: &Waker) -> Poll<Result<Option<Value>>> {
        loop {
            while let Some(wanted) = self.lookup.want() {
                self.load(ctx, wanted);
            }
            if let Some(answer) = self.answer(ctx) {
                return Poll::Ready(answer);
            }
            // Only the newest candidate decides, so nothing else wakes the task.
            let (_, newest) = self.loads.first_mut().expect("without an answer, it waits for a block");
            let Poll::Ready(block) = newest.poll_block(waker) else { return Poll::Pending };
            let (candidate, _ended) = self.loads.remove(0);
            self.lookup.supply(candidate, block);
        }
    }

    /// As [`Search::run`], for as long as it takes.
    fn run(mut self, ctx: &Context) -> Result<Option<Value>> {
        loop {
            let wanted = self.lookup.want();
            if let Some(answer) = self.answer(ctx) {
                return answer;
            }
            let wanted = wanted.expect("without an answer, and with nothing in flight, it wants a block");
            if let Some(second) = self.lookup.want() {
                self.load(ctx, wanted);
                self.load(ctx, second);
                break;
            }
            let block = ctx.loads.read(self.lookup.sst(wanted), wanted.block, self.warmth);
            self.lookup.supply(wanted.candidate, block);
        }
        block_on(&*ctx.env, None, |waker| self.poll(ctx, waker)).expect("it waits as long as it takes")
    }
}

/// How the blocks of a read are admitted to the cache.
pub(super) fn warmth(options: &ReadOptions) -> Warmth {
    if options.fill_cache { Warmth::Warm } else { Warmth::Uncached }
}

#[cold]
pub(crate) fn timed_out() -> Error {
    let message =
        "the device did not answer within the read's timeout; read again, or raise `ReadOptions::timeout`";
    Error::new(ErrorKind::TimedOut, message)
}
