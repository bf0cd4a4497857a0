//! Blocks read one after the other through a buffer of their own, without the cache: for compactions and checks.

use std::ops::Range;

use pleach_env::Result;

use super::load::decompress;
use super::reader::Sst;
use crate::codec::Codec;
use crate::frame::AlignedBuffer;
use crate::sizes::{HEADER_LEN, PAGE};

/// Bytes read at a time. Large enough for the full rate of a device.
const WINDOW_LEN: u64 = 1 << 20;

/// Bytes of the first read. Each read that continues the last one is twice as long. So a reader of a small section of a
/// shared file reads and holds few bytes.
const WINDOW_LEN_FIRST: u64 = 64 << 10;

/// The stream. It holds one block at a time, checked and uncompressed.
pub(super) struct BlockStream {
    /// Bytes `window` of the file.
    buffer: Option<AlignedBuffer>,
    window: Range<u64>,
    /// The current block, if it was compressed in the file.
    uncompressed: Vec<u8>,
    /// Where the current block is in the buffer; `None` if it is in `uncompressed`.
    in_buffer: Option<Range<usize>>,
    /// Whether to drop the bytes read from the page cache.
    forget: bool,
}

impl BlockStream {
    pub(super) fn new(forget: bool) -> Self {
        Self { buffer: None, window: 0..0, uncompressed: Vec::new(), in_buffer: None, forget }
    }

    /// Forgets the file: the next block is one of another.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.forget);
    }

    /// The current block.
    pub(super) fn bytes(&self) -> &[u8] {
        match (&self.in_buffer, &self.buffer) {
            (Some(range), Some(buffer)) => &buffer[range.clone()],
            _ => &self.uncompressed,
        }
    }

    /// Makes `block` the current one.
    pub(super) fn load(&mut self, sst: &Sst, block: u32) -> Result<()> {
        let (offset, len) = sst.block_extent(block);
        self.in_buffer = None;
        self.uncompressed.clear();
        self.cover(sst, offset..offset + u64::from(len))?;
        let start = usize::try_from(offset - self.window.start).expect("the window fits in memory");
        let range = start..start + len as usize;
        let stored = &self.buffer.as_ref().expect("just read")[range.clone()];
        if sst.codec == Codec::None {
            sst.check_uncompressed(block, stored)?;
            self.in_buffer = Some(range);
            return Ok(());
        }
        let (header, payload) = sst.check_stored(block, stored)?;
        self.uncompressed.resize(HEADER_LEN + header.raw_len as usize, 0);
        decompress(&header, payload, &mut self.uncompressed).map_err(|m| {
            self.uncompressed.clear();
            sst.damaged(offset, m)
        })
    }

    /// Makes the window cover `range`. It reaches beyond it in the direction of the walk.
    fn cover(&mut self, sst: &Sst, range: Range<u64>) -> Result<()> {
        if self.window.start <= range.start && range.end <= self.window.end {
            return Ok(());
        }
        let data_end = sst.data_end();
        let page = PAGE as u64;
        let continues =
            !self.window.is_empty() && range.start <= self.window.end && range.end >= self.window.start;
        let before = if continues { self.window.end - self.window.start } else { 0 };
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
        if continues && forward {
            // The device reads the next window while the caller uses this one.
            sst.prefetch(window.end..data_end.min(window.end + (2 * len as u64).min(WINDOW_LEN)));
        }
        self.window = window;
        Ok(())
    }
}
