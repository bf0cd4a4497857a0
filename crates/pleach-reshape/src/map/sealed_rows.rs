//! The rows of the moment at which a checkpoint sealed the layers. They say which runs have no rows any more.

use std::ops::Range;

use pleach::Result;

use crate::ids::{Id, Layout};
use crate::named::store_error;
use crate::store::RowSnapshot;

/// See the module's text.
pub(crate) struct SealedRows<'s> {
    snapshot: Box<dyn RowSnapshot + 's>,
    layout: Layout,
    /// Ids that were found to have no rows. Stores may step over removed rows one by one, so none is looked for twice.
    empty: Range<u64>,
}

impl<'s> SealedRows<'s> {
    pub(crate) fn new(snapshot: Box<dyn RowSnapshot + 's>, layout: Layout) -> Self {
        Self { snapshot, layout, empty: 0..0 }
    }

    /// Whether some ids in a row, of one stripe, have a row.
    pub(super) fn has_rows(&mut self, first: Id, count: u64) -> Result<bool> {
        let end = first.0 + count;
        let is_known = self.empty.contains(&first.0);
        let start = if is_known { self.empty.end } else { first.0 };
        if start >= end {
            return Ok(false);
        }
        let start = Id(start);
        let (table, from, last) = self.layout.stripe_range(start.0 >> 63, start.stripe(), start.sequence());
        // Without a row the stripe is empty to its end.
        let mut next = start.0 + (last - from) + 1;
        let scanned = self.snapshot.scan(table, from, last, &mut |at, _| {
            next = start.0 + (at - from);
            false
        });
        scanned.map_err(|e| store_error("read rows", &e))?;
        self.empty = if is_known { self.empty.start } else { first.0 }..next;
        Ok(next < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Stripes;
    use crate::store::model::ModelStore;
    use crate::store::{Change, Durability, RowStore};

    #[test]
    fn ids_without_rows_are_found_and_looked_for_once() {
        for stripes in [Stripes::One, Stripes::Ranges(2), Stripes::Tables(2)] {
            let (store, layout) = (ModelStore::new(false), Layout::new(stripes, 10));
            layout.tables(1).into_iter().for_each(|table| store.create_table(table).unwrap());
            let id = |sequence| Id::new(1, 1, sequence);
            let there = [5, 300, 301, 1023].map(|sequence| layout.place(id(sequence)));
            let changes = there.map(|place| Change::Put { place, row: b"row" });
            store.commit(&changes, Durability::Buffered).unwrap();
            let mut rows = SealedRows::new(store.snapshot().unwrap(), layout);
            let mut has = |first, count| rows.has_rows(id(first), count).unwrap();
            assert!(has(1, 64) && has(5, 1) && !has(6, 1) && !has(1, 4));
            let before = store.scans();
            assert!(!has(2, 3));
            assert!(!has(6, 64));
            assert!(!has(70, 200) && !has(299, 1));
            assert_eq!(store.scans() - before, 1);
            assert!(has(299, 2) && has(200, 800) && has(1000, 24) && !has(1000, 23));
        }
    }
}
