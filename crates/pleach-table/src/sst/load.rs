//! Bringing blocks from the file into memory: read, check, unfold, validate, admit.

use std::io;
use std::ops::Range;
use std::path::Path;

use pleach_coding::Malformed;
use pleach_env::{Error, File, Result};

use super::reader::Sst;
use crate::block::{BlockType, Header, check, validate};
use crate::codec::Codec;
use crate::frame::{AlignedBuffer, BlockRef, FrameMut, Warmth};
use crate::limits::{HEADER_LEN, PAGE};

/// Failpoint of the checksum of data blocks.
pub(super) const BLOCK_CRC: &str = "sst.block.crc";

impl Sst {
    /// Admits a block that somebody has read from its [`Sst::block_extent`], exactly.
    pub fn admit_block(&self, block: u32, stored: &[u8]) -> Result<BlockRef> {
        self.admit(block, stored, Warmth::Warm)
    }

    /// Reads a block that is not in the cache.
    pub(super) fn load_block(&self, block: u32, warmth: Warmth) -> Result<BlockRef> {
        let (offset, len) = self.block_extent(block);
        if self.codec != Codec::None {
            let stored = self.read(offset, len as usize)?;
            return self.admit(block, &stored, warmth);
        }
        // Uncompressed blocks are read where they will stay.
        let mut home = self.home(block, len as usize, warmth);
        self.file.read_exact_at(home.bytes_mut(), offset).map_err(|e| read_error(&self.path, offset, e))?;
        self.check_unfolded(block, home.bytes_mut())?;
        Ok(home.settle())
    }

    pub(super) fn admit(&self, block: u32, stored: &[u8], warmth: Warmth) -> Result<BlockRef> {
        let (offset, _) = self.block_extent(block);
        let (header, payload) = self.check_stored(block, stored)?;
        let mut home = self.home(block, HEADER_LEN + header.raw_len as usize, warmth);
        let malformed = |m| self.damaged(offset, m);
        unfold(&header, payload, home.bytes_mut()).map_err(malformed)?;
        validate(home.bytes_mut(), &Header::unfolded(header.count, header.raw_len)).map_err(malformed)?;
        Ok(home.settle())
    }

    /// Checks the header and checksum of a stored block.
    pub(super) fn check_stored<'a>(&self, block: u32, stored: &'a [u8]) -> Result<(Header, &'a [u8])> {
        let (offset, _) = self.block_extent(block);
        check(stored, self.file_id, offset, BlockType::Data, BLOCK_CRC).map_err(|m| self.damaged(offset, m))
    }

    /// Checks all of a stored block that needs no unfolding.
    pub(super) fn check_unfolded(&self, block: u32, bytes: &[u8]) -> Result<()> {
        let (offset, _) = self.block_extent(block);
        let (header, _) = self.check_stored(block, bytes)?;
        if header.codec != Codec::None {
            return Err(self.damaged(offset, Malformed::new(4, "no compression in an uncompressed SST")));
        }
        validate(bytes, &header).map_err(|m| self.damaged(offset, m))
    }

    /// Memory for `len` bytes of a block: frames, or the heap.
    fn home(&self, block: u32, len: usize, warmth: Warmth) -> Home {
        match self.cache.reserve(&self.words, block, len, warmth) {
            Some(frames) => Home::Frames(frames),
            None => Home::Heap(AlignedBuffer::zeroed(len)),
        }
    }

    /// Asks the device for a block that is not in the cache: [`Sst::read_block`] will wait the shorter. Without the page
    /// cache there is no place for it yet.
    pub(super) fn prefetch_block(&self, block: u32) {
        let (offset, len) = self.block_extent(block);
        self.prefetch(offset..offset + u64::from(len));
    }

    /// The same for any bytes.
    pub(super) fn prefetch(&self, range: Range<u64>) {
        if !self.direct && !range.is_empty() {
            self.file.prefetch(range.start, range.end - range.start);
        }
    }

    /// Where the data blocks end.
    pub(super) fn data_end(&self) -> u64 {
        self.summary.file_len - u64::from(self.summary.tail_len)
    }

    /// Reads `len` bytes at `offset`.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<AlignedBuffer> {
        read(&*self.file, &self.path, offset, len, self.direct)
    }
}

/// Memory that a block is brought into.
enum Home {
    Frames(FrameMut),
    Heap(AlignedBuffer),
}

impl Home {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Home::Frames(frames) => frames,
            Home::Heap(buffer) => buffer,
        }
    }

    /// Requires: the block is complete and validated.
    fn settle(self) -> BlockRef {
        match self {
            Home::Frames(frames) => frames.publish(),
            Home::Heap(buffer) => BlockRef::heap(buffer),
        }
    }
}

/// Writes the unfolded form of a checked block to `out`, which has exactly its length.
pub(super) fn unfold(header: &Header, payload: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
    let (head, body) = out.split_at_mut(HEADER_LEN);
    head.copy_from_slice(&Header::unfolded(header.count, header.raw_len).encode(BlockType::Data));
    match header.codec {
        Codec::None => body.copy_from_slice(payload),
        Codec::Lz4 => match lz4_flex::block::decompress_into(payload, body) {
            Ok(len) if len == body.len() => {}
            _ => return Err(Malformed::new(HEADER_LEN, "a payload that unfolds to its stated length")),
        },
    }
    Ok(())
}

/// Reads `len` bytes at `offset`; `direct` reads whole pages around them.
pub(super) fn read(
    file: &dyn File,
    path: &Path,
    offset: u64,
    len: usize,
    direct: bool,
) -> Result<AlignedBuffer> {
    let failed = |e| read_error(path, offset, e);
    if !direct {
        let mut buffer = AlignedBuffer::zeroed(len);
        file.read_exact_at(&mut buffer, offset).map_err(failed)?;
        return Ok(buffer);
    }
    let skip = usize::try_from(offset % PAGE as u64).expect("less than a page");
    let mut buffer = AlignedBuffer::zeroed((skip + len).next_multiple_of(PAGE));
    let start = offset - skip as u64;
    let mut filled = 0;
    while filled < skip + len {
        match file.read_at(&mut buffer[filled..], start + filled as u64) {
            Ok(n) if n > 0 && (n % PAGE == 0 || filled + n >= skip + len) => filled += n,
            // The file ends inside the last page, before what is asked for.
            Ok(_) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(buffer.narrow(skip, len))
}

/// A file that ends too early is damaged; anything else is the system's refusal.
fn read_error(path: &Path, offset: u64, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::corruption(path, offset, "the file ends before a part of it that should be here");
    }
    Error::io("read the SST", path, error)
}
