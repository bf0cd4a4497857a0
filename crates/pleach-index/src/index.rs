//! The index of an SST: one of several kinds behind one question.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block. The first byte is the kind; the rest belongs to the kind's module.

use crate::separators::{Separators, SeparatorsBuilder};
use pleach_coding::Malformed;

/// Number of the kind on disk. Never renumber.
const KIND_SEPARATORS: u8 = 1;

/// Answers which block can hold a key.
#[derive(Clone, Debug)]
pub enum Index {
    /// Shortest strings between neighbouring blocks.
    Separators(Separators),
}

impl Index {
    /// Number of the block that can hold `key`: the last one that does not begin above it, or 0.
    ///
    /// Guarantees: less than [`Index::blocks`], whatever the key.
    #[inline]
    pub fn find(&self, key: &[u8]) -> u32 {
        match self {
            Index::Separators(separators) => separators.find(key),
        }
    }

    /// Number of blocks indexed; at least 1.
    pub fn blocks(&self) -> u32 {
        match self {
            Index::Separators(separators) => separators.blocks(),
        }
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        match self {
            Index::Separators(separators) => separators.memory(),
        }
    }

    /// Appends the index's stored form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Index::Separators(separators) => {
                out.push(KIND_SEPARATORS);
                separators.encode(out);
            }
        }
    }

    /// The index stored in `bytes`, all of them, for an SST of `blocks` data blocks.
    ///
    /// Hostile bytes are told from good ones before memory is taken in proportion to what they claim.
    pub fn decode(bytes: &[u8], blocks: u32) -> Result<Self, Malformed> {
        match bytes.split_first() {
            Some((&KIND_SEPARATORS, rest)) => Separators::decode(rest, blocks)
                .map(Index::Separators)
                .map_err(|m| Malformed::new(m.offset + 1, m.expected)),
            _ => Err(Malformed::new(0, "an index kind this build knows")),
        }
    }
}

/// Collects what an index needs while an SST is written.
///
/// Grammar: `new (boundary)* finish`.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    separators: SeparatorsBuilder,
}

impl IndexBuilder {
    /// A builder that has seen no boundary.
    pub fn new() -> Self {
        Self::default()
    }

    /// Between two neighbouring blocks: the last key of one, the first of the next.
    ///
    /// Requires: `last < first`, and calls come in key order.
    pub fn boundary(&mut self, last: &[u8], first: &[u8]) {
        self.separators.boundary(last, first);
    }

    /// Upper bound of the stored length if the index were finished now.
    pub fn encoded_len_max(&self) -> usize {
        1 + self.separators.encoded_len_max()
    }

    /// The index.
    pub fn finish(self) -> Index {
        Index::Separators(self.separators.finish())
    }
}
