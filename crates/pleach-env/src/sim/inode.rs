//! A simulated file's bytes and length: current, durable and pending.
//!
//! Only the blocks in `unclean` have pending changes. So the cost of a sync or a crash depends on the bytes written since the
//! last sync, not on the size of the file.
//!
//! # Invariants
//! 1. `sizes` is never empty: the durable length first, then each length since the last sync, the current one last.
//! 2. Bytes at and beyond the current length are zeros.
//! 3. `unclean` lists exactly the blocks that are not clean, each once, in the order in which they were first written.
//! 4. `blocks_charged` counts the blocks that take space: those below `blocks_reserved` that are not holes, and those with
//!    content.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::block::{BLOCK_LEN, Block, SECTORS_PER_BLOCK};
use super::crash::Chooser;

/// Number of an inode; never used again on the same disk.
pub(super) type Ino = u64;

/// Longest simulated file. Arbitrary: it bounds the table of blocks.
pub(super) const FILE_LEN_MAX: u64 = 1 << 32;

/// Most lengths remembered between two syncs; arbitrary, as for the versions of a block.
const SIZES_MAX: usize = 256;

/// A file without its name.
#[derive(Clone)]
pub(super) struct Inode {
    /// By block number, up to the last one ever written.
    blocks: Vec<Option<Arc<Block>>>,
    unclean: Vec<usize>,
    sizes: Vec<u64>,
    blocks_reserved: usize,
    /// Blocks below `blocks_reserved` whose space was freed.
    holes: BTreeSet<usize>,
    blocks_charged: usize,
}

impl Inode {
    /// A file of length zero.
    pub(super) fn empty() -> Self {
        Self {
            blocks: Vec::new(),
            unclean: Vec::new(),
            sizes: vec![0],
            blocks_reserved: 0,
            holes: BTreeSet::new(),
            blocks_charged: 0,
        }
    }

    /// A file with these bytes, durably.
    pub(super) fn settled(bytes: &[u8]) -> Self {
        let mut inode = Self::empty();
        inode.write(bytes, 0);
        inode.sync();
        inode
    }

    /// Current length.
    pub(super) fn len(&self) -> u64 {
        *self.sizes.last().expect("invariant 1: sizes is never empty")
    }

    /// Bytes of the medium that the file takes.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.blocks_charged as u64 * BLOCK_LEN as u64
    }

    /// Reads what is there now; fewer bytes at the end of the file.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let available = self.len().saturating_sub(offset);
        let len = usize::try_from(available).map_or(buf.len(), |a| a.min(buf.len()));
        for piece in pieces(offset, len) {
            let page = self.blocks.get(piece.block).and_then(Option::as_deref).and_then(Block::current);
            let target = &mut buf[piece.buffer.clone()];
            match page {
                Some(page) => target.copy_from_slice(&page[piece.start..][..target.len()]),
                None => target.fill(0),
            }
        }
        len
    }

    /// How many of `len` bytes can be written at `offset` if the disk has `blocks_free` free blocks.
    pub(super) fn fit(&self, offset: u64, len: usize, mut blocks_free: u64) -> usize {
        for piece in pieces(offset, len) {
            if !self.takes_space(piece.block) {
                if blocks_free == 0 {
                    return piece.buffer.start;
                }
                blocks_free -= 1;
            }
        }
        len
    }

    /// How many more blocks [`Inode::allocate`] would take.
    pub(super) fn shortfall(&self, len: u64) -> u64 {
        (0..block_count(len)).filter(|&b| !self.takes_space(b)).count() as u64
    }

    fn takes_space(&self, block: usize) -> bool {
        (block < self.blocks_reserved && !self.holes.contains(&block))
            || self.blocks.get(block).is_some_and(|b| b.as_ref().is_some_and(|b| b.current().is_some()))
    }

    /// Requires: `offset + bytes.len() <= FILE_LEN_MAX`.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        for piece in pieces(offset, bytes.len()) {
            if !self.takes_space(piece.block) {
                self.blocks_charged += 1;
            }
            self.change(piece.block, |block| block.write(piece.start, &bytes[piece.buffer.clone()]));
        }
        self.note_len(self.len().max(offset + bytes.len() as u64));
    }

    /// Requires: `len <= FILE_LEN_MAX`.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len() {
            let (first, start) = locate(len);
            for index in first..self.blocks.len() {
                if self.blocks[index].as_ref().is_some_and(|b| b.current().is_some()) {
                    self.change(index, |block| block.cut(if index == first { start } else { 0 }));
                }
            }
            self.blocks_reserved = self.blocks_reserved.min(block_count(len));
            self.holes = self.holes.range(..self.blocks_reserved).copied().collect();
            self.recount();
        }
        self.note_len(len);
    }

    /// Requires: `len <= FILE_LEN_MAX`.
    pub(super) fn allocate(&mut self, len: u64) {
        self.blocks_reserved = self.blocks_reserved.max(block_count(len));
        self.holes.clear(); // All of it is reserved again.
        self.recount();
        self.note_len(self.len().max(len));
    }

    /// Requires: offset and length are multiples of the block length.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        let (first, last) = (locate(offset).0, locate(offset.saturating_add(len)).0);
        for index in first..last.min(self.blocks.len()) {
            if self.blocks[index].as_ref().is_some_and(|b| b.current().is_some()) {
                self.change(index, |block| block.cut(0));
            }
        }
        self.holes.extend(first..last.min(self.blocks_reserved));
        self.recount();
    }

    fn recount(&mut self) {
        let beyond = (self.blocks_reserved..self.blocks.len()).filter(|&b| self.takes_space(b)).count();
        let empty_holes = self.holes.iter().filter(|&&b| !self.takes_space(b)).count();
        self.blocks_charged = self.blocks_reserved - empty_holes + beyond;
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut Block)) {
        if self.blocks.len() <= index {
            self.blocks.resize(index + 1, None);
        }
        let block = Arc::make_mut(self.blocks[index].get_or_insert_default());
        let was_clean = block.is_clean();
        change(block);
        if was_clean && !block.is_clean() {
            self.unclean.push(index);
        }
    }

    fn note_len(&mut self, len: u64) {
        if len != self.len() {
            self.sizes.push(len);
            if self.sizes.len() > SIZES_MAX {
                thin(&mut self.sizes);
            }
        }
    }

    /// Makes bytes and length durable, except for lost sectors.
    pub(super) fn sync(&mut self) {
        for &index in &self.unclean {
            Arc::make_mut(listed(&mut self.blocks, index)).sync();
        }
        let blocks = &self.blocks;
        self.unclean.retain(|&i| blocks[i].as_ref().is_some_and(|b| !b.is_clean()));
        self.sizes = vec![self.len()];
    }

    /// Marks the pending bytes clean without making them durable. The length stays pending, because the file system writes it
    /// to its journal.
    pub(super) fn fail_sync(&mut self) {
        for &index in &self.unclean {
            Arc::make_mut(listed(&mut self.blocks, index)).fail_sync();
        }
    }

    /// Whether a crash changes nothing.
    pub(super) fn is_settled(&self) -> bool {
        self.unclean.is_empty() && self.sizes.len() == 1
    }

    /// The file after a crash that keeps what `chooser` chooses.
    pub(super) fn crash(&self, chooser: &mut Chooser) -> Self {
        let mut blocks = self.blocks.clone();
        let mut file = chooser.file(self.unclean.len() * SECTORS_PER_BLOCK);
        for &index in &self.unclean {
            file.next_block();
            let page = listed(&mut blocks, index).crash(|versions| file.pick(versions));
            blocks[index] = page.map(|p| Arc::new(Block::settled(Some(p))));
        }
        let len = self.sizes[chooser.size(self.sizes.len())];
        // `set_len` from a larger length cuts the bytes beyond the chosen one.
        let sizes = vec![u64::MAX];
        let mut inode = Self { blocks, unclean: Vec::new(), sizes, ..Self::empty() };
        inode.blocks_reserved = self.blocks_reserved;
        inode.holes.clone_from(&self.holes);
        inode.set_len(len);
        inode.sync();
        inode
    }
}

fn listed(blocks: &mut [Option<Arc<Block>>], index: usize) -> &mut Arc<Block> {
    blocks[index].as_mut().expect("invariant 3: an unclean block exists")
}

/// Drops every other element; the first and the last stay.
pub(super) fn thin<T>(items: &mut Vec<T>) {
    let last = items.len() - 1;
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        index % 2 == 1 || index - 1 == last
    });
}

/// The part of a transfer that falls into one block.
struct Piece {
    block: usize,
    start: usize,
    buffer: std::ops::Range<usize>,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let (block, start) = locate(offset + done as u64);
        let end = len.min(done + BLOCK_LEN - start);
        let piece = Piece { block, start, buffer: done..end };
        done = end;
        Some(piece)
    })
}

#[expect(clippy::cast_possible_truncation, reason = "offsets are at most FILE_LEN_MAX or are not looked up")]
fn locate(offset: u64) -> (usize, usize) {
    let block_len = BLOCK_LEN as u64;
    ((offset / block_len) as usize, (offset % block_len) as usize)
}

fn block_count(len: u64) -> usize {
    let (blocks, rest) = locate(len);
    blocks + usize::from(rest > 0)
}
