//! A data block of either layout, as readers see it.
//!
//! [`validate`] checks every length and offset once, when the block is admitted. Afterwards a [`DataBlock`] decodes only the
//! entries that it needs. A binary search can be done one comparison at a time, so that searches in several blocks wait for
//! memory together.

use std::ops::Range;

use pleach_coding::Malformed;
use pleach_env::memory::prefetch;

use super::columns::{self, ColumnBlock, ColumnLayout};
use super::header::{BlockType, Header};
use super::rows::{self, RowBlock, RowLayout};
use super::search::Search;
use crate::value_kind::ValueKind;
use crate::value_place::ValuePlace;

/// An entry's parts, as positions in the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: ValueKind,
    /// The key without the block's prefix.
    pub(crate) suffix: Suffix,
    pub(crate) value: ValuePlace,
}

/// A key without the block's prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Suffix {
    /// In the block.
    Block(Range<usize>),
    /// The first `len` of these bytes: it was packed.
    Unpacked { bytes: [u8; 16], len: usize },
}

impl Suffix {
    /// Its bytes; `block` is the entry's block.
    #[inline]
    pub(crate) fn bytes<'a>(&'a self, block: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Block(range) => &block[range.clone()],
            Self::Unpacked { bytes, len } => &bytes[..*len],
        }
    }
}

/// Where the parts of a data block begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Rows(RowLayout),
    Columns(ColumnLayout),
}

impl Layout {
    /// Of a block that has been validated.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if BlockType::is_columnar(bytes) {
            Self::Columns(ColumnLayout::of(bytes))
        } else {
            Self::Rows(RowLayout::of(bytes))
        }
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Rows(layout) => layout.count(),
            Self::Columns(layout) => layout.count(),
        }
    }
}

/// Checks all lengths and offsets of an uncompressed data block; `header` is its own, already checked.
pub(crate) fn validate(bytes: &[u8], header: &Header) -> Result<(), Malformed> {
    match header.block_type {
        BlockType::Columns | BlockType::PackedColumns => columns::validate(bytes, header),
        _ => rows::validate(bytes, header),
    }
}

/// A validated, uncompressed data block.
#[derive(Clone, Copy)]
pub(crate) enum DataBlock<'a> {
    Rows(RowBlock<'a>),
    Columns(ColumnBlock<'a>),
}

impl<'a> DataBlock<'a> {
    /// Requires: `bytes` have been validated.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self::with_layout(bytes, Layout::of(bytes))
    }

    /// As [`DataBlock::new`], with a layout decoded before.
    #[inline]
    pub(crate) fn with_layout(bytes: &'a [u8], layout: Layout) -> Self {
        match layout {
            Layout::Rows(layout) => Self::Rows(RowBlock { bytes, layout }),
            Layout::Columns(layout) => Self::Columns(ColumnBlock { bytes, layout }),
        }
    }

    #[inline]
    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Rows(block) => block.bytes,
            Self::Columns(block) => block.bytes,
        }
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Rows(block) => block.layout.count(),
            Self::Columns(block) => block.layout.count(),
        }
    }

    /// The common prefix of all keys.
    #[inline]
    pub(crate) fn prefix(self) -> &'a [u8] {
        match self {
            Self::Rows(block) => block.prefix(),
            Self::Columns(block) => block.prefix(),
        }
    }

    /// Entry `i` of [`DataBlock::count`].
    #[inline]
    pub(crate) fn entry(self, i: usize) -> Entry {
        match self {
            Self::Rows(block) => block.entry(i),
            Self::Columns(block) => block.entry(i),
        }
    }

    /// The entry behind entry `i`, which has its value at `value`. Prefetches what is `ahead` bytes behind it. Requires: there is
    /// one.
    #[inline]
    pub(crate) fn entry_behind(self, i: usize, value: &ValuePlace, ahead: usize) -> Entry {
        match (self, value) {
            (Self::Rows(block), ValuePlace::Block(value)) => {
                let entry = block.entry_behind(value.end);
                if let ValuePlace::Block(value) = &entry.value {
                    self.prefetch(value.end + ahead);
                }
                entry
            }
            _ => self.entry(i + 1),
        }
    }

    /// Kind and value of `key`, whose hash is `hash`.
    #[inline]
    pub(crate) fn find(self, key: &[u8], hash: u64) -> Option<(ValueKind, ValuePlace)> {
        match self {
            Self::Rows(block) => block.find(key, hash),
            Self::Columns(block) => block.find(key, hash),
        }
    }

    /// Whether a lookup of `key`, the key of entry `i`, finds that entry.
    pub(crate) fn finds(self, i: usize, key: &[u8], hash: u64) -> bool {
        match self {
            Self::Rows(block) => block.is_tagged(i, hash),
            Self::Columns(block) => block.rank(key, hash) == Some(i),
        }
    }

    /// Asks for what [`DataBlock::find`] reads first.
    #[inline]
    pub(crate) fn prefetch_first(self) {
        match self {
            Self::Rows(block) => self.prefetch(block.tags_at()),
            Self::Columns(block) => self.prefetch(block.first_place()),
        }
    }

    /// Prefetches the beginning of entry `i`.
    #[inline]
    pub(crate) fn prefetch_entry(self, i: usize) {
        match self {
            Self::Rows(block) => self.prefetch(block.entry_start(i)),
            Self::Columns(block) => self.prefetch(block.key_start(i)),
        }
    }

    #[inline]
    fn prefetch(self, at: usize) {
        prefetch(self.bytes().as_ptr().wrapping_add(at));
    }

    /// Number of entries whose keys are below `key`.
    #[cfg(test)]
    pub(crate) fn lower_bound(self, key: &[u8]) -> usize {
        let mut search = self.search(key);
        while !search.is_over() {
            self.narrow(&mut search, key);
        }
        search.answer()
    }

    /// Starts to count the entries whose keys are below `key`, and prefetches the first entry to compare.
    #[inline]
    pub(crate) fn search(self, key: &[u8]) -> Search {
        let prefix = self.prefix();
        if key.starts_with(prefix) {
            if let Self::Columns(block) = self
                && let Some(answer) = block.lower_bound(key)
            {
                return Search::ended(answer);
            }
            let search = Search::of(self.count());
            self.prefetch_middle(search);
            return search;
        }
        Search::ended(if key > prefix { self.count() } else { 0 })
    }

    /// One comparison of a search for `key` that is not over. Prefetches the next entry to compare.
    #[inline]
    pub(crate) fn narrow(self, search: &mut Search, key: &[u8]) {
        let middle = search.middle();
        search.narrow(match self {
            Self::Rows(block) => block.compare(middle, key),
            Self::Columns(block) => block.compare(middle, key),
        });
        self.prefetch_middle(*search);
    }

    #[inline]
    fn prefetch_middle(self, search: Search) {
        if !search.is_over() {
            self.prefetch_entry(search.middle());
        }
    }
}
