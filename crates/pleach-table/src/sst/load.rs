//! Loading blocks from the file into memory: read, check, decompress, validate, admit.

use std::io;
use std::ops::Range;
use std::path::Path;

use pleach_coding::Malformed;
use pleach_env::memory::prefetch_to_write;
use pleach_env::{Error, File, ReadBuffer, ReadRequest, Result};

use super::reader::Sst;
use crate::block::{Header, check, validate};
use crate::codec::Codec;
use crate::frame::{AlignedBuffer, BlockRef, FrameMut, Warmth};
use crate::lz4::unpack;
use crate::sizes::{HEADER_LEN, PAGE};

/// Failpoint of the checksum of data blocks.
pub(super) const BLOCK_CRC: &str = "sst.block.crc";

impl Sst {
    /// Reads a block that is not in the cache.
    pub fn load_block(&self, block: u32, warmth: Warmth) -> Result<BlockRef> {
        let (offset, len) = self.block_extent(block);
        if self.codec != Codec::None {
            let stored = self.read(offset, len as usize)?;
            return self.admit(block, &stored, warmth);
        }
        // Uncompressed blocks are read into the memory that keeps them.
        let mut memory = self.reserve(block, len as usize, warmth);
        self.file.read_exact_at(memory.bytes_mut(), offset).map_err(|e| read_error(&self.path, offset, e))?;
        self.check_uncompressed(block, memory.bytes_mut())?;
        Ok(memory.publish())
    }

    /// As [`Sst::load_block`] with [`Warmth::Cold`], if the system has the block in memory; otherwise `None`, at once. `None`
    /// also where that would need a copy, because the block is compressed, and for direct reads, which bypass the system's
    /// cache.
    pub(super) fn load_resident(&self, block: u32) -> Option<Result<BlockRef>> {
        if self.direct || self.codec != Codec::None {
            return None;
        }
        let (offset, len) = self.block_extent(block);
        let mut memory = self.reserve(block, len as usize, Warmth::Cold);
        if !self.file.read_resident_at(memory.bytes_mut(), offset) {
            return None;
        }
        Some(self.check_uncompressed(block, memory.bytes_mut()).map(|()| memory.publish()))
    }

    /// The read that brings a block that is not in the cache.
    pub fn begin_load(&self, block: u32, warmth: Warmth, tag: u64) -> ReadRequest<'_, BlockLoad> {
        let (offset, len) = self.block_extent(block);
        if self.codec == Codec::None {
            let needed = len as usize;
            let buffer = BlockLoad(LoadMemory::Block(self.reserve(block, needed, warmth)));
            return ReadRequest { file: &self.file, offset, buffer, needed, tag };
        }
        self.begin_span(offset..offset + u64::from(len), warmth, tag)
    }

    /// The read that brings the blocks `first..=last`, which are not in the cache.
    pub fn begin_load_of(
        &self,
        first: u32,
        last: u32,
        warmth: Warmth,
        tag: u64,
    ) -> ReadRequest<'_, BlockLoad> {
        let (end, len) = self.block_extent(last);
        self.begin_span(self.block_extent(first).0..end + u64::from(len), warmth, tag)
    }

    /// A read to the heap; direct ones read whole pages.
    fn begin_span(&self, bytes: Range<u64>, warmth: Warmth, tag: u64) -> ReadRequest<'_, BlockLoad> {
        let skip = if self.direct { bytes.start % PAGE as u64 } else { 0 };
        let offset = bytes.start - skip;
        let needed = usize::try_from(bytes.end - offset).expect("blocks fit into memory");
        let len = if self.direct { needed.next_multiple_of(PAGE) } else { needed };
        let buffer = BlockLoad(LoadMemory::Stored { bytes: AlignedBuffer::zeroed(len), offset, warmth });
        ReadRequest { file: &self.file, offset, buffer, needed, tag }
    }

    /// Checks a block that was read as [`Sst::begin_load`] says, and puts it into the cache.
    pub fn finish_load(&self, block: u32, load: io::Result<BlockLoad>) -> Result<BlockRef> {
        match load.map_err(|e| self.load_failed(block, e))?.0 {
            LoadMemory::Block(mut memory) => {
                self.check_uncompressed(block, memory.bytes_mut())?;
                Ok(memory.publish())
            }
            stored @ LoadMemory::Stored { .. } => self.finish_load_of(block, &BlockLoad(stored)),
        }
    }

    /// As [`Sst::finish_load`], for one of the blocks of [`Sst::begin_load_of`].
    pub fn finish_load_of(&self, block: u32, load: &BlockLoad) -> Result<BlockRef> {
        let LoadMemory::Stored { bytes, offset, warmth } = &load.0 else {
            unreachable!("several blocks are read to the heap")
        };
        let (start, len) = self.block_extent(block);
        let start = usize::try_from(start - offset).expect("inside the bytes read");
        self.admit(block, &bytes[start..start + len as usize], *warmth)
    }

    /// The error of a block whose read failed.
    pub fn load_failed(&self, block: u32, error: io::Error) -> Error {
        read_error(&self.path, self.block_extent(block).0, error)
    }

    pub(super) fn admit(&self, block: u32, stored: &[u8], warmth: Warmth) -> Result<BlockRef> {
        let (offset, _) = self.block_extent(block);
        let (header, payload) = self.check_stored(block, stored)?;
        let mut memory = self.reserve(block, HEADER_LEN + header.raw_len as usize, warmth);
        if let BlockMemory::Frames(frames) = &mut memory {
            // Likely not used for long.
            prefetch_to_write(frames.as_ptr(), frames.len());
        }
        decompress(&header, payload, memory.bytes_mut()).map_err(|m| self.damaged(offset, m))?;
        Ok(memory.publish())
    }

    /// Checks the header and checksum of a stored block.
    pub(super) fn check_stored<'a>(&self, block: u32, stored: &'a [u8]) -> Result<(Header, &'a [u8])> {
        let (offset, _) = self.block_extent(block);
        check(stored, self.file_id, offset, self.data_types, BLOCK_CRC).map_err(|m| self.damaged(offset, m))
    }

    /// Checks a stored block of an uncompressed SST, and validates it.
    pub(super) fn check_uncompressed(&self, block: u32, bytes: &[u8]) -> Result<()> {
        let (offset, _) = self.block_extent(block);
        let (header, _) = self.check_stored(block, bytes)?;
        if header.codec != Codec::None {
            return Err(self.damaged(offset, Malformed::new(4, "no compression in an uncompressed SST")));
        }
        validate(bytes, &header).map_err(|m| self.damaged(offset, m))
    }

    /// Memory for `len` bytes of a block: frames, or the heap if the cache has none for it.
    fn reserve(&self, block: u32, len: usize, warmth: Warmth) -> BlockMemory {
        // What the system has in memory too is admitted when it is wanted a second time: to evict a block and write another to
        // its place takes longer than to unpack it into memory that was just used.
        match self.cache.reserve(&self.words, block, len, warmth, !self.direct) {
            Some(frames) => BlockMemory::Frames(frames),
            None if self.direct => BlockMemory::Heap(AlignedBuffer::zeroed(len)),
            None => BlockMemory::Heap(AlignedBuffer::unaligned(len)),
        }
    }

    /// Asks the operating system to read bytes that a cursor will read later. Does nothing if reads bypass the page cache,
    /// into which the system would read them.
    pub(super) fn prefetch(&self, range: Range<u64>) {
        if !self.direct && !range.is_empty() {
            self.file.prefetch(range.start, range.end - range.start);
        }
    }

    /// Where the data blocks end.
    pub(super) fn data_end(&self) -> u64 {
        self.summary.file_len - u64::from(self.summary.tail_len)
    }

    /// Fills `buffer` from `offset` on, at least with `needed` bytes. For direct reads, `offset` and the buffer's length are
    /// multiples of 4096.
    pub(super) fn fill(&self, buffer: &mut [u8], offset: u64, needed: usize) -> io::Result<()> {
        fill(&*self.file, buffer, offset, needed, self.direct)
    }

    /// Reads `len` bytes at `offset`.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<AlignedBuffer> {
        read(&*self.file, &self.path, offset, len, self.direct)
    }
}

/// A block that is being read by a [`ReadQueue`](pleach_env::ReadQueue): memory for its bytes, until
/// [`Sst::finish_load`] makes a block of it. Its drop frees the memory.
pub struct BlockLoad(LoadMemory);

impl BlockLoad {
    /// Admits the block, which nobody wants any more, as one that was not used.
    pub fn cool(&mut self) {
        match &mut self.0 {
            LoadMemory::Block(BlockMemory::Frames(frames)) => frames.cool(),
            LoadMemory::Stored { warmth: warmth @ Warmth::Warm, .. } => *warmth = Warmth::Cold,
            LoadMemory::Block(BlockMemory::Heap(_)) | LoadMemory::Stored { .. } => {}
        }
    }
}

enum LoadMemory {
    /// The place where an uncompressed block will stay.
    Block(BlockMemory),
    /// Bytes of the file from `offset` on, which hold a compressed block, or several blocks.
    Stored { bytes: AlignedBuffer, offset: u64, warmth: Warmth },
}

// SAFETY: frames stay where they are, and as long as they are not published only their `FrameMut` has them; the buffer's
// vector does not grow. The slab lives as long as the cache, which `FrameMut` holds.
#[expect(unsafe_code, reason = "see above")]
unsafe impl ReadBuffer for BlockLoad {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            LoadMemory::Block(memory) => memory.bytes_mut(),
            LoadMemory::Stored { bytes, .. } => bytes,
        }
    }
}

// SAFETY: the bytes are a part of a vector, which only the value has and which nothing makes grow.
#[expect(unsafe_code, reason = "see above")]
unsafe impl ReadBuffer for AlignedBuffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Memory into which a block is loaded.
enum BlockMemory {
    Frames(FrameMut),
    Heap(AlignedBuffer),
}

impl BlockMemory {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            BlockMemory::Frames(frames) => frames,
            BlockMemory::Heap(buffer) => buffer,
        }
    }

    /// Requires: the block is complete and validated.
    fn publish(self) -> BlockRef {
        match self {
            BlockMemory::Frames(frames) => frames.publish(),
            BlockMemory::Heap(buffer) => BlockRef::heap(buffer),
        }
    }
}

/// Writes the uncompressed form of a checked block to `out`, which has exactly its length, and validates it.
pub(super) fn decompress(header: &Header, payload: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
    let (head, body) = out.split_at_mut(HEADER_LEN);
    let uncompressed = Header::uncompressed(header.block_type, header.count, header.raw_len);
    head.copy_from_slice(&uncompressed.encode());
    match header.codec {
        Codec::None => body.copy_from_slice(payload),
        Codec::Lz4 if unpack(payload, body) => {}
        Codec::Lz4 => {
            return Err(Malformed::new(HEADER_LEN, "a payload that decompresses to its stated length"));
        }
    }
    validate(out, &uncompressed)
}

/// Reads `len` bytes at `offset`; `direct` reads whole pages around them.
pub(super) fn read(
    file: &dyn File,
    path: &Path,
    offset: u64,
    len: usize,
    direct: bool,
) -> Result<AlignedBuffer> {
    let skip = if direct { usize::try_from(offset % PAGE as u64).expect("less than a page") } else { 0 };
    let end = if direct { (skip + len).next_multiple_of(PAGE) } else { len };
    let mut buffer = if direct { AlignedBuffer::zeroed(end) } else { AlignedBuffer::unaligned(end) };
    let filled = fill(file, &mut buffer, offset - skip as u64, skip + len, direct);
    filled.map_err(|e| read_error(path, offset, e))?;
    Ok(buffer.narrow(skip, len))
}

fn fill(file: &dyn File, buffer: &mut [u8], start: u64, needed: usize, direct: bool) -> io::Result<()> {
    if !direct {
        return file.read_exact_at(buffer, start);
    }
    let mut filled = 0;
    while filled < needed {
        match file.read_at(&mut buffer[filled..], start + filled as u64) {
            Ok(n) if n > 0 && (n % PAGE == 0 || filled + n >= needed) => filled += n,
            // The file ends inside the last page, before the bytes asked for.
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// `Corruption` if the file ends too early, otherwise `Io`.
pub(super) fn read_error(path: &Path, offset: u64, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::malformed(path, offset, Malformed::new(0, "a longer file"));
    }
    Error::io("read the SST", path, error).at_offset(offset)
}
