//! Exact seeks: a seek to a key that is there reads no more than a lookup of the key.
//!
//! A seek has to position every source. But if a source holds the key itself, and no newer source does, its entry is the answer.
//! An exact seek goes through the sources as a lookup does, newest first, and seeks only in those whose filter does not exclude
//! the key. It stops at the first that holds it; the other sources are sought when the merge is to move. If no source holds the
//! key, it seeks all of them.
//!
//! # Cost
//! One source sought, one filter asked for each newer run. If the key is not there, or the merge moves: the filters in addition
//! to a usual seek, and a second wait for the device if the blocks are not in memory. So it is for seeks behind which nothing is
//! expected to move.

use pleach_env::Result;
use pleach_table::ValueKind;

use super::{Direction, Merge, Noted, OrderedSource, Pending, SeekTo};
use crate::context::Context;
use crate::scan::seek_reads::{finish_seek, finish_seeks, take_cached};

impl Merge {
    /// Seeks `key`, whose hash is `hash`. Afterwards the merge stands on the first entry at or above it, and never waits: this
    /// thread reads what is not in memory. The entry can be read; before a move, [`Merge::seek_rest`] must be called.
    ///
    /// Requires: the merge goes up. After an error it must not be used.
    pub(crate) fn seek_exact(&mut self, ctx: &Context, key: &[u8], hash: u64) -> Result<()> {
        if let Noted::Moves(moves) = &mut self.noted {
            moves.note_seek();
        }
        self.order.clear();
        self.unsought.clear();
        self.pending = Pending::Nothing;
        self.sources.iter().for_each(|source| source.prefetch_filter(key, hash));
        for at in 0..self.sources.len() {
            let source = &mut self.sources[at];
            if !source.may_hold(key, hash) {
                self.unsought.push(at);
                continue;
            }
            source.begin_seek(SeekTo::Key(key), Direction::Up);
            finish_seek(ctx, source)?;
            if source.key() == Some(key) {
                let is_live = source.kind() != ValueKind::Tombstone;
                self.unsought.extend(at + 1..self.sources.len());
                if !is_live {
                    // It hides those of older sources, and the merge will pass it.
                    break;
                }
                let source = u32::try_from(at).expect("a merge has few sources");
                self.order.push(OrderedSource { head: 0, source });
                return Ok(());
            }
        }
        self.seek_in_unsought(ctx, key)
    }

    /// Seeks in the sources that an exact seek has left out, and orders all. The merge stands on the same entry afterwards.
    pub(crate) fn seek_rest(&mut self, ctx: &Context) -> Result<()> {
        match self.current().and_then(|source| source.key()) {
            Some(key) if self.order.len() == 1 => {
                let key = key.to_vec();
                self.seek_in_unsought(ctx, &key)
            }
            _ => Ok(()),
        }
    }

    fn seek_in_unsought(&mut self, ctx: &Context, key: &[u8]) -> Result<()> {
        for at in self.unsought.drain(..) {
            self.sources[at].begin_seek(SeekTo::Key(key), Direction::Up);
        }
        if let Some(first) = take_cached(&mut self.sources)? {
            finish_seeks(ctx, &mut self.sources, first)?;
        }
        self.sort_all();
        Ok(())
    }
}
