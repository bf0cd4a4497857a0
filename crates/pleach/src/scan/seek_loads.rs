//! Loads of a seek: the blocks that the sources of a merge seek in, read for a task.
//!
//! As in [`seek_reads`](super::seek_reads), all blocks that the sources want are in flight together. They are read by the
//! table of loads, so tasks that want one block share its read.

use std::task::{Poll, Waker};

use pleach_env::Result;
use pleach_table::Warmth;
use smallvec::SmallVec;

use super::seek_reads::{Indices, take_turns};
use super::source::SourceCursor;
use crate::context::Context;
use crate::loads::LoadFuture;

/// See the module's text.
pub(super) struct SeekLoads {
    seeking: Indices,
    waiting: Indices,
    /// By sources.
    loads: SmallVec<[(usize, LoadFuture); 4]>,
}

impl SeekLoads {
    /// Of this many sources, which have begun their seeks. The source `first` wants a block.
    pub(super) fn new(sources: usize, first: usize) -> Self {
        let seeking = (0..sources).filter(|source| *source != first).collect();
        Self { seeking, waiting: Indices::from_slice(&[first]), loads: SmallVec::new() }
    }

    /// Takes the seeks of all sources to their ends.
    pub(super) fn poll(
        &mut self,
        ctx: &Context,
        sources: &mut [SourceCursor],
        waker: &Waker,
    ) -> Poll<Result<()>> {
        loop {
            self.load(ctx, sources)?;
            if self.loads.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let ready = self.loads.iter_mut().enumerate().find_map(|(place, (_, load))| {
                if let Poll::Ready(block) = load.poll_block(waker) { Some((place, block)) } else { None }
            });
            let Some((place, block)) = ready else { return Poll::Pending };
            let (source, _ended) = self.loads.swap_remove(place);
            sources[source].sst_mut().take_block(block)?;
            self.seeking.push(source);
        }
    }

    /// Continues the seeks as far as they come, and begins the reads that they then wait for.
    fn load(&mut self, ctx: &Context, sources: &mut [SourceCursor]) -> Result<()> {
        while !self.seeking.is_empty() {
            take_turns(sources, &mut self.seeking, &mut self.waiting)?;
        }
        while let Some(source) = self.waiting.pop() {
            let sst = sources[source].sst_mut();
            sst.read_ahead();
            let load = ctx.loads.load(ctx.read_driver(), sst.sst(), sst.wanted(), Warmth::Warm)?;
            self.loads.push((source, load));
        }
        Ok(())
    }
}
