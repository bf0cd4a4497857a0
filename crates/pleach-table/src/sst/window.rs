//! Window: neighbouring blocks that one request reads into a buffer of its own, without the cache.
//!
//! A long scan reads windows ([`ReadAhead`](super::read_ahead::ReadAhead)), by itself or in the background
//! ([`WindowRead`](super::window_read::WindowRead)).

use std::io;
use std::ops::Range;

use pleach_env::{ReadBuffer, ReadRequest, Result};

use super::reader::Sst;
use crate::frame::AlignedBuffer;
use crate::sizes::PAGE;

/// Bytes of the buffer of a window of full length: windows of direct reads begin and end with whole pages.
const BUFFER_LEN: usize = (256 << 10) + 2 * PAGE;

/// Neighbouring blocks, and the bytes of the file that are read for them: whole pages around them if reads are direct.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) last: u32,
    bytes: Range<u64>,
    /// How many of the bytes the file must have.
    needed: usize,
}

impl Span {
    pub(super) fn new(sst: &Sst, first: u32, last: u32) -> Self {
        let (offset, len) = sst.block_extent(last);
        let (start, end) = (sst.block_extent(first).0, offset + u64::from(len));
        let page = if sst.direct { PAGE as u64 } else { 1 };
        let bytes = start / page * page..end.next_multiple_of(page);
        let needed = usize::try_from(end - bytes.start).expect("a window fits in memory");
        Self { first, last, bytes, needed }
    }

    pub(super) fn covers(&self, block: u32) -> bool {
        (self.first..=self.last).contains(&block)
    }

    /// The bytes of the file that are read.
    pub(super) fn bytes(&self) -> Range<u64> {
        self.bytes.clone()
    }

    /// The block that a walk comes to first.
    pub(super) fn nearest(&self, forward: bool) -> u32 {
        if forward { self.first } else { self.last }
    }

    /// The block that a walk comes to last.
    pub(super) fn furthest(&self, forward: bool) -> u32 {
        if forward { self.last } else { self.first }
    }

    fn len(&self) -> usize {
        usize::try_from(self.bytes.end - self.bytes.start).expect("a window fits in memory")
    }

    /// The read of the bytes, to `spare` if it is large enough.
    pub(super) fn request<'s>(
        &self,
        sst: &'s Sst,
        spare: Option<WindowBuffer>,
        tag: u64,
    ) -> ReadRequest<'s, WindowBuffer> {
        let mut memory = WindowBuffer::for_span(self, spare);
        memory.0.set_len(self.len());
        ReadRequest { file: &sst.file, offset: self.bytes.start, buffer: memory, needed: self.needed, tag }
    }
}

/// Memory of a window.
pub struct WindowBuffer(AlignedBuffer);

impl WindowBuffer {
    fn new(span: &Span) -> Self {
        let len = span.len();
        // Rounded up, so that later windows can use it again.
        Self(AlignedBuffer::zeroed(if len > BUFFER_LEN / 2 {
            len.max(BUFFER_LEN)
        } else {
            len.next_power_of_two()
        }))
    }

    /// `spare`, if it is large enough, or new memory.
    fn for_span(span: &Span, spare: Option<Self>) -> Self {
        spare.filter(|spare| spare.0.capacity() >= span.len()).unwrap_or_else(|| Self::new(span))
    }
}

// SAFETY: the buffer's bytes are on the heap; they stay where they are when it moves, and nothing here makes it grow.
#[expect(unsafe_code, reason = "see above")]
unsafe impl ReadBuffer for WindowBuffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A window that was read. Its blocks are not checked.
pub(super) struct Window {
    pub(super) span: Span,
    memory: WindowBuffer,
}

impl Window {
    /// Reads the blocks of `span` on this thread.
    pub(super) fn read(sst: &Sst, span: Span, spare: Option<WindowBuffer>) -> Result<Self> {
        let mut memory = WindowBuffer::for_span(&span, spare);
        memory.0.set_len(span.len());
        let read = sst.fill(&mut memory.0, span.bytes.start, span.needed);
        read.map_err(|e| sst.load_failed(span.first, e))?;
        Ok(Self { span, memory })
    }

    /// The window whose bytes were read as [`Span::request`] says.
    pub(super) fn of_read(sst: &Sst, span: &Span, read: io::Result<WindowBuffer>) -> Result<Self> {
        let memory = read.map_err(|e| sst.load_failed(span.first, e))?;
        Ok(Self { span: span.clone(), memory })
    }

    /// Where the stored bytes of a block are in [`Window::bytes`].
    pub(super) fn place(&self, sst: &Sst, block: u32) -> Range<usize> {
        let (offset, len) = sst.block_extent(block);
        let start = usize::try_from(offset - self.span.bytes.start).expect("the window has the block");
        start..start + len as usize
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory.0
    }

    pub(super) fn into_memory(self) -> WindowBuffer {
        self.memory
    }
}
