//! Packer of data blocks: decides where to cut and which layout a block gets.
//!
//! Entries wait in the packer until a block is cut. A block takes whole pages, in the file or, if it is stored compressed, in
//! the cache. So a cut leaves a gap at its end. If the gap in one page is at most an eighth, the block has one page. Otherwise
//! the packer tries two, three and four pages. If every gap is above an eighth, it takes the cut with the smallest share of gap,
//! and the entries beyond it wait for the next block.
//!
//! A block's length is that of its smaller layout. Columns are possible for value pointers, and for short values of one length.
//!
//! If the SST is to have a learned index, a cut may move to an earlier entry ([`BlockPacker::advised`]).
//!
//! # On disk
//! Layout: docs/format/sst.md, data block.

use pleach_coding::common_prefix_len;
use pleach_index::{Cuts, GIVEN_UP_MAX};
use smallvec::SmallVec;

use super::columns::{self, Shape};
use super::fill::Fill;
use super::header::BlockType;
use super::rows;
use super::waiting::WaitingEntries;
use crate::sizes::{BLOCK_LEN_MAX, PAGE};
use crate::value_kind::ValueKind;

/// How blocks are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// With the gap as padding.
    Padded,
    /// Without padding, because blocks will be compressed. Their first limit is this length.
    Unpadded(usize),
}

impl Packing {
    /// Blocks that will be compressed.
    pub(crate) const COMPRESSED: Self = Self::Unpadded(PAGE);

    /// The size that a block may grow to at first.
    fn limit(self) -> usize {
        match self {
            Packing::Padded => PAGE,
            Packing::Unpadded(len) => len,
        }
    }
}

/// A block to write: the number of waiting entries in it, the length to which it is padded (0: not padded), and its shape if it
/// is columnar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) entries: usize,
    pub(crate) padded_len: usize,
    columns: Option<Shape>,
}

/// The cut with the smallest share of gap so far: a gap of so many bytes in so many.
#[derive(Clone, Copy)]
struct BestCut {
    cut: Cut,
    gap: usize,
    limit: usize,
}

/// A gap of at most one part in this many closes a block.
const GAP_SHARE: usize = 8;

/// The packer. Grammar: `new (push (next_cut encode drain)*)* (last_cut encode drain)`.
pub(crate) struct BlockPacker {
    packing: Packing,
    cuts: Cuts,
    waiting: WaitingEntries,
    /// The block being filled.
    fill: Fill,
    /// The size that it may grow to.
    limit: usize,
    best: Option<BestCut>,
    /// Of the last columnar block, the mean distance of the offsets of neighbouring values. `None` if no block may be columnar.
    stride: Option<i64>,
}

impl BlockPacker {
    /// A packer without entries. `columns` says whether blocks may be columnar.
    pub(crate) fn new(packing: Packing, columns: bool) -> Self {
        let stride = columns.then_some(0);
        let waiting = WaitingEntries::new(columns);
        let fill = Fill::empty(stride.map(Shape::new));
        Self { packing, cuts: Cuts::default(), waiting, fill, limit: packing.limit(), best: None, stride }
    }

    /// Adds an entry above all others.
    pub(crate) fn push(&mut self, key: &[u8], kind: ValueKind, value: &[u8], hash: u64) {
        self.waiting.push(key, kind, value, hash);
    }

    /// Bytes of entries that wait.
    pub(crate) fn waiting_len(&self) -> usize {
        self.waiting.bytes_len()
    }

    /// Key of waiting entry `i`.
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        self.waiting.key(i)
    }

    /// The next full block, if there is one.
    pub(crate) fn next_cut(&mut self) -> Option<Cut> {
        while self.fill.entries < self.waiting.len() {
            let before = self.fill;
            let len = self.fill.add_next(&self.waiting);
            if len <= self.limit {
                continue;
            }
            let grown = std::mem::replace(&mut self.fill, before);
            if self.fill.entries == 0 {
                if len > BLOCK_LEN_MAX {
                    return Some(Cut { entries: 1, padded_len: self.padded(len), columns: grown.columns() });
                }
                self.limit = len.next_multiple_of(PAGE);
            } else if let Some(cut) = self.cut_or_grow() {
                return Some(cut);
            }
        }
        None
    }

    /// `full`, or a cut a few entries before it at which a model of the boundaries will be smaller.
    ///
    /// Requires: [`BlockPacker::next_cut`] has returned `full`.
    pub(crate) fn advised(&mut self, full: Cut) -> Cut {
        let prefix_len = common_prefix_len(self.key(0), self.key(full.entries - 1));
        let (mut least, mut given_up) = (full.entries, 0);
        while least > 1 {
            given_up += self.waiting.get(least - 1).row_len() - prefix_len;
            if given_up > GIVEN_UP_MAX {
                break;
            }
            least -= 1;
        }
        if least == full.entries || full.entries == self.waiting.len() {
            return full;
        }
        let keys: SmallVec<[&[u8]; 16]> = self.waiting.keys(least - 1..=full.entries).collect();
        Cut { entries: self.cuts.advise(least, &keys), ..full }
    }

    /// All waiting entries, as one block.
    pub(crate) fn last_cut(&mut self) -> Option<Cut> {
        let entries = self.fill.entries;
        (entries > 0).then(|| Cut {
            entries,
            padded_len: self.padded(self.fill.len()),
            columns: self.fill.columns(),
        })
    }

    fn padded(&self, len: usize) -> usize {
        match self.packing {
            Packing::Padded => len.next_multiple_of(PAGE),
            Packing::Unpadded(_) => 0,
        }
    }

    /// The next entry does not fit below the limit: cut here, or raise the limit.
    fn cut_or_grow(&mut self) -> Option<Cut> {
        let (len, limit) = (self.fill.len(), self.limit);
        let cut =
            Cut { entries: self.fill.entries, padded_len: self.padded(limit), columns: self.fill.columns() };
        let now = BestCut { cut, gap: limit - len, limit };
        let best = self.best.filter(|best| best.gap * limit <= now.gap * best.limit).unwrap_or(now);
        if now.gap * GAP_SHARE <= limit || limit >= BLOCK_LEN_MAX {
            return Some(best.cut);
        }
        self.best = Some(best);
        self.limit += PAGE;
        None
    }

    /// Appends the payload of the block, and returns its type.
    ///
    /// Requires: `cut` is the last one, or the same with fewer entries.
    pub(crate) fn encode(&mut self, cut: Cut, out: &mut Vec<u8>) -> BlockType {
        let Some(shape) = &cut.columns else {
            rows::encode(&self.waiting, cut.entries, out);
            return BlockType::Data;
        };
        self.stride = Some(shape.mean_stride());
        columns::encode(&self.waiting, cut.entries, shape, out)
    }

    /// Drops the first `entries`, which were written.
    pub(crate) fn drain(&mut self, entries: usize) {
        self.cuts.end_block(entries);
        self.waiting.drain(entries, 16 * BLOCK_LEN_MAX);
        self.fill = Fill::empty(self.stride.map(Shape::new));
        (self.limit, self.best) = (self.packing.limit(), None);
    }
}
