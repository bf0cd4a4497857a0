//! Blocks read one after the other through a buffer of their own, past the cache: for compaction and checks.

use std::ops::Range;

use pleach_env::Result;

use super::load::unfold;
use super::reader::Sst;
use crate::block::{Header, validate};
use crate::codec::Codec;
use crate::frame::AlignedBuffer;
use crate::limits::{HEADER_LEN, PAGE};

/// Bytes read at a time: large enough that a device works at full rate.
const WINDOW_LEN: u64 = 1 << 20;

/// Bytes read at first. It is doubled with every read that goes on where the last one ended, so that who wants little, as a
/// small section of a shared file, neither reads much nor holds it.
const WINDOW_LEN_FIRST: u64 = 64 << 10;

/// See the module's text. It holds one block at a time, checked and unfolded.
pub(super) struct BlockStream {
    /// Bytes `window` of the file.
    buffer: Option<AlignedBuffer>,
    window: Range<u64>,
    /// The unfolded block, where it had to be unfolded.
    unfolded: Vec<u8>,
    /// Where the block is in the buffer; `None` when it is in `unfolded`.
    in_buffer: Option<Range<usize>>,
    /// Whether to drop what has been read from the page cache.
    forget: bool,
}

impl BlockStream {
    pub(super) fn new(forget: bool) -> Self {
        Self { buffer: None, window: 0..0, unfolded: Vec::new(), in_buffer: None, forget }
    }

    /// The current block.
    pub(super) fn bytes(&self) -> &[u8] {
        match (&self.in_buffer, &self.buffer) {
            (Some(range), Some(buffer)) => &buffer[range.clone()],
            _ => &self.unfolded,
        }
    }

    /// Makes `block` the current one.
    pub(super) fn load(&mut self, sst: &Sst, block: u32) -> Result<()> {
        let (offset, len) = sst.block_extent(block);
        self.in_buffer = None;
        self.unfolded.clear();
        self.cover(sst, offset..offset + u64::from(len))?;
        let start = usize::try_from(offset - self.window.start).expect("the window fits in memory");
        let range = start..start + len as usize;
        let stored = &self.buffer.as_ref().expect("just read")[range.clone()];
        if sst.codec == Codec::None {
            sst.check_unfolded(block, stored)?;
            self.in_buffer = Some(range);
            return Ok(());
        }
        let (header, payload) = sst.check_stored(block, stored)?;
        self.unfolded.resize(HEADER_LEN + header.raw_len as usize, 0);
        unfold(&header, payload, &mut self.unfolded)
            .and_then(|()| validate(&self.unfolded, &Header::unfolded(header.count, header.raw_len)))
            .map_err(|m| {
                self.unfolded.clear();
                sst.damaged(offset, m)
            })
    }

    /// Makes the window cover `range`: ahead of it where the walk goes forward, behind it otherwise.
    fn cover(&mut self, sst: &Sst, range: Range<u64>) -> Result<()> {
        if self.window.start <= range.start && range.end <= self.window.end {
            return Ok(());
        }
        let data_end = sst.data_end();
        let page = PAGE as u64;
        let goes_on =
            !self.window.is_empty() && range.start <= self.window.end && range.end >= self.window.start;
        let before = if goes_on { self.window.end - self.window.start } else { 0 };
        let len = (2 * before).clamp(WINDOW_LEN_FIRST, WINDOW_LEN);
        let forward = range.start >= self.window.start;
        let window = if forward {
            let start = range.start / page * page;
            start..range.end.max(data_end.min(start + len))
        } else {
            range.start.min(range.end.saturating_sub(len)) / page * page..range.end
        };
        if self.forget && !self.window.is_empty() {
            sst.file.forget(self.window.start, self.window.end - self.window.start);
        }
        self.window = 0..0;
        let len = usize::try_from(window.end - window.start).expect("a window fits in memory");
        self.buffer = None;
        self.buffer = Some(sst.read(window.start, len)?);
        if goes_on && forward {
            // The device works while this window is gone through.
            sst.prefetch(window.end..data_end.min(window.end + (2 * len as u64).min(WINDOW_LEN)));
        }
        self.window = window;
        Ok(())
    }
}
