//! The block being filled: its entries and its length in either layout, entry by entry.
//!
//! # Invariants
//! 1. *Never too small*: a block of the same entries, or of the first ones of them, is at most as long as the layout's length
//!    says. Checked by the packer's assertion.

use pleach_coding::common_prefix_len;

use super::columns::{self, Keys, Pointers};
use super::rows;
use super::waiting::WaitingEntries;

/// How a block's entries are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Rows,
    Columns,
}

/// The first entries of those that wait.
#[derive(Clone, Copy)]
pub(super) struct Fill {
    pub(super) entries: usize,
    keys: Keys,
    /// Their length in rows without a prefix.
    rows_len: usize,
    /// Of their pointers; `None` if the block cannot be columnar.
    pointers: Option<Pointers>,
}

impl Fill {
    /// No entries. `pointers` is `None` if the block must not be columnar.
    pub(super) fn empty(pointers: Option<Pointers>) -> Self {
        Self { entries: 0, keys: Keys::default(), rows_len: 0, pointers }
    }

    /// With the next entry.
    #[inline]
    pub(super) fn with_next(&self, waiting: &WaitingEntries) -> Self {
        let next = self.entries;
        let key = waiting.key(next);
        let prefix_len = if next == 0 {
            key.len().min(rows::PREFIX_LEN_MAX)
        } else {
            let prefix = &waiting.key(0)[..self.keys.prefix_len];
            if key.starts_with(prefix) { prefix.len() } else { common_prefix_len(prefix, key) }
        };
        let pointers = self.pointers.and_then(|pointers| pointers.with(waiting.apart(next)?, next));
        let rows_len = self.rows_len + waiting.get(next).row_len();
        Self { entries: next + 1, keys: self.keys.with(key.len(), prefix_len), rows_len, pointers }
    }

    /// Length of the block, header included, and the layout in which it has it.
    #[inline]
    pub(super) fn len(&self) -> (usize, Form) {
        let prefix_len = self.keys.prefix_len;
        let rows_len = rows::FIXED_LEN + prefix_len + self.rows_len - self.entries * prefix_len;
        match self.pointers {
            Some(pointers) if pointers.exist() => {
                let columns_len = columns::block_len(self.entries, &self.keys, &pointers);
                if columns_len < rows_len { (columns_len, Form::Columns) } else { (rows_len, Form::Rows) }
            }
            _ => (rows_len, Form::Rows),
        }
    }
}
