//! Read-ahead: which blocks a walk reads next, how many at once, and in the background.
//!
//! A walk that goes on to a block that is not cached reads some blocks at once: 16 KiB at first, and each time twice as many,
//! up to 256 KiB. From the third time on, the next window is in flight while the walk consumes this one; at the full length
//! two are. A walk that knows how many entries are wanted reads what they need at once, and nothing behind it. One that does
//! not know begins with a window of what scans take as a rule, if that is longer than 16 KiB.
//!
//! Blocks that are in the cache are not read, unless they lie between others that are not. Nothing is read behind the
//! walk's bound. A block that cannot be read is an error only of a walk that comes to it: where the read of a window fails, its
//! blocks are read one by one.
//!
//! # Cost
//! The bytes read for nothing are at most about as many as the walk has read before, and at most three windows; the first
//! window may be as long as scans were before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker, ready};

use pleach_env::{Error, ReadService, Result};

use super::reader::Sst;
use super::scan_hints::CursorHints;
use super::window::{Span, Window, WindowBuffer};
use super::window_read::WindowRead;
use crate::frame::FrameCache;

/// Bytes of the first window: a device takes hardly longer for them than for one block.
const LEN_MIN: u64 = 16 << 10;
/// What scans take as a rule is read with the block of a seek if it is more than this, which a block holds or two.
const USUAL_MIN: u64 = LEN_MIN / 2;
/// A walk whose next window is so long reads it in the background.
const LEN_IN_BACKGROUND: u64 = 64 << 10;
/// Blocks of windows shorter than this enter the cache: short scans of the same keys may follow. Longer scans leave the cache
/// alone.
const LEN_PAST_CACHE: u64 = 128 << 10;
/// Bytes of a window at most: enough for the full rate of a device with two in flight.
const LEN_MAX: u64 = 256 << 10;

/// So many cached blocks in a row are left out of a window; fewer are read once more, because two requests cost more
/// (arbitrary).
const CACHED_MIN: u32 = 8;
/// How many blocks ahead a walk over cached blocks looks for one that is not (arbitrary).
const LOOK_MAX: u32 = 256;

/// A window that was read, and whether its blocks enter the cache.
pub(super) struct ReadWindow {
    pub(super) window: Window,
    pub(super) admits: bool,
}

/// The read-ahead of one walk in one direction.
pub(super) struct ReadAhead {
    hints: Option<CursorHints>,
    forward: bool,
    /// Bytes of the next window.
    len: u64,
    /// Bytes that the walk is known to want, not yet asked for.
    wanted: u64,
    /// Bytes that scans take as a rule, before the first window; then 0.
    usual: u64,
    /// The windows that are being read, in the order of the walk, and whether their blocks enter the cache.
    in_flight: VecDeque<(Arc<WindowRead>, bool)>,
    in_flight_max: usize,
    service: Option<Arc<ReadService<WindowRead>>>,
    /// The next block to ask for; `None` behind the last.
    frontier: Option<u32>,
    /// Whether the walk has not yet asked for a block.
    is_new: bool,
    /// The last block that the walk may reach.
    limit: u32,
    /// The last block of a window whose read has failed. Blocks up to it are read one by one, because the walk may not need
    /// the one that failed.
    alone_until: Option<u32>,
    spare: Option<WindowBuffer>,
}

impl ReadAhead {
    /// Of a walk that stands on a neighbour of `block`, and goes on to it.
    pub(super) fn new(sst: &Sst, hints: Option<&CursorHints>, block: u32, forward: bool) -> Self {
        let edge = if forward { sst.blocks() - 1 } else { 0 };
        let limit = hints.and_then(|hints| hints.limit(sst, forward)).unwrap_or(edge);
        let wanted = hints.map_or(0, |hints| hints.wanted_bytes(sst));
        let usual = hints.map_or(0, |hints| hints.usual_bytes(sst));
        Self {
            hints: hints.cloned(),
            forward,
            len: LEN_MIN,
            wanted,
            usual,
            in_flight: VecDeque::new(),
            in_flight_max: 1,
            service: None,
            frontier: Some(block),
            is_new: true,
            limit,
            alone_until: None,
            spare: None,
        }
    }

    /// The read-ahead of the same walk over the next file of its run, of which it wants `block` first.
    pub(super) fn in_next_file(mut self, sst: &Sst, block: u32) -> Self {
        let mut next = Self::new(sst, self.hints.as_ref(), block, self.forward);
        (next.len, next.wanted, next.is_new) = (self.len, self.wanted.min(next.wanted), self.is_new);
        next.usual = self.usual.min(next.usual);
        (next.service, next.spare) = (self.service.clone(), self.spare.take());
        next
    }

    /// Whether the walk goes up.
    pub(super) fn is_forward(&self) -> bool {
        self.forward
    }

    /// Whether `block`, to which the walk goes on, may be read alone: the first time, unless it is known to want more.
    pub(super) fn begin_alone(&mut self, block: u32) -> bool {
        let may_be_short = self.is_new && self.wanted == 0;
        self.is_new = false;
        if may_be_short {
            self.frontier = self.behind(block);
        }
        may_be_short
    }

    /// Of a walk that seeks in `block`, which has to be read, and that wants more than this block. If how much it wants is a
    /// guess, only direct reads trust it: otherwise the system may have the blocks in its cache.
    pub(super) fn of_seek(sst: &Sst, hints: &CursorHints, block: u32, forward: bool) -> Option<Self> {
        let mut ahead = Self::new(sst, Some(hints), block, forward);
        if ahead.wanted == 0 && sst.direct && ahead.usual > USUAL_MIN {
            (ahead.wanted, ahead.len) = (ahead.usual.min(LEN_MAX), ahead.len_after_usual());
            ahead.usual = 0;
        }
        (ahead.wanted > 0).then_some(ahead)
    }

    /// Takes back the memory of a window.
    pub(super) fn recycle(&mut self, window: Window) {
        self.spare = Some(window.into_memory());
    }

    /// The window with `block`, to which the walk goes on: one in flight, or one that is read now. If a window of several
    /// blocks cannot be read, `block` is read alone.
    pub(super) fn window(&mut self, sst: &Sst, block: u32) -> Result<ReadWindow> {
        loop {
            let (read, span, admits) = if self.is_in_flight(block) {
                let (read, admits) = self.pop_first();
                let service = self.service.as_ref().expect("it was given the read");
                (read.wait(service), read.span.clone(), admits)
            } else {
                let (span, admits) = self.next_window(sst, block);
                (Window::read(sst, span.clone(), self.spare.take()), span, admits)
            };
            if read.is_ok() || !self.goes_alone_in(&span) {
                return read.map(|window| ReadWindow { window, admits });
            }
        }
    }

    /// As [`ReadAhead::window`], for a task: a window that is not in flight is handed to the service.
    pub(super) fn poll_window(
        &mut self,
        sst: &Arc<Sst>,
        block: u32,
        waker: &Waker,
    ) -> Poll<Result<ReadWindow>> {
        let Some(service) = self.service() else { return Poll::Ready(Err(Error::closed())) };
        loop {
            if !self.is_in_flight(block) {
                let (span, admits) = self.next_window(sst, block);
                let read = Arc::new(WindowRead::new(sst, span, self.spare.take()));
                if !service.submit(Arc::clone(&read)) {
                    return Poll::Ready(Err(Error::closed()));
                }
                self.in_flight.push_front((read, admits));
            }
            let (first, _) = self.in_flight.front().expect("it was handed in");
            let window = ready!(first.poll(&service, waker));
            let (read, admits) = self.pop_first();
            if window.is_ok() || !self.goes_alone_in(&read.span) {
                return Poll::Ready(window.map(|window| ReadWindow { window, admits }));
            }
        }
    }

    /// Whether the blocks of a window whose read has failed are read one by one: if there are several.
    fn goes_alone_in(&mut self, failed: &Span) -> bool {
        self.alone_until = Some(failed.furthest(self.forward));
        failed.first != failed.last
    }

    /// Whether the first window in flight has `block`, to which the walk goes on. Those before it are abandoned.
    fn is_in_flight(&mut self, block: u32) -> bool {
        while let Some((read, _)) = self.in_flight.front() {
            if read.span.covers(block) {
                return true;
            }
            if !self.is_before(read.span.nearest(self.forward), block) {
                return false;
            }
            self.abandon_first();
        }
        false
    }

    /// The window that begins with `block`, which lies before those in flight, and whether its blocks enter the cache.
    fn next_window(&mut self, sst: &Sst, block: u32) -> (Span, bool) {
        let until = self.in_flight.front().map(|(read, _)| read.span.nearest(self.forward));
        self.is_new = false;
        let admits = self.admits();
        let span = self.span(sst, block, until);
        if until.is_none() {
            self.frontier = self.behind(span.furthest(self.forward));
        }
        self.grow(&span);
        (span, admits)
    }

    fn pop_first(&mut self) -> (Arc<WindowRead>, bool) {
        if self.next_len() == LEN_MAX {
            self.in_flight_max = 2;
        }
        self.in_flight.pop_front().expect("the caller has seen it")
    }

    /// Begins to read what the walk will want behind `block`, on which it stands.
    pub(super) fn look_ahead(&mut self, sst: &Arc<Sst>, block: u32) {
        while self.in_flight.len() < self.in_flight_max
            && (self.len >= LEN_IN_BACKGROUND || self.wanted > 0)
            && let Some(first) = self.next_uncached(sst, block)
            && let Some(service) = self.service()
        {
            self.is_new = false;
            let admits = self.admits();
            let span = self.span(sst, first, None);
            self.frontier = self.behind(span.furthest(self.forward));
            self.grow(&span);
            if service.wants_help() {
                // Nobody reads before the walk waits, but for the system.
                sst.prefetch(span.bytes());
            }
            let read = Arc::new(WindowRead::new(sst, span, self.spare.take()));
            if !service.submit(Arc::clone(&read)) {
                return;
            }
            self.in_flight.push_back((read, admits));
        }
    }

    fn service(&mut self) -> Option<Arc<ReadService<WindowRead>>> {
        if self.service.is_none() {
            self.service = self.hints.as_ref().and_then(|hints| hints.scan.reads.service());
        }
        self.service.clone()
    }

    /// Whether the blocks of the next window enter the cache.
    fn admits(&self) -> bool {
        self.hints.as_ref().is_some_and(|hints| hints.scan.fills_cache) || self.next_len() < LEN_PAST_CACHE
    }

    fn next_len(&self) -> u64 {
        if self.wanted > 0 {
            self.wanted.clamp(LEN_MIN, LEN_MAX)
        } else {
            self.len.max(self.usual.min(LEN_MAX))
        }
    }

    /// The length of the windows behind those of the usual scan.
    fn len_after_usual(&self) -> u64 {
        if self.usual >= LEN_MAX { LEN_MAX } else { self.len }
    }

    fn grow(&mut self, span: &Span) {
        if self.wanted > 0 {
            let Range { start, end } = span.bytes();
            // A rest that is shorter than the surplus of the estimate is not worth a request.
            self.wanted = self.wanted.saturating_sub(end - start);
            if self.wanted < LEN_MIN / 2 {
                self.wanted = 0;
            }
        } else {
            self.len = (self.len_after_usual() * 2).min(LEN_MAX);
        }
        self.usual = 0;
    }

    /// Whether the walk comes to `a` before `b`.
    fn is_before(&self, a: u32, b: u32) -> bool {
        if self.forward { a < b } else { a > b }
    }

    /// The block behind `block`, if the walk may reach it.
    fn behind(&self, block: u32) -> Option<u32> {
        if !self.is_before(block, self.limit) {
            return None;
        }
        if self.forward { block.checked_add(1) } else { block.checked_sub(1) }
    }

    /// The first block behind `block` that is neither in the cache nor in flight. The search goes on at the next call.
    fn next_uncached(&mut self, sst: &Sst, block: u32) -> Option<u32> {
        let mut next = self.frontier?;
        if !self.is_before(block, next) {
            next = self.behind(block)?;
        }
        while next.abs_diff(block) <= LOOK_MAX {
            if !FrameCache::seems_cached(&sst.words, next) {
                return Some(next);
            }
            self.wanted = self.wanted.saturating_sub(u64::from(sst.block_extent(next).1));
            self.frontier = self.behind(next);
            next = self.frontier?;
        }
        None
    }

    /// The blocks of a window that begins with `first`, and ends before `until`.
    fn span(&self, sst: &Sst, first: u32, until: Option<u32>) -> Span {
        let is_alone = self.alone_until.is_some_and(|last| !self.is_before(last, first));
        let len_max = if is_alone { 0 } else { self.next_len() };
        let (mut last, mut end) = (first, first);
        let mut len = u64::from(sst.block_extent(first).1);
        let mut cached = 0;
        while let Some(next) = self.behind(end)
            && until != Some(next)
        {
            len += u64::from(sst.block_extent(next).1);
            cached = if FrameCache::seems_cached(&sst.words, next) { cached + 1 } else { 0 };
            if len > len_max || cached == CACHED_MIN {
                break;
            }
            end = next;
            if cached == 0 {
                last = next;
            }
        }
        Span::new(sst, first.min(last), first.max(last))
    }

    fn abandon_first(&mut self) {
        if let (Some((read, _)), Some(service)) = (self.in_flight.pop_front(), &self.service) {
            service.withdraw(&read);
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        while !self.in_flight.is_empty() {
            self.abandon_first();
        }
    }
}
