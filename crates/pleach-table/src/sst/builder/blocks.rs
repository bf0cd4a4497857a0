//! Where the data blocks written so far begin, and what separates their keys.

use std::num::TryFromIntError;

use pleach_index::IndexBuilder;

/// The facts about the data blocks that the tail will hold.
pub(super) struct Blocks {
    pub(super) index: IndexBuilder,
    /// Start of every block.
    pub(super) starts: Vec<u32>,
    /// Last key of the last block.
    end_key: Vec<u8>,
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self { index: IndexBuilder::new(), starts: Vec::new(), end_key: Vec::new() }
    }

    /// Takes note of the next block, at `offset`; an error where an SST cannot have one.
    pub(super) fn begin(&mut self, offset: u64, first: &[u8], last: &[u8]) -> Result<(), TryFromIntError> {
        if !self.starts.is_empty() {
            self.index.boundary(&self.end_key, first);
        }
        self.starts.push(u32::try_from(offset)?);
        self.end_key.clear();
        self.end_key.extend_from_slice(last);
        Ok(())
    }

    /// About what they take in the tail, with one block more.
    pub(super) fn encoded_len_max(&self) -> usize {
        // What separates the next block from the last one is at most a byte longer than that one's last key; its end and
        // the block's start take seven more.
        self.index.encoded_len_max() + 4 * self.starts.len() + self.end_key.len() + 8
    }
}
