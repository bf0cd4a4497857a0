//! Which filters stay in memory when not all of them fit.
//!
//! A filter is worth the searches that it spares: the lookups that reach its file for a key that is not there. Its price
//! is its memory. So those with the most such lookups for each byte stay; a probe of a file whose filter is not in memory
//! searches the file.
//!
//! # Cost
//! Sorts the filters: some hundred nanoseconds for each.
//!
//! # Origin
//! `SifrDB`, section 4.1: "caching only the most frequently accessed SST-level filters". Departure: counted are the
//! accesses that find nothing, because the others a filter cannot spare.

use std::cmp::Ordering;

/// The reasons for and against keeping a filter in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterDemand {
    /// Bytes of memory that it takes.
    pub(crate) bytes: u64,
    /// Lookups, of those counted, that came to the file in vain.
    pub(crate) absences: u64,
    /// Whether it is in memory.
    pub(crate) is_kept: bool,
    /// Whether it is too young for its absences to say much.
    pub(crate) is_fresh: bool,
}

/// Absences that every filter is taken to have: where next to nothing was counted, small filters go first, for each run
/// of a sub-tree is probed alike.
const PRIOR: u64 = 8;
/// How many times denser the use of a filter outside must be than that of one in memory, to take its place.
const STAYING_POWER: u64 = 2;
/// Absences per filter, on average, after which the past is made to fade.
const FADES_AFTER: u64 = 32;

/// For each filter whether it is to be in memory. What is chosen takes at most `budget` bytes.
pub(crate) fn choose(budget: u64, demands: &[FilterDemand]) -> Vec<bool> {
    let mut order: Vec<_> = (0..demands.len()).collect();
    order.sort_by(|&a, &b| demands[a].compare(&demands[b]).reverse());
    let (mut chosen, mut room) = (vec![false; demands.len()], budget);
    for at in order {
        if demands[at].bytes <= room {
            room -= demands[at].bytes;
            chosen[at] = true;
        }
    }
    chosen
}

/// Whether so much has been counted that the past should fade.
pub(crate) fn is_due_to_fade(demands: &[FilterDemand]) -> bool {
    let absences = demands.iter().map(|demand| demand.absences).fold(0, u64::saturating_add);
    absences >= FADES_AFTER * demands.len() as u64
}

impl FilterDemand {
    /// By use per byte.
    fn compare(&self, other: &Self) -> Ordering {
        let precedes = |demand: &Self| demand.is_kept && demand.is_fresh;
        let uses = |demand: &Self| {
            let staying_power = if demand.is_kept { STAYING_POWER } else { 1 };
            u128::from(demand.absences.saturating_add(PRIOR)) * u128::from(staying_power)
        };
        let density = |demand: &Self, other: &Self| uses(demand) * u128::from(other.bytes);
        (precedes(self).cmp(&precedes(other))).then(density(self, other).cmp(&density(other, self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(bytes: u64, absences: u64, is_kept: bool) -> FilterDemand {
        FilterDemand { bytes, absences, is_kept, is_fresh: false }
    }

    fn chosen(budget: u64, demands: &[FilterDemand]) -> Vec<usize> {
        let chosen = choose(budget, demands);
        (0..demands.len()).filter(|&at| chosen[at]).collect()
    }

    #[test]
    fn all_stay_that_fit() {
        let demands = [demand(64, 0, false), demand(640, 9, true)];
        assert_eq!(chosen(704, &demands), [0, 1]);
        assert_eq!(chosen(703, &demands), [0], "the small one");
        assert_eq!(chosen(0, &demands), [0; 0]);
    }

    #[test]
    fn the_most_used_for_each_byte_stay() {
        let demands = [demand(1000, 1000, true), demand(100, 150, true), demand(100, 10, true)];
        assert_eq!(chosen(1000, &demands), [1, 2], "what the first would take is not there");
        assert_eq!(chosen(1100, &demands), [0, 1]);
        assert_eq!(chosen(100, &demands), [1]);
    }

    #[test]
    fn a_filter_takes_the_place_of_another_only_when_it_is_used_far_more() {
        assert_eq!(chosen(100, &[demand(100, 100, true), demand(100, 190, false)]), [0]);
        assert_eq!(chosen(100, &[demand(100, 100, true), demand(100, 250, false)]), [1]);
    }

    #[test]
    fn what_is_chosen_stays_chosen_once_it_is_loaded() {
        let mut demands: Vec<_> =
            (1..200).map(|i| demand(64 * (i * 7919 % 101 + 1), i * 104_729 % 997, i % 3 == 0)).collect();
        let first = choose(100_000, &demands);
        for at in 0..demands.len() {
            demands[at].is_kept = first[at];
            let told =
                demands.iter().zip(&first).filter(|(_, chosen)| **chosen).map(|(demand, _)| demand.bytes);
            assert!(told.sum::<u64>() <= 100_000);
        }
        assert_eq!(choose(100_000, &demands), first);
    }

    #[test]
    fn a_young_filter_is_not_judged_yet() {
        let young = FilterDemand { is_fresh: true, ..demand(100, 0, true) };
        assert_eq!(chosen(100, &[demand(100, 9999, true), young]), [1]);
        assert!(!is_due_to_fade(&[demand(100, 63, true), young]));
        assert!(is_due_to_fade(&[demand(100, 64, true), young]));
    }
}
