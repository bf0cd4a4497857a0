//! Packer of data blocks: decides where to cut, and encodes a block's payload.
//!
//! Entries wait in the packer until a block is cut. In an uncompressed SST a block takes whole pages, so a cut leaves a gap at
//! its end. If the gap in one page is at most an eighth, the block has one page. Otherwise the packer tries two, three and
//! four pages. If every gap is above an eighth, it takes the cut with the smallest share of gap, and the entries beyond it
//! wait for the next block.
//!
//! If the SST is to have a learned index, a cut may move to an earlier entry ([`BlockPacker::advised`]).
//!
//! # On disk
//! Layout: docs/format/sst.md, data block.

use pleach_coding::{common_prefix_len, put_varint, varint_len};
use pleach_index::{Cuts, GIVEN_UP_MAX};
use smallvec::SmallVec;

use crate::hash::tag_of;
use crate::sizes::{BLOCK_LEN_MAX, HEADER_LEN, PAGE};
use crate::value_kind::ValueKind;

/// How blocks are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// At whole pages, with the gap as padding.
    Paged,
    /// When they would exceed this length, header included; no padding.
    UpTo(usize),
}

/// A block to write: the number of waiting entries in it, and the length to which it is padded (0: not padded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) entries: usize,
    pub(crate) padded_len: usize,
}

/// Bytes of a block besides its prefix and entries.
const FIXED_LEN: usize = HEADER_LEN + 2;
/// A gap of at most one part in this many closes a block.
const GAP_SHARE: usize = 8;
/// Longest prefix: its length has 16 bits.
const PREFIX_LEN_MAX: usize = u16::MAX as usize;

/// A waiting entry.
#[derive(Clone, Copy)]
struct Waiting {
    /// Where its key begins in `bytes`; its value follows.
    start: usize,
    key_len: u32,
    value_len: u32,
    kind: ValueKind,
    tag: u8,
}

impl Waiting {
    fn new(start: usize, key: &[u8], kind: ValueKind, value_len: usize, hash: u64) -> Self {
        let key_len = u32::try_from(key.len()).expect("checked by the SST builder");
        let value_len = u32::try_from(value_len).expect("checked by the SST builder");
        Self { start, key_len, value_len, kind, tag: tag_of(hash) }
    }

    fn value_word(self) -> u32 {
        self.value_len << 2 | u32::from(self.kind.number())
    }

    /// Its length in a block without a prefix, tag and offset included. In a block with a prefix it is at most this minus the
    /// prefix's length.
    fn len(self) -> usize {
        let lengths = varint_len(self.key_len.into()) + varint_len(self.value_word().into());
        3 + lengths + self.key_len as usize + self.value_len as usize
    }
}

/// The packer. Grammar: `new (push (next_cut encode drain)*)* (last_cut encode drain)`.
pub(crate) struct BlockPacker {
    packing: Packing,
    cuts: Cuts,
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
    fill: Fill,
}

/// The block being filled.
#[derive(Clone, Copy)]
struct Fill {
    /// How many of the waiting entries are in it.
    entries: usize,
    /// Their length without a prefix.
    len: usize,
    prefix_len: usize,
    /// The size it may grow to.
    limit: usize,
    best: Option<Cut>,
    best_gap: usize,
}

impl Fill {
    fn empty(packing: Packing) -> Self {
        let limit = match packing {
            Packing::Paged => PAGE,
            Packing::UpTo(len) => len,
        };
        Self { entries: 0, len: 0, prefix_len: 0, limit, best: None, best_gap: 0 }
    }

    fn block_len(&self) -> usize {
        FIXED_LEN + self.prefix_len + self.len - self.entries * self.prefix_len
    }
}

impl BlockPacker {
    pub(crate) fn new(packing: Packing) -> Self {
        Self {
            packing,
            cuts: Cuts::default(),
            bytes: Vec::new(),
            waiting: Vec::new(),
            fill: Fill::empty(packing),
        }
    }

    /// Adds an entry above all others.
    pub(crate) fn push(&mut self, key: &[u8], kind: ValueKind, value: &[u8], hash: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.waiting.push(Waiting::new(start, key, kind, value.len(), hash));
    }

    /// Bytes of entries that wait.
    pub(crate) fn waiting_len(&self) -> usize {
        self.bytes.len() + 5 * self.waiting.len()
    }

    /// Key of waiting entry `i`.
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let entry = self.waiting[i];
        &self.bytes[entry.start..][..entry.key_len as usize]
    }

    fn value(&self, i: usize) -> &[u8] {
        let entry = self.waiting[i];
        &self.bytes[entry.start + entry.key_len as usize..][..entry.value_len as usize]
    }

    /// The next full block, if there is one.
    pub(crate) fn next_cut(&mut self) -> Option<Cut> {
        while self.fill.entries < self.waiting.len() {
            let grown = self.with_next();
            if grown.block_len() <= self.fill.limit {
                self.fill = grown;
            } else if self.fill.entries == 0 {
                let padded_len = self.padded(grown.block_len());
                if padded_len == 0 || padded_len > BLOCK_LEN_MAX {
                    return Some(Cut { entries: 1, padded_len });
                }
                self.fill.limit = padded_len;
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
            given_up += self.waiting[least - 1].len() - prefix_len;
            if given_up > GIVEN_UP_MAX {
                break;
            }
            least -= 1;
        }
        if least == full.entries || full.entries == self.waiting.len() {
            return full;
        }
        let Self { cuts, waiting, bytes, .. } = self;
        let key = |entry: &Waiting| &bytes[entry.start..][..entry.key_len as usize];
        let keys: SmallVec<[&[u8]; 16]> = waiting[least - 1..=full.entries].iter().map(key).collect();
        Cut { entries: cuts.advise(least, &keys), ..full }
    }

    /// All waiting entries, as one block.
    pub(crate) fn last_cut(&mut self) -> Option<Cut> {
        let entries = self.fill.entries;
        (entries > 0).then(|| Cut { entries, padded_len: self.padded(self.fill.block_len()) })
    }

    fn padded(&self, len: usize) -> usize {
        match self.packing {
            Packing::Paged => len.next_multiple_of(PAGE),
            Packing::UpTo(_) => 0,
        }
    }

    /// The block being filled, with the next entry.
    fn with_next(&self) -> Fill {
        let next = self.fill.entries;
        let key = self.key(next);
        let prefix_len = if next == 0 {
            key.len().min(PREFIX_LEN_MAX)
        } else {
            let prefix = &self.key(0)[..self.fill.prefix_len];
            if key.starts_with(prefix) { prefix.len() } else { common_prefix_len(prefix, key) }
        };
        Fill { entries: next + 1, len: self.fill.len + self.waiting[next].len(), prefix_len, ..self.fill }
    }

    /// The next entry does not fit below the limit: cut here, or raise the limit.
    fn cut_or_grow(&mut self) -> Option<Cut> {
        let (len, limit) = (self.fill.block_len(), self.fill.limit);
        if self.packing != Packing::Paged {
            return Some(Cut { entries: self.fill.entries, padded_len: 0 });
        }
        let (cut, gap) = (Cut { entries: self.fill.entries, padded_len: limit }, limit - len);
        let better = self.fill.best.is_none_or(|best| gap * best.padded_len < self.fill.best_gap * limit);
        if better {
            (self.fill.best, self.fill.best_gap) = (Some(cut), gap);
        }
        if gap * GAP_SHARE <= limit || limit == BLOCK_LEN_MAX {
            return self.fill.best;
        }
        self.fill.limit += PAGE;
        None
    }

    /// Appends the payload of a block of the first `entries`.
    pub(crate) fn encode(&self, entries: usize, out: &mut Vec<u8>) {
        let last_key = self.key(entries - 1);
        let prefix_len = common_prefix_len(self.key(0), last_key).min(PREFIX_LEN_MAX);
        out.extend_from_slice(&u16::try_from(prefix_len).expect("at most PREFIX_LEN_MAX").to_le_bytes());
        out.extend_from_slice(&last_key[..prefix_len]);
        out.extend(self.waiting[..entries].iter().map(|entry| entry.tag));
        let offsets_at = out.len();
        out.resize(offsets_at + 2 * entries, 0);
        let entries_at = out.len();
        for i in 0..entries {
            let offset = u16::try_from(out.len() - entries_at).expect("only the first entry may be long");
            out[offsets_at + 2 * i..][..2].copy_from_slice(&offset.to_le_bytes());
            let suffix = &self.key(i)[prefix_len..];
            put_varint(out, suffix.len() as u64);
            put_varint(out, self.waiting[i].value_word().into());
            out.extend_from_slice(suffix);
            out.extend_from_slice(self.value(i));
        }
    }

    /// Drops the first `entries`, which were written.
    pub(crate) fn drain(&mut self, entries: usize) {
        self.cuts.end_block(entries);
        self.fill = Fill::empty(self.packing);
        match self.waiting.get(entries) {
            None => {
                self.waiting.clear();
                self.bytes.clear();
                self.bytes.shrink_to(16 * BLOCK_LEN_MAX);
            }
            Some(next) => {
                let start = next.start;
                self.bytes.drain(..start);
                self.waiting.drain(..entries);
                self.waiting.iter_mut().for_each(|entry| entry.start -= start);
            }
        }
    }
}

/// Appends the payload of a block of one entry, without the value, which follows it.
///
/// Guarantees: the same bytes as [`BlockPacker::encode`] for a single entry.
pub(crate) fn encode_alone(key: &[u8], kind: ValueKind, value_len: usize, hash: u64, out: &mut Vec<u8>) {
    let entry = Waiting::new(0, key, kind, value_len, hash);
    let (prefix, suffix) = key.split_at(key.len().min(PREFIX_LEN_MAX));
    out.extend_from_slice(&u16::try_from(prefix.len()).expect("at most PREFIX_LEN_MAX").to_le_bytes());
    out.extend_from_slice(prefix);
    out.push(entry.tag);
    out.extend_from_slice(&[0, 0]); // Its offset.
    put_varint(out, suffix.len() as u64);
    put_varint(out, entry.value_word().into());
    out.extend_from_slice(suffix);
}
