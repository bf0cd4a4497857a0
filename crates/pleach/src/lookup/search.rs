//! Search: a pending lookup and the loads that it waits for. What futures poll, and threads that read more than one block at a
//! time.

use std::task::{Poll, Waker};

use pleach_env::{Error, ErrorKind, Result};
use pleach_table::Warmth;
use smallvec::SmallVec;

use super::pending::{PendingLookup, Wanted};
use crate::context::Context;
use crate::loads::{LoadFuture, block_on};
use crate::read_options::{ReadOptions, ReadPolicy};
use crate::value::Value;

/// See the module's text.
pub(crate) struct Search {
    lookup: PendingLookup,
    /// By candidates.
    loads: SmallVec<[(usize, LoadFuture); 1]>,
    warmth: Warmth,
}

impl Search {
    pub(crate) fn new(ctx: &Context, mut lookup: PendingLookup, options: &ReadOptions) -> Self {
        if lookup.policy() == ReadPolicy::Auto
            && !ctx.loads.is_parallel_better(ctx.read_driver(), lookup.unfiltered())
        {
            lookup.set_policy(ReadPolicy::Serial);
        }
        Self { lookup, loads: SmallVec::new(), warmth: warmth(options) }
    }

    fn load(&mut self, ctx: &Context, wanted: Wanted) {
        match ctx.loads.load(ctx.read_driver(), self.lookup.sst(wanted), wanted.block, self.warmth) {
            Ok(load) => self.loads.push((wanted.candidate, load)),
            Err(error) => self.lookup.supply(wanted.candidate, Err(error)),
        }
    }

    /// Goes on until the answer is known or all reads that the lookup wants are in flight.
    pub(crate) fn poll(&mut self, ctx: &Context, waker: &Waker) -> Poll<Result<Option<Value>>> {
        loop {
            while let Some(wanted) = self.lookup.want() {
                self.load(ctx, wanted);
            }
            if let Some(answer) = self.lookup.answer(ctx) {
                return Poll::Ready(answer.map_err(|error| ctx.status.read_failed(error)));
            }
            let ready = self.loads.iter_mut().enumerate().find_map(|(place, (_, load))| {
                if let Poll::Ready(block) = load.poll_block(waker) { Some((place, block)) } else { None }
            });
            let Some((place, block)) = ready else { return Poll::Pending };
            let (candidate, _ended) = self.loads.swap_remove(place);
            self.lookup.supply(candidate, block);
        }
    }

    /// Runs the search to its end. A block that is the only one wanted is read by the calling thread.
    pub(super) fn run(mut self, ctx: &Context, options: &ReadOptions) -> Result<Option<Value>> {
        while options.timeout.is_none() {
            let wanted = self.lookup.want();
            if let Some(answer) = self.lookup.answer(ctx) {
                return answer.map_err(|error| ctx.status.read_failed(error));
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
        let deadline = options.timeout.map(|timeout| ctx.env.now().saturating_add(timeout));
        block_on(&*ctx.env, deadline, |waker| self.poll(ctx, waker)).unwrap_or_else(|| Err(timed_out()))
    }
}

/// How the blocks of a read are admitted to the cache.
pub(super) fn warmth(options: &ReadOptions) -> Warmth {
    if options.fill_cache { Warmth::Warm } else { Warmth::Uncached }
}

#[cold]
pub(crate) fn timed_out() -> Error {
    Error::new(ErrorKind::TimedOut, "the device did not answer in the time that the read was given")
}
