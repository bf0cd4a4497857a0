//! Checking all of an SST against itself.

use std::sync::Arc;

use pleach_env::{Error, Result};

use super::cursor::{CursorMode, SstCursor};
use super::reader::Sst;
use crate::kind::ValueKind;

impl Sst {
    /// Reads every block from the file, past the caches, and checks checksums, order, counts, and that index, filter
    /// and tags find every key. `hash_of` gives a key's hash, the one it was added with.
    ///
    /// Used by scrubbing.
    pub fn verify(self: &Arc<Self>, hash_of: impl Fn(&[u8]) -> u64) -> Result<()> {
        let tail_at = self.data_end();
        self.file.forget(0, self.summary.file_len);
        let filter = self.load_filter()?;
        let mut cursor = SstCursor::new(self.clone(), CursorMode::Streaming { forget: true });
        let mut found = Counts::default();
        let mut previous: Option<Vec<u8>> = None;
        cursor.seek_first()?;
        while cursor.valid() {
            let key = cursor.key();
            let (offset, _) = self.block_extent(cursor.block());
            let wrong = |message: &str| Err(Error::corruption(&self.path, offset, message));
            match &mut previous {
                None if key != self.summary.smallest => return wrong("expected the smallest key first"),
                Some(previous) if previous.as_slice() >= key => {
                    return wrong("expected keys in ascending order");
                }
                Some(previous) => {
                    previous.clear();
                    previous.extend_from_slice(key);
                }
                None => previous = Some(key.to_vec()),
            }
            let hash = hash_of(key);
            if self.index.find(key) != cursor.block() {
                return wrong("expected an index that finds the block of each of its keys");
            }
            if filter.as_ref().is_some_and(|filter| !filter.may_contain(hash)) {
                return wrong("expected a filter that knows every key");
            }
            if !cursor.is_tagged(hash) {
                return wrong("expected every key's tag in its block");
            }
            found.count(&cursor);
            cursor.next()?;
        }
        if previous.unwrap_or_default() != self.summary.largest || found != Counts::of(self) {
            return Err(Error::corruption(&self.path, tail_at, "expected properties that match the entries"));
        }
        Ok(())
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    entries: u64,
    tombstones: u64,
    value_pointers: u64,
    raw_bytes: u64,
}

impl Counts {
    fn of(sst: &Sst) -> Self {
        let summary = sst.summary();
        Self {
            entries: summary.entries,
            tombstones: summary.tombstones,
            value_pointers: summary.value_pointers,
            raw_bytes: summary.raw_bytes,
        }
    }

    fn count(&mut self, cursor: &SstCursor) {
        self.entries += 1;
        self.tombstones += u64::from(cursor.kind() == ValueKind::Tombstone);
        self.value_pointers += u64::from(cursor.kind() == ValueKind::ValuePointer);
        self.raw_bytes += (cursor.key().len() + cursor.value().len()) as u64;
    }
}
