//! The block being filled: its entries and its length in either layout, entry by entry.

use pleach_coding::common_prefix_len;

use super::columns::Shape;
use super::rows;
use super::waiting::WaitingEntries;

/// The first entries of those that wait.
#[derive(Clone, Copy)]
pub(super) struct Fill {
    pub(super) entries: usize,
    prefix_len: usize,
    /// Their length in rows without a prefix.
    rows_len: usize,
    /// `None` if the block cannot be columnar.
    shape: Option<Shape>,
}

impl Fill {
    /// No entries. `shape` is `None` if the block must not be columnar.
    pub(super) fn empty(shape: Option<Shape>) -> Self {
        Self { entries: 0, prefix_len: 0, rows_len: 0, shape }
    }

    /// Adds the next entry. Returns the length of the block, header included.
    #[inline]
    pub(super) fn add_next(&mut self, waiting: &WaitingEntries) -> usize {
        let next = self.entries;
        let key = waiting.key(next);
        self.prefix_len = if next == 0 {
            key.len().min(rows::PREFIX_LEN_MAX)
        } else {
            let prefix = &waiting.key(0)[..self.prefix_len];
            if key.starts_with(prefix) { prefix.len() } else { common_prefix_len(prefix, key) }
        };
        self.entries += 1;
        self.rows_len += waiting.get(next).row_len();
        if let Some(shape) = &mut self.shape {
            // Columns have lengths of two bytes. A longer key is alone in its block, in a row.
            let apart = waiting.apart(next).filter(|_| key.len() <= rows::PREFIX_LEN_MAX);
            let fits =
                apart.is_some_and(|apart| shape.add(next, waiting.key(0), key, self.prefix_len, apart));
            if !fits {
                self.shape = None;
            }
        }
        self.len()
    }

    fn len_of_rows(&self) -> usize {
        rows::FIXED_LEN + self.prefix_len + self.rows_len - self.entries * self.prefix_len
    }

    /// The block's length in columns, if it is to be columnar.
    #[inline]
    fn len_of_columns(&self) -> Option<usize> {
        let shape = self.shape.as_ref()?;
        let len = shape.block_len(self.entries, self.prefix_len)?;
        shape.is_better(len, self.len_of_rows()).then_some(len)
    }

    /// Length of the block in its layout, header included.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len_of_columns().unwrap_or_else(|| self.len_of_rows())
    }

    /// Its shape in columns, if it is to be columnar.
    pub(super) fn columns(&self) -> Option<Shape> {
        self.shape.filter(|_| self.len_of_columns().is_some())
    }
}
