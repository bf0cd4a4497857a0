//! Read-ahead of mapped rows: the system is asked for the pages behind those that a scan visits.
//!
//! A store that is mapped for random reads reads one page for each fault, also in a scan. So a scan that goes from page to page
//! in the order of the file asks for the next ones before it needs them. Scans of a few pages never do.
//!
//! # Cost
//! A comparison for each row. A scan whose rows lie in no order asks for nothing.

#![expect(unsafe_code, reason = "advice about memory is unsafe in rustix")]

use rustix::mm::{Advice, madvise};

/// The system's pages, or a part of one: the unit in which this counts.
const PAGE: usize = 4096;
/// Pages from one row to the next that still count as order: pages of the tree's inner nodes are between those of rows, and
/// some pages are used again.
const NEAR: usize = 16;
/// Pages in order before the first request: more than a scan of 100 short rows visits.
const PAGES_BEFORE: usize = 8;
/// Pages of a request. A MiB takes a disk about as long as the rows of it take a scan.
const WINDOW: usize = 256;

/// What one scan has visited and asked for.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    page: usize,
    /// Pages in order so far.
    in_order: usize,
    /// The first page that was not asked for.
    end: usize,
}

impl ReadAhead {
    /// Takes note of a row that is visited.
    pub(super) fn visit(&mut self, row: &[u8]) {
        let page = row.as_ptr().addr() / PAGE;
        if page != self.page
            && let Some((first, count)) = self.turn_to(page, row.len() / PAGE)
        {
            let start = row.as_ptr().with_addr(first * PAGE).cast_mut().cast();
            // SAFETY: this advice changes no memory, whatever it is of. Beyond the map it is an error and changes nothing either.
            let _not_wanted = unsafe { madvise(start, count * PAGE, Advice::WillNeed) };
        }
    }

    /// The pages to ask for, if any, when a scan comes to a page with a row of so many pages.
    fn turn_to(&mut self, page: usize, row_pages: usize) -> Option<(usize, usize)> {
        let is_near = page.abs_diff(self.page) <= NEAR + row_pages;
        self.page = page;
        if !is_near {
            (self.in_order, self.end) = (0, 0);
        }
        self.in_order += 1;
        if self.in_order < PAGES_BEFORE || self.end > page + WINDOW / 2 {
            return None;
        }
        let first = self.end.max(page + 1);
        self.end = first + WINDOW;
        Some((first, WINDOW))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pages: impl IntoIterator<Item = usize>) -> Vec<(usize, usize)> {
        let mut ahead = ReadAhead::default();
        pages.into_iter().filter_map(|page| ahead.turn_to(page, 0)).collect()
    }

    #[test]
    fn a_long_scan_asks_for_each_page_once_before_it_comes_to_it() {
        let windows = asked(10_000..11_000);
        assert_eq!(windows[..2], [(10_008, WINDOW), (10_264, WINDOW)]);
        assert!(windows.windows(2).all(|pair| pair[0].0 + WINDOW == pair[1].0));
        assert_eq!(windows.len(), 5);
    }

    #[test]
    fn short_scans_and_scans_in_no_order_ask_for_nothing() {
        assert_eq!(asked(10_000..10_000 + PAGES_BEFORE - 1), []);
        assert_eq!(asked((0..1000).map(|step| 10_000 + step * 7919 % 1000 * 20)), []);
    }
}
