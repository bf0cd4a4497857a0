//! Point lookups of many keys, whose blocks are read together.
//!
//! Lookups go on until each has its answer or wants a block that is not in the cache. Up to [`READS_MAX`] such blocks are
//! being read at a time; a lookup goes on when its block is there, and meanwhile the next keys are looked up. Two lookups
//! that want one block share its read.
//!
//! # Cost
//! Lookups of what is cached wait for memory together, in groups. A lone block is read by `pread`, as a single lookup reads
//! it.
//!
//! # Origin
//! `TridentKV`, section 3.4: many reads in flight on one thread; here within one call.

use std::collections::HashMap;
use std::sync::Arc;

use pleach_env::{Error, FileId, ReadQueue, Result};
use pleach_log::SeqNo;
use pleach_table::{BlockLoad, BlockRef, Sst};
use smallvec::SmallVec;

use super::{Lookup, Step, Supplied, prefetch_memtables};
use crate::context::Context;
use crate::keys::PartitionId;
use crate::operations::check_key;
use crate::state::State;
use crate::value::Value;
use crate::version::SubTree;

/// Blocks in flight at most. A device gains little from more (measured: 256 are slower than 128).
const READS_MAX: u32 = 128;

/// Lookups that take their steps together: enough to hide the latency of memory, and few enough to stay in the first level
/// of the processor's cache.
const GROUP_LEN: usize = 16;

type Group<T> = SmallVec<[T; GROUP_LEN]>;

/// The place of a key among the answers, and its lookup.
type Open<'s> = (usize, Lookup<'s>);

/// A block that is being read, and the lookups that want it.
struct Wanted<'s> {
    sst: &'s Arc<Sst>,
    block: u32,
    lookups: SmallVec<[Open<'s>; 1]>,
}

/// Looks all keys up in one view; the answers in the order of the keys.
///
/// Requires: as [`get_blocking`](super::get_blocking).
pub(crate) fn get_many<K: AsRef<[u8]>>(
    ctx: &Context,
    state: &State,
    (partition, tree): (PartitionId, &SubTree),
    keys: impl IntoIterator<Item = K>,
    visible: SeqNo,
) -> Result<Vec<Option<Value>>> {
    let mut keys = keys.into_iter();
    let mut answers = Vec::with_capacity(keys.size_hint().0);
    let mut reads = Reads::new(ctx);
    loop {
        let group: SmallVec<[K; GROUP_LEN]> = keys.by_ref().take(GROUP_LEN).collect();
        if group.is_empty() {
            reads.finish(&mut answers)?;
            return Ok(answers);
        }
        for key in &group {
            check_key(key.as_ref())?;
        }
        prefetch_memtables(state, partition, group.iter().map(AsRef::as_ref));
        let mut lookups = SmallVec::new();
        for key in group {
            let mut lookup = Lookup::new(partition, key.as_ref(), visible);
            if let Err(answer) = lookup.start(state, tree, visible) {
                answers.push(answer);
                continue;
            }
            lookups.push((answers.len(), lookup));
            answers.push(None);
        }
        for lookup in first_blocks(ctx, lookups, &mut answers) {
            reads.advance(lookup, &mut answers)?;
        }
    }
}

/// Begins the lookups of a group: each step is made for all of them before the next step, so that the memory they touch
/// arrives together. Those that are not answered by the first block that they want, or do not find it in the cache, are
/// returned.
fn first_blocks<'s>(
    ctx: &Context,
    mut lookups: Group<Open<'s>>,
    answers: &mut [Option<Value>],
) -> Group<Open<'s>> {
    let steps: Group<_> = lookups.iter_mut().map(|(_, lookup)| lookup.step()).collect();
    for step in &steps {
        if let Step::NeedBlock(sst, block) = step {
            sst.prefetch_cached(*block);
        }
    }
    let mut blocks: Group<_> = SmallVec::new();
    for (step, (_, lookup)) in steps.iter().zip(&lookups) {
        blocks.push(match step {
            Step::Done(_) => None,
            Step::NeedBlock(sst, block) => {
                sst.cached_block(*block).inspect(|block| lookup.prefetch_in(block))
            }
        });
    }
    let mut open = SmallVec::new();
    for ((step, block), (place, mut lookup)) in steps.into_iter().zip(blocks).zip(lookups) {
        match (step, block) {
            (Step::Done(answer), _) => answers[place] = answer,
            (_, None) => open.push((place, lookup)),
            (_, Some(block)) => match lookup.supply(block) {
                Supplied::Found(answer) => answers[place] = answer,
                Supplied::NotFound => {
                    ctx.note_wasted_probe();
                    open.push((place, lookup));
                }
            },
        }
    }
    open
}

/// The blocks that lookups wait for.
struct Reads<'c, 's> {
    ctx: &'c Context,
    wanted: HashMap<(FileId, u32), u64>,
    /// By the tags of their reads.
    blocks: Vec<Option<Wanted<'s>>>,
    free: Vec<u64>,
    /// Made when a second block is wanted; the first one waits for that.
    queue: Option<ReadQueue<'c, BlockLoad>>,
}

impl<'c, 's> Reads<'c, 's> {
    fn new(ctx: &'c Context) -> Self {
        Self { ctx, wanted: HashMap::new(), blocks: Vec::new(), free: Vec::new(), queue: None }
    }

    /// Takes a lookup as far as it comes without waiting.
    fn advance(&mut self, open: Open<'s>, answers: &mut [Option<Value>]) -> Result<()> {
        let mut ready: SmallVec<[Open<'s>; 1]> = SmallVec::from_buf([open]);
        while let Some((place, mut lookup)) = ready.pop() {
            match lookup.cached_steps(self.ctx) {
                Ok(answer) => answers[place] = answer,
                Err((sst, block)) => {
                    self.want(sst, block, (place, lookup))?;
                    while self.is_full() {
                        self.wait(answers, &mut ready)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.wanted.len() >= READS_MAX as usize
    }

    /// Has the block read, unless it is being read already.
    fn want(&mut self, sst: &'s Arc<Sst>, block: u32, open: Open<'s>) -> Result<()> {
        if let Some(&tag) = self.wanted.get(&(sst.file_id(), block)) {
            self.wanted_mut(tag).lookups.push(open);
            return Ok(());
        }
        let tag = self.free.pop().unwrap_or(self.blocks.len() as u64);
        self.wanted.insert((sst.file_id(), block), tag);
        let wanted = Some(Wanted { sst, block, lookups: SmallVec::from_buf([open]) });
        match self.blocks.get_mut(usize::try_from(tag).expect("a place in memory")) {
            Some(place) => *place = wanted,
            None => self.blocks.push(wanted),
        }
        if self.queue.is_none() {
            if self.wanted.len() < 2 {
                return Ok(());
            }
            self.queue = Some(self.ctx.read_queue(READS_MAX)?);
            self.push(0)?;
        }
        self.push(tag)
    }

    fn push(&mut self, tag: u64) -> Result<()> {
        let Wanted { sst, block, .. } = self.wanted_mut(tag);
        let (sst, block) = (*sst, *block);
        let queue = self.queue.as_mut().expect("made before the first push");
        queue
            .push(sst.begin_load(block, tag))
            .map_err(|e| self.ctx.status.read_failed(Error::io("read the SST", sst.path(), e)))
    }

    fn wanted_mut(&mut self, tag: u64) -> &mut Wanted<'s> {
        let place = usize::try_from(tag).expect("a place in memory");
        self.blocks[place].as_mut().expect("the block is wanted")
    }

    /// Waits for one block. Its lookups get their answers, or are put on `ready`.
    ///
    /// Requires: a block is wanted.
    fn wait(&mut self, answers: &mut [Option<Value>], ready: &mut SmallVec<[Open<'s>; 1]>) -> Result<()> {
        let (tag, loaded) = match &mut self.queue {
            None => {
                let Wanted { sst, block, .. } = self.wanted_mut(0);
                (0, sst.read_block(*block))
            }
            Some(queue) => {
                let read = queue.next().expect("a block is wanted");
                let Wanted { sst, block, .. } = self.wanted_mut(read.tag);
                (read.tag, sst.finish_load(*block, read.result.map(|()| read.buffer)))
            }
        };
        let wanted = self.blocks[usize::try_from(tag).expect("a place in memory")].take();
        let Wanted { sst, block, lookups } = wanted.expect("its read was in flight");
        self.wanted.remove(&(sst.file_id(), block));
        self.free.push(tag);
        let loaded: BlockRef = loaded.map_err(|error| self.ctx.status.read_failed(error))?;
        for (place, mut lookup) in lookups {
            match lookup.supply(loaded.clone()) {
                Supplied::Found(answer) => answers[place] = answer,
                Supplied::NotFound => {
                    self.ctx.note_wasted_probe();
                    ready.push((place, lookup));
                }
            }
        }
        Ok(())
    }

    /// Waits for all blocks that are wanted.
    fn finish(&mut self, answers: &mut [Option<Value>]) -> Result<()> {
        let mut ready = SmallVec::new();
        while !self.wanted.is_empty() {
            self.wait(answers, &mut ready)?;
            while let Some(open) = ready.pop() {
                self.advance(open, answers)?;
            }
        }
        Ok(())
    }
}
