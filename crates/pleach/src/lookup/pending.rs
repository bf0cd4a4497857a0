//! A point lookup that waits for a block and borrows nothing.

use std::sync::Arc;

use pleach_table::{BlockRef, Sst, ValueKind};
use smallvec::SmallVec;

use super::{Lookup, Supplied};
use crate::keys::{PARTITION_PREFIX_LEN, PartitionKey};
use crate::value::Value;
use crate::version::SstFile;

/// The rest of a lookup whose next block is not in the cache. It keeps the files that may hold the key, and nothing else of
/// the state it began with.
pub(crate) struct PendingLookup {
    key: PartitionKey,
    hash: u64,
    /// The files that the filters did not exclude, newest last.
    candidates: SmallVec<[Candidate; 1]>,
    is_counted: bool,
}

struct Candidate {
    file: Arc<SstFile>,
    /// Whether the SST holds partition keys.
    shared: bool,
}

impl Lookup<'_> {
    /// What is left of the lookup.
    pub(crate) fn into_pending(self) -> PendingLookup {
        self.note_negative_lookups(self.next);
        let rest = self.candidates[self.next as usize..].iter().rev();
        let candidates = rest
            .filter(|candidate| candidate.file.may_contain(self.hash))
            .map(|candidate| Candidate { file: Arc::clone(&candidate.file.file), shared: candidate.shared })
            .collect();
        PendingLookup { key: self.key, hash: self.hash, candidates, is_counted: self.is_counted }
    }
}

impl PendingLookup {
    /// The block that the lookup wants; `None` when the key has no value.
    pub(crate) fn wanted(&self) -> Option<(&Arc<Sst>, u32)> {
        let candidate = self.candidates.last()?;
        let sst = candidate.file.sst();
        Some((sst, sst.block_for(self.stored_key(candidate))))
    }

    fn stored_key(&self, candidate: &Candidate) -> &[u8] {
        if candidate.shared { &self.key } else { &self.key[PARTITION_PREFIX_LEN..] }
    }

    /// Searches the block that the lookup wanted.
    ///
    /// Requires: it wanted one.
    pub(crate) fn supply(&mut self, block: BlockRef) -> Supplied {
        let candidate = self.candidates.pop().expect("the lookup wanted a block");
        match candidate.file.sst().get_in_block(&block, self.stored_key(&candidate), self.hash) {
            None => {
                if self.is_counted {
                    candidate.file.note_negative_lookup();
                }
                Supplied::NotFound
            }
            Some((ValueKind::Tombstone, _)) => Supplied::Found(None),
            Some((_, range)) => Supplied::Found(Some(Value::in_block(block, range))),
        }
    }
}
