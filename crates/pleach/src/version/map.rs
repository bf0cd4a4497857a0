//! Partitions by number: a vector in shared pages, so that an edit copies one page and not the whole map.

use std::sync::Arc;

use super::PartitionState;
use crate::keys::PartitionId;

/// Partitions in a page: an edit copies this many pointers for each partition it touches.
const PAGE: usize = 64;

type Page = [Option<Arc<PartitionState>>; PAGE];

/// The map. Cloning it shares the pages.
#[derive(Clone, Default)]
pub(super) struct PartitionMap {
    pages: Arc<Vec<Option<Arc<Page>>>>,
}

impl PartitionMap {
    #[inline]
    pub(super) fn get(&self, id: PartitionId) -> Option<&PartitionState> {
        let (page, slot) = place(id);
        self.pages.get(page)?.as_ref()?[slot].as_deref()
    }

    pub(super) fn set(&mut self, id: PartitionId, state: Option<PartitionState>) {
        let (page, slot) = place(id);
        let pages = Arc::make_mut(&mut self.pages);
        if pages.len() <= page {
            pages.resize(page + 1, None);
        }
        let page = pages[page].get_or_insert_with(|| Arc::new([const { None }; PAGE]));
        Arc::make_mut(page)[slot] = state.map(Arc::new);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PartitionId, &PartitionState)> {
        self.pages.iter().enumerate().flat_map(|(page, slots)| {
            slots.iter().flat_map(|s| s.iter()).enumerate().filter_map(move |(slot, state)| {
                let id = u32::try_from(page * PAGE + slot).ok()?;
                Some((PartitionId(id), state.as_deref()?))
            })
        })
    }
}

fn place(id: PartitionId) -> (usize, usize) {
    (id.0 as usize / PAGE, id.0 as usize % PAGE)
}
