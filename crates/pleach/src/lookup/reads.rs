//! Reads of many lookups: the blocks that the lookups of one call want, read by the calling thread.
//!
//! Blocks that are wanted gather until there are enough of them ([`EARLY`]) or nothing else can be done. Then they are claimed,
//! and read in the order of files and places; neighbours share a read. Two lookups that want one block share it, and so do
//! other calls ([`crate::loads`]). A lookup goes on when its block is there. It searches its candidates serially, so each
//! block that is read is needed: the thread could not leave a read of its own queue behind.
//!
//! # Cost
//! A lone block is read by `pread`, as a single lookup reads it. Each further read costs a place in the driver's queue.
//!
//! # Origin
//! `TridentKV`, section 3.4: many reads in flight on one thread; here within one call.

use std::io;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use pleach_env::{Error, FileId, ReadQueue, Result, is_out_of_files};
use pleach_table::{BlockLoad, BlockRef, Sst, Warmth};
use smallvec::{SmallVec, smallvec};

use super::Lookup;
use super::pending::PendingLookup;
use super::search::warmth;
use crate::context::Context;
use crate::loads::{Begun, BlockMap, Claim, LoadFuture, block_on};
use crate::read_options::{ReadOptions, ReadPolicy};
use crate::value::Value;

/// Reads in flight at most, and blocks that wait for their reads. A device gains little or nothing from more (measured by
/// `pleach-bench device --depths 128,256`).
const READS_MAX: u32 = 128;

/// New reads are begun when fewer are in flight: so those that wait can be sorted.
const READS_LOW: u32 = READS_MAX / 4 * 3;

/// Reads begin before the last lookup has if so many blocks are wanted, and at least a quarter as many as are being read. A
/// block next to the one before it does not count, because they will share a read. (Arbitrary: with fewer, a smaller part of
/// the blocks would be read in order.)
const EARLY: usize = 4;

/// Bytes between two blocks that share a read, at most. A device reads 4 KiB more in less time than it takes for another
/// read (arbitrary within that).
const GAP_MAX: u64 = 4 << 10;

/// Bytes of blocks that share a read, at most: they are copied into the cache, and the first has to wait for the last
/// (arbitrary).
const SPAN_MAX: u64 = 64 << 10;

/// The lookup of a key that is not in the cache.
struct Open {
    /// The place of its answer.
    place: usize,
    lookup: PendingLookup,
}

/// A block that lookups wait for.
struct Block<'c> {
    sst: Arc<Sst>,
    number: u32,
    /// Lookups and their candidates.
    lookups: SmallVec<[(usize, usize); 1]>,
    /// While this thread reads the block.
    claim: Option<Claim<'c>>,
}

impl Block<'_> {
    fn key(&self) -> (FileId, u32) {
        (self.sst.file_id(), self.number)
    }

    fn is_next_to(&self, other: &Self) -> bool {
        self.sst.file_id() == other.sst.file_id() && self.number.abs_diff(other.number) == 1
    }

    fn bytes(&self) -> Range<u64> {
        let (offset, len) = self.sst.block_extent(self.number);
        offset..offset + u64::from(len)
    }
}

/// Numbers of neighbours that share a read, in the order of their places.
type Span = SmallVec<[usize; 1]>;

/// See the module's text.
pub(super) struct Reads<'c> {
    ctx: &'c Context,
    warmth: Warmth,
    pub(super) answers: Vec<Option<Value>>,
    /// The first error. After it no further block is wanted.
    failed: Option<Error>,
    open: Vec<Open>,
    /// Numbers of lookups that have their answers: those of new ones.
    free_open: Vec<usize>,
    blocks: Vec<Option<Block<'c>>>,
    free_blocks: Vec<usize>,
    /// The numbers of the blocks that are wanted.
    wanted: BlockMap<usize>,
    /// Not yet begun.
    waiting: Vec<usize>,
    /// How many of them were not next to the one before.
    scattered: usize,
    /// By the tags of the reads.
    in_flight: Vec<Span>,
    free_tags: Vec<usize>,
    /// Blocks that others read.
    elsewhere: Vec<(usize, LoadFuture)>,
    /// Made when two reads are begun.
    queue: Option<ReadQueue<'c, BlockLoad>>,
}

impl<'c> Reads<'c> {
    pub(super) fn new(ctx: &'c Context, options: &ReadOptions, keys: usize) -> Self {
        Self {
            ctx,
            warmth: warmth(options),
            answers: Vec::with_capacity(keys),
            failed: None,
            open: Vec::with_capacity(keys.min(READS_MAX as usize)),
            free_open: Vec::new(),
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            wanted: BlockMap::default(),
            waiting: Vec::new(),
            scattered: 0,
            in_flight: Vec::new(),
            free_tags: Vec::new(),
            elsewhere: Vec::new(),
            queue: None,
        }
    }

    /// Takes a lookup whose next block is not in the cache. Begins reads, so that the device reads while other lookups are
    /// begun. Waits only if very many blocks are wanted.
    pub(super) fn add(&mut self, place: usize, lookup: &Lookup<'_>) {
        let open = Open { place, lookup: lookup.to_pending(ReadPolicy::Serial) };
        let number = self.free_open.pop().unwrap_or(self.open.len());
        match self.open.get_mut(number) {
            Some(free) => *free = open,
            None => self.open.push(open),
        }
        let waiting = self.waiting.len();
        self.advance(number);
        let is_next = |pair: &[usize]| self.block(pair[0]).is_next_to(self.block(pair[1]));
        let is_scattered =
            self.waiting.len() > waiting && !self.waiting.windows(2).next_back().is_some_and(is_next);
        self.scattered += usize::from(is_scattered);
        let in_flight = self.reads();
        if self.scattered >= EARLY.max(in_flight / 4)
            && in_flight <= READS_LOW as usize
            && self.failed.is_none()
        {
            self.begin_waiting();
        }
        while self.waiting.len() >= READS_MAX as usize {
            self.wait();
        }
    }

    /// Waits for all blocks that are wanted.
    pub(super) fn finish(mut self) -> Result<Vec<Option<Value>>> {
        while !self.wanted.is_empty() {
            self.wait();
        }
        self.failed.map_or(Ok(self.answers), |error| Err(self.ctx.status.read_failed(error)))
    }

    /// Takes a lookup as far as it comes without waiting.
    fn advance(&mut self, number: usize) {
        if self.failed.is_some() {
            return;
        }
        let open = &mut self.open[number];
        while let Some(wanted) = open.lookup.want() {
            let sst = open.lookup.sst(wanted);
            let block = *self.wanted.entry((sst.file_id(), wanted.block)).or_insert_with(|| {
                let block = self.free_blocks.pop().unwrap_or(self.blocks.len());
                if block == self.blocks.len() {
                    self.blocks.push(None);
                }
                let (sst, number) = (Arc::clone(sst), wanted.block);
                self.blocks[block] = Some(Block { sst, number, lookups: SmallVec::new(), claim: None });
                self.waiting.push(block);
                block
            });
            let block = self.blocks[block].as_mut().expect("it is wanted");
            block.lookups.push((number, wanted.candidate));
        }
        match open.lookup.answer(self.ctx) {
            None => {}
            Some(Ok(answer)) => {
                self.answers[open.place] = answer;
                self.free_open.push(number);
            }
            Some(Err(error)) => self.failed = Some(error),
        }
    }

    /// Reads in flight.
    fn reads(&self) -> usize {
        self.in_flight.len() - self.free_tags.len()
    }

    fn block(&self, number: usize) -> &Block<'c> {
        self.blocks[number].as_ref().expect("it is wanted")
    }

    /// Gives a block, or the error of its read, to the lookups that wait for it.
    fn supply(&mut self, number: usize, loaded: &Result<BlockRef>) {
        let block = self.blocks[number].take().expect("it is wanted");
        self.free_blocks.push(number);
        self.wanted.remove(&block.key());
        if let Some(claim) = block.claim {
            claim.end(loaded);
        }
        for (number, candidate) in block.lookups {
            self.open[number].lookup.supply(candidate, loaded.clone());
            self.advance(number);
        }
    }

    /// Waits for a block, after beginning reads if few are in flight.
    ///
    /// Requires: a block is wanted.
    fn wait(&mut self) {
        if self.failed.is_some() && !self.waiting.is_empty() {
            for number in mem::take(&mut self.waiting) {
                let block = self.blocks[number].take().expect("it is wanted");
                self.wanted.remove(&block.key());
            }
            return;
        }
        if self.reads() <= READS_LOW as usize && !self.waiting.is_empty() {
            return self.begin_waiting();
        }
        if let Some(read) = self.queue.as_mut().and_then(ReadQueue::next) {
            let tag = usize::try_from(read.tag).expect("a place in memory");
            return self.end(tag, read.result);
        }
        // This thread holds no claim now.
        let (block, mut load) = self.elsewhere.pop().expect("a block is wanted");
        let loaded = block_on(&*self.ctx.env, None, |waker| load.poll_block(waker));
        self.supply(block, &loaded.expect("it waits as long as it takes"));
    }

    /// Claims blocks that are waiting, and reads those that nobody else reads.
    fn begin_waiting(&mut self) {
        let in_flight = self.reads();
        self.scattered = 0;
        let mut waiting = mem::take(&mut self.waiting);
        waiting.sort_unstable_by_key(|&number| self.block(number).key());
        let later = waiting.split_off(waiting.len().min(READS_MAX as usize - in_flight));
        let mut spans: Vec<Span> = Vec::new();
        let mut found = Vec::new();
        for number in waiting {
            let Block { sst, number: in_sst, .. } = self.block(number);
            match self.ctx.loads.begin(sst, *in_sst) {
                Begun::Cached(block) => found.push((number, block)),
                Begun::InFlight(load) => self.elsewhere.push((number, load)),
                Begun::Claimed(claim) => {
                    self.blocks[number].as_mut().expect("it is wanted").claim = Some(claim);
                    match spans.pop() {
                        Some(mut span) if self.are_neighbours(&span, number) => {
                            span.push(number);
                            spans.push(span);
                        }
                        span => spans.extend(span.into_iter().chain([smallvec![number]])),
                    }
                }
            }
        }
        let is_lone = in_flight == 0 && spans.len() == 1 && later.is_empty();
        for span in spans {
            self.begin(span, is_lone);
        }
        // Only now, because the answers may make other blocks wanted.
        self.waiting.extend(later);
        for (number, block) in found {
            self.supply(number, &Ok(block));
        }
    }

    /// Whether a block should be read together with those before it.
    fn are_neighbours(&self, span: &Span, block: usize) -> bool {
        let (first, last, block) = (self.block(span[0]), self.block(span[span.len() - 1]), self.block(block));
        let next = block.bytes();
        first.sst.file_id() == block.sst.file_id()
            && next.start - last.bytes().end <= GAP_MAX
            && next.end - first.bytes().start <= SPAN_MAX
    }

    /// Begins a read. A lone one of one block is made immediately.
    fn begin(&mut self, span: Span, is_lone: bool) {
        self.ctx.loads.note_read();
        if let (true, &[number]) = (is_lone, &span[..]) {
            let Block { sst, number: in_sst, .. } = self.block(number);
            let loaded = sst.load_block(*in_sst, self.warmth);
            return self.supply(number, &loaded);
        }
        if self.queue.is_none() {
            match self.ctx.read_queue(READS_MAX) {
                Ok(queue) => self.queue = Some(queue),
                Err(error) => {
                    return span.into_iter().for_each(|number| self.supply(number, &Err(error.clone())));
                }
            }
        }
        let tag = self.free_tags.pop().unwrap_or(self.in_flight.len());
        if tag == self.in_flight.len() {
            self.in_flight.push(Span::new());
        }
        self.in_flight[tag] = span;
        while let Err(error) = self.push(tag) {
            // A read in flight owns its descriptor until it has ended.
            let ended = self.queue.as_mut().filter(|_| is_out_of_files(&error)).and_then(ReadQueue::next);
            let Some(ended) = ended else { return self.end(tag, Err(error)) };
            self.end(usize::try_from(ended.tag).expect("a place in memory"), ended.result);
        }
    }

    /// Hands the read of the blocks at `tag` to the queue.
    fn push(&mut self, tag: usize) -> io::Result<()> {
        let span = &self.in_flight[tag];
        let [first, last] = [span[0], span[span.len() - 1]].map(|number| self.blocks[number].as_ref());
        let (first, last) = (first.expect("it is wanted"), last.expect("it is wanted"));
        let request = if span.len() == 1 {
            first.sst.begin_load(first.number, self.warmth, tag as u64)
        } else {
            first.sst.begin_load_of(first.number, last.number, self.warmth, tag as u64)
        };
        self.queue.as_mut().expect("it has been made").push(request)
    }

    /// Takes the blocks of a read that has ended.
    fn end(&mut self, tag: usize, read: io::Result<BlockLoad>) {
        let span = mem::take(&mut self.in_flight[tag]);
        self.free_tags.push(tag);
        if let &[number] = &span[..] {
            let block = self.block(number);
            let loaded = block.sst.finish_load(block.number, read);
            return self.supply(number, &loaded);
        }
        for number in span {
            let block = self.block(number);
            let loaded = if let Ok(bytes) = &read {
                block.sst.finish_load_of(block.number, bytes)
            } else {
                // The bytes that failed may be of another block, which nobody wants.
                self.ctx.loads.note_read();
                block.sst.load_block(block.number, self.warmth)
            };
            self.supply(number, &loaded);
        }
    }
}
