//! Which filters stay in memory when not all of them fit.
//!
//! A filter spares the searches of its file for keys that are not there. Its price is its memory. So the filters with the
//! most negative lookups for each byte stay. A lookup that reaches a file without a filter in memory searches the file.
//!
//! # Cost
//! Sorts the filters: some hundred nanoseconds for each.
//!
//! # Origin
//! `SifrDB`, section 4.1: "caching only the most frequently accessed SST-level filters". Departure: only lookups that find
//! nothing count, because a filter spares no others.

use std::cmp::Ordering;

/// The use of a file's filter, and its price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterUse {
    /// Bytes of memory that it takes.
    pub(crate) bytes: u64,
    /// Sampled lookups that reached the file and did not find their key there, whether or not the filter was in memory.
    pub(crate) negative_lookups: u64,
    /// Whether it is in memory.
    pub(crate) is_kept: bool,
    /// Whether the file was opened so recently that its count of lookups says little.
    pub(crate) is_new: bool,
}

/// Added to the negative lookups of every filter. So while few were counted, small filters stay: a lookup probes every run of
/// a sub-tree once, whatever the size of its filter.
const PRIOR: u64 = 8;
/// An evicted filter replaces one in memory only if its use for each byte is this many times higher.
const KEPT_WEIGHT: u64 = 2;
/// Negative lookups per filter, on average, after which all counts are halved.
const DECAYS_AFTER: u64 = 32;

/// For each filter whether it is to be in memory. The chosen ones take at most `budget` bytes.
pub(crate) fn choose(budget: u64, filters: &[FilterUse]) -> Vec<bool> {
    let mut order: Vec<_> = (0..filters.len()).collect();
    order.sort_by(|&a, &b| filters[a].compare(&filters[b]).reverse());
    let (mut chosen, mut free) = (vec![false; filters.len()], budget);
    for at in order {
        if filters[at].bytes <= free {
            free -= filters[at].bytes;
            chosen[at] = true;
        }
    }
    chosen
}

/// Whether enough lookups were counted that all counts are to be halved.
pub(crate) fn should_decay(filters: &[FilterUse]) -> bool {
    let lookups = filters.iter().map(|filter| filter.negative_lookups).fold(0, u64::saturating_add);
    lookups >= DECAYS_AFTER * filters.len() as u64
}

impl FilterUse {
    /// By use per byte. New filters that are in memory are above all others, so that they stay.
    fn compare(&self, other: &Self) -> Ordering {
        let is_spared = |filter: &Self| filter.is_kept && filter.is_new;
        let uses = |filter: &Self| {
            let weight = if filter.is_kept { KEPT_WEIGHT } else { 1 };
            u128::from(filter.negative_lookups.saturating_add(PRIOR)) * u128::from(weight)
        };
        // uses / bytes, without the divisions.
        let density = |filter: &Self, other: &Self| uses(filter) * u128::from(other.bytes);
        (is_spared(self).cmp(&is_spared(other))).then(density(self, other).cmp(&density(other, self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(bytes: u64, negative_lookups: u64, is_kept: bool) -> FilterUse {
        FilterUse { bytes, negative_lookups, is_kept, is_new: false }
    }

    fn chosen(budget: u64, filters: &[FilterUse]) -> Vec<usize> {
        let chosen = choose(budget, filters);
        (0..filters.len()).filter(|&at| chosen[at]).collect()
    }

    #[test]
    fn all_stay_that_fit() {
        let filters = [filter(64, 0, false), filter(640, 9, true)];
        assert_eq!(chosen(704, &filters), [0, 1]);
        assert_eq!(chosen(703, &filters), [0], "the small one");
        assert_eq!(chosen(0, &filters), [0; 0]);
    }

    #[test]
    fn the_most_used_for_each_byte_stay() {
        let filters = [filter(1000, 1000, true), filter(100, 150, true), filter(100, 10, true)];
        assert_eq!(chosen(1000, &filters), [1, 2], "what the first would take is not there");
        assert_eq!(chosen(1100, &filters), [0, 1]);
        assert_eq!(chosen(100, &filters), [1]);
    }

    #[test]
    fn a_filter_takes_the_place_of_another_only_when_it_is_used_far_more() {
        assert_eq!(chosen(100, &[filter(100, 100, true), filter(100, 190, false)]), [0]);
        assert_eq!(chosen(100, &[filter(100, 100, true), filter(100, 250, false)]), [1]);
    }

    #[test]
    fn what_is_chosen_stays_chosen_once_it_is_loaded() {
        let mut filters: Vec<_> =
            (1..200).map(|i| filter(64 * (i * 7919 % 101 + 1), i * 104_729 % 997, i % 3 == 0)).collect();
        let first = choose(100_000, &filters);
        for at in 0..filters.len() {
            filters[at].is_kept = first[at];
            let kept =
                filters.iter().zip(&first).filter(|(_, chosen)| **chosen).map(|(filter, _)| filter.bytes);
            assert!(kept.sum::<u64>() <= 100_000);
        }
        assert_eq!(choose(100_000, &filters), first);
    }

    #[test]
    fn a_young_filter_is_not_judged_yet() {
        let young = FilterUse { is_new: true, ..filter(100, 0, true) };
        assert_eq!(chosen(100, &[filter(100, 9999, true), young]), [1]);
        assert!(!should_decay(&[filter(100, 63, true), young]));
        assert!(should_decay(&[filter(100, 64, true), young]));
    }
}
