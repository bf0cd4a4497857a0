//! Boundaries of the data blocks written so far: where they start, and which keys lie around their boundaries.

use std::num::TryFromIntError;

use pleach_index::{IndexBuilder, IndexChoice};

/// Collects what the index block will hold.
pub(super) struct Boundaries {
    pub(super) index: IndexBuilder,
    /// Start of every block.
    pub(super) starts: Vec<u32>,
    /// Last key of the last block.
    end_key: Vec<u8>,
}

impl Boundaries {
    pub(super) fn new(choice: IndexChoice) -> Self {
        let index = match choice {
            IndexChoice::Separators => IndexBuilder::new(),
            IndexChoice::Smallest | IndexChoice::Learned => IndexBuilder::learning(),
        };
        Self { index, starts: Vec::new(), end_key: Vec::new() }
    }

    /// Adds the next block, at `offset`. An error if the offset is too large for an SST.
    pub(super) fn begin(&mut self, offset: u64, first: &[u8], last: &[u8]) -> Result<(), TryFromIntError> {
        if !self.starts.is_empty() {
            self.index.boundary(&self.end_key, first);
        }
        self.starts.push(u32::try_from(offset)?);
        self.end_key.clear();
        self.end_key.extend_from_slice(last);
        Ok(())
    }

    /// At most the length of the index block, with one more data block.
    pub(super) fn encoded_len_max(&self) -> usize {
        // The separator before the next block is at most a byte longer than the last key of the last block. Its end and the
        // block's start take seven more bytes.
        self.index.encoded_len_max() + 4 * self.starts.len() + self.end_key.len() + 8
    }
}
