//! The reserve: a file that only takes space, to be released when the disk is full.
//!
//! An open needs space for a manifest, a `CURRENT` and the log's tail before it can free any; an edit that drops a partition
//! needs space too. If the disk has none, they remove the reserve and try again. The next open that finds plenty of space
//! makes the reserve again.
//!
//! # On disk
//! `RESERVE`, docs/format/directory.md: its bytes mean nothing, and it may be absent or short.

use std::path::Path;

use pleach_env::{Env, OpenOptions};

use super::VersionSet;
use crate::options::Options;

/// Name of the reserve.
pub(crate) const RESERVE: &str = "RESERVE";

/// Largest tail of the log that a close leaves to the next open, which writes it again (see `FLUSHED_AT_CLOSE_MIN`).
pub(crate) const TAIL_BYTES_MAX: usize = 1 << 20;

/// For a manifest's reserved space, `CURRENT.tmp`, and what a log segment reserves beyond its records.
const SMALL_FILES_BYTES: u64 = 128 << 10;

/// Length of the reserve of a store whose manifest begins with an edit of `first_edit_bytes`.
fn reserve_len(options: &Options, first_edit_bytes: u64) -> u64 {
    options.memtable_budget().min(TAIL_BYTES_MAX) as u64 + 2 * first_edit_bytes + SMALL_FILES_BYTES
}

/// Releases the reserve's space; returns whether there was any.
pub(crate) fn release(env: &dyn Env, dir: &Path) -> bool {
    env.remove_file(&dir.join(RESERVE)).is_ok()
}

impl VersionSet {
    /// Releases the reserve's space; returns whether there was any.
    pub(crate) fn release_reserve(&self) -> bool {
        release(&*self.ctx.env, &self.ctx.dir)
    }

    /// Makes the reserve, or makes it longer, if there is plenty of space. Best effort: it matters only on a full disk.
    pub(crate) fn refill_reserve(&self) {
        let path = self.ctx.dir.join(RESERVE);
        let len = reserve_len(&self.ctx.options, self.lock().manifest.first_len());
        let found = self.ctx.env.metadata(&path);
        if !found.as_ref().is_ok_and(|m| m.is_none_or(|m| m.is_file && m.len < len))
            || self.ctx.is_space_short(len)
        {
            return;
        }
        let file = if matches!(found, Ok(Some(_))) {
            self.ctx.env.open_file(&path, OpenOptions { write: true, ..OpenOptions::default() })
        } else {
            self.ctx.env.create_file(&path)
        };
        let _done_without = file.and_then(|file| file.allocate(len)).inspect_err(|_| {
            self.release_reserve();
        });
    }
}
