//! Reach: how far salvage reads at once in a file with bytes that cannot be read.
//!
//! A read fails as a whole if one page of it fails. Salvage then halves the read until it ends before that page, so that it
//! loses the page and not the window. Recovery does not: for it, bytes that cannot be read are an error.
//!
//! # Cost
//! A lone page costs about eight reads that fail, and four short ones behind it. Of many pages in a row, each further one costs
//! one read.

use super::reader::WINDOW_LEN;

/// What a read loses at least if it fails: a page, as the system reads files in pages.
pub(super) const UNREADABLE_LEN: u64 = 4096;

pub(super) struct Reach {
    /// Length of the next read, if it begins behind all that failed. A page behind a page that failed, and then four times as
    /// much after each read.
    len: u64,
    /// A read up to here has failed.
    fails_to: u64,
}

impl Reach {
    pub(super) const WHOLE: Self = Self { len: WINDOW_LEN as u64, fails_to: 0 };

    /// Where a read from `offset` is to end: at `longest` at most, at `shortest` at least.
    pub(super) fn end(&self, offset: u64, shortest: u64, longest: u64) -> u64 {
        let end = if offset < self.fails_to { middle(offset, self.fails_to) } else { offset + self.len };
        end.clamp(shortest, longest)
    }

    /// The read from `offset` has succeeded.
    pub(super) fn note_read(&mut self, offset: u64) {
        if offset >= self.fails_to {
            self.len = (4 * self.len).min(WINDOW_LEN as u64);
        }
    }

    /// The read from `offset` to `end` has failed. Returns the end of a shorter one, unless `shortest` is the end of this.
    pub(super) fn note_failed(&mut self, offset: u64, shortest: u64, end: u64) -> Option<u64> {
        self.fails_to = end;
        if end <= shortest {
            self.len = UNREADABLE_LEN;
            return None;
        }
        Some(middle(offset, end).max(shortest))
    }
}

/// The end of the page that holds the byte before `offset`.
pub(super) fn page_end(offset: u64) -> u64 {
    offset.next_multiple_of(UNREADABLE_LEN)
}

/// The start of the page in the middle between the two.
fn middle(offset: u64, end: u64) -> u64 {
    let middle = offset.midpoint(end);
    middle - middle % UNREADABLE_LEN
}
