//! The check of a whole SST: every block, the index, the filter, the properties.

use std::sync::Arc;

use pleach_env::{Error, Result};

use super::cursor::{CursorMode, SstCursor};
use super::reader::Sst;
use crate::properties::Properties;
use crate::summary::SstSummary;

impl Sst {
    /// Reads every block from the file, without the caches. Checks checksums, order and counts, and that index, filter and
    /// tags find every key. `hash_of` gives the hash with which a key was added.
    pub fn verify(self: &Arc<Self>, hash_of: impl Fn(&[u8]) -> u64) -> Result<()> {
        self.file.forget(0, self.summary.file_len);
        let filter = self.load_filter()?;
        let mut cursor = SstCursor::new(self.clone(), CursorMode::Streaming { forget: true });
        let mut found = Properties { filter_bits: self.summary.filter_bits, ..Properties::default() };
        cursor.seek_first()?;
        while cursor.valid() {
            let key = cursor.key();
            let (offset, _) = self.block_extent(cursor.block());
            let wrong = |message: &str| Err(Error::corruption(&self.path, offset, message));
            if found.entries > 0 && found.largest.as_slice() >= key {
                return wrong("expected keys in ascending order");
            }
            let hash = hash_of(key);
            if self.index.find(key) != cursor.block() {
                return wrong("expected an index that finds the block of each of its keys");
            }
            if filter.as_ref().is_some_and(|filter| !filter.may_contain(hash)) {
                return wrong("expected a filter that contains every key");
            }
            if !cursor.is_found(hash) {
                return wrong("expected a block in which a lookup finds each of its keys");
            }
            found.count(key, cursor.kind(), cursor.value().len());
            cursor.next()?;
        }
        let SstSummary { file_len, tail_len, footer_crc, data_blocks, .. } = self.summary;
        if found.into_summary(file_len, tail_len, footer_crc, data_blocks) != self.summary {
            let message = "expected properties that match the entries";
            return Err(Error::corruption(&self.path, self.data_end(), message));
        }
        Ok(())
    }
}
