//! Claim: a thread's promise to read a block, which others may come to wait for.

use pleach_env::{Error, ErrorKind, Result};
use pleach_table::BlockRef;

use super::{BlockKey, InFlight, Table};

/// A block that the calling thread reads. A drop without [`Claim::end`] is a panic's: those that wait get an error.
pub(crate) struct Claim<'l> {
    table: &'l Table,
    key: BlockKey,
    is_ended: bool,
}

impl<'l> Claim<'l> {
    /// Requires: the block's entry says [`InFlight::Claimed`].
    pub(super) fn new(table: &'l Table, key: BlockKey) -> Self {
        Self { table, key, is_ended: false }
    }

    /// Gives those that wait for the block what was read.
    pub(crate) fn end(mut self, loaded: &Result<BlockRef>) {
        self.finish(loaded);
    }

    fn finish(&mut self, loaded: &Result<BlockRef>) {
        self.is_ended = true;
        let mut part = self.table.part(self.key).lock();
        let waiting = match part.get_mut(&self.key) {
            Some(InFlight::Load { load, claimed }) => {
                *claimed = false;
                load.upgrade()
            }
            _ => None,
        };
        // Otherwise the load removes the entry when it is dropped.
        if waiting.is_none() {
            part.remove(&self.key);
        }
        drop(part);
        if let Some(load) = waiting {
            load.end(loaded.clone());
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            let message = "the thread that was to read the block for others has panicked";
            self.finish(&Err(Error::new(ErrorKind::Io, message)));
        }
    }
}
