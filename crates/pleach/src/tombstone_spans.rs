//! Spans of tombstones: key ranges that hold no live key, so that scans can skip them.
//!
//! A scan that passes many tombstones in a row records the span from the first to the last of them. A later scan that
//! enters the span seeks to its end. A put into a span removes it. So the head of a queue,
//! or the first key behind a large deletion, is found at once, long before a compaction removes the tombstones.
//!
//! # Invariants
//! 1. *No live key*: in a view that was taken before now and that sees the sequence number `since` of a listed span, no key
//!    of the span is live.
//!
//! # Concurrency
//! Who inserts, a commit leader or a writer side by side in its turn, stores the last sequence number of its writes
//! (`announced`), then loads `any`, and only then makes the writes visible. A scan inserts its span and then loads
//! `announced`; if its view does not see the last announced write, the scan removes the span again. Whichever of the two runs
//! second observes the other's store, so a stale span is never kept. Flushes and compactions do not change which keys are
//! live. Partition numbers are not reused.
//!
//! # Cost
//! A scan without tombstones pays nothing. A write pays a store and a load, and each put a binary search while there are
//! spans. If commits never pause for as long as a scan takes, no span is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use pleach_log::SeqNo;

use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, PartitionKey, partition_key};
use crate::shown::Shown;
use crate::stats::add;

/// Spans kept at a time (arbitrary).
const SPANS_MAX: usize = 16;

/// The spans of a store.
pub(crate) struct TombstoneSpans {
    /// Has the last sequence number that was announced.
    shown: Arc<Shown>,
    /// Whether `list` has any.
    any: AtomicBool,
    /// Ascending; they do not overlap.
    list: Mutex<Vec<TombstoneSpan>>,
    /// Tombstones that scans passed.
    passed: AtomicU64,
}

/// A span of partition keys, both ends included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TombstoneSpan {
    first: PartitionKey,
    last: PartitionKey,
    since: SeqNo,
}

impl TombstoneSpans {
    /// No spans yet.
    pub(crate) fn new(shown: Arc<Shown>) -> Self {
        Self { shown, any: AtomicBool::new(false), list: Mutex::default(), passed: AtomicU64::new(0) }
    }

    /// Tombstones that scans passed, in all.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Announces that the caller, a commit leader or a writer side by side in its turn, is about to show the writes up to
    /// `last_seq`. If it returns `true`, the caller calls [`TombstoneSpans::invalidate`] for each put before readers see it.
    #[inline]
    pub(crate) fn announce(&self, last_seq: SeqNo) -> bool {
        self.shown.announce(last_seq);
        self.any.load(Ordering::SeqCst)
    }

    /// Removes the span that contains `key`, which is about to be put.
    pub(crate) fn invalidate(&self, key: &[u8]) {
        let mut list = self.list.lock();
        if let Some(at) = position(&list, key) {
            list.remove(at);
            self.any.store(!list.is_empty(), Ordering::SeqCst);
        }
    }

    /// The span that contains `user_key`, if it holds no live key in a view that sees `visible`.
    pub(crate) fn find(
        &self,
        partition: PartitionId,
        user_key: &[u8],
        visible: SeqNo,
    ) -> Option<TombstoneSpan> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let list = self.list.lock();
        let span = &list[position(&list, &partition_key(partition, user_key))?];
        (span.since <= visible).then(|| span.clone())
    }

    /// Inserts a span, unless a write that the scan's view does not see was announced.
    fn insert(&self, span: TombstoneSpan) {
        // Of a damaged file whose keys do not ascend.
        if span.first > span.last {
            return;
        }
        let mut list = self.list.lock();
        let begin = list.partition_point(|other| other.last < span.first);
        let end = list.partition_point(|other| other.first <= span.last);
        let since = span.since;
        // The spans that it overlaps are still valid; they are removed because listed spans do not overlap.
        list.splice(begin..end, [span]);
        if list.len() > SPANS_MAX
            && let Some(oldest) = (0..list.len()).filter(|at| *at != begin).min_by_key(|at| list[*at].since)
        {
            list.remove(oldest);
        }
        self.any.store(true, Ordering::SeqCst);
        if self.shown.announced() != since {
            // A put that the view does not see may lie in the span, and its leader may have loaded `any` before.
            list.retain(|other| other.since != since);
            self.any.store(!list.is_empty(), Ordering::SeqCst);
        }
    }
}

/// Index of the span that contains `key`.
fn position(list: &[TombstoneSpan], key: &[u8]) -> Option<usize> {
    let at = list.partition_point(|span| &*span.first <= key).checked_sub(1)?;
    (key <= &*list[at].last).then_some(at)
}

impl TombstoneSpan {
    /// First user key.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first[PARTITION_PREFIX_LEN..]
    }

    /// Last user key.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last[PARTITION_PREFIX_LEN..]
    }
}

/// A scan looks for a known span after this many tombstones in a row (arbitrary).
const FIND_AFTER: u32 = 8;

/// If there is none, the scan looks again after this many more (arbitrary).
const FIND_EVERY: u32 = 64;

/// Spans in which a scan passed fewer tombstones are not kept (arbitrary).
const TOMBSTONES_MIN: u32 = 32;

/// The tombstones that a scan has passed since the last live key.
#[derive(Default)]
pub(crate) struct PassedTombstones {
    /// Smallest and largest user key of the span; `None` before the first.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    count: u32,
    /// The count at which the scan looks for a known span.
    find_at: u32,
}

impl PassedTombstones {
    /// Adds the tombstone of `user_key`, which lies beyond those before. Returns whether to look for a known span.
    pub(crate) fn add(&mut self, user_key: &[u8], goes_up: bool) -> bool {
        match &mut self.bounds {
            None => {
                self.bounds = Some((user_key.to_vec(), user_key.to_vec()));
                self.find_at = FIND_AFTER;
            }
            Some((first, last)) => {
                let bound = if goes_up { last } else { first };
                bound.clear();
                bound.extend_from_slice(user_key);
            }
        }
        self.count += 1;
        self.count == self.find_at
    }

    /// Takes the result of the search for a known span: grows by the span, and sets when to look again.
    pub(crate) fn extend(&mut self, known: Option<&TombstoneSpan>) {
        let Some((first, last)) = &mut self.bounds else { return };
        let Some(known) = known else {
            self.find_at = self.count + FIND_EVERY;
            return;
        };
        self.find_at = self.count + FIND_AFTER;
        if known.first() < first.as_slice() {
            *first = known.first().to_vec();
        }
        if known.last() > last.as_slice() {
            *last = known.last().to_vec();
        }
    }

    /// Ends the span. Keeps it if it is long enough, for views that see `visible`.
    pub(crate) fn end(self, spans: &TombstoneSpans, partition: PartitionId, visible: SeqNo) {
        let Some((first, last)) = self.bounds else { return };
        add(&spans.passed, u64::from(self.count));
        if self.count >= TOMBSTONES_MIN {
            let (first, last) = (partition_key(partition, &first), partition_key(partition, &last));
            spans.insert(TombstoneSpan { first, last, since: visible });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(3);

    fn insert(spans: &TombstoneSpans, first: &str, last: &str, since: SeqNo) {
        let (first, last) = (partition_key(P, first.as_bytes()), partition_key(P, last.as_bytes()));
        spans.insert(TombstoneSpan { first, last, since });
    }

    fn found(spans: &TombstoneSpans, key: &str, visible: SeqNo) -> Option<String> {
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        spans.find(P, key.as_bytes(), visible).map(|s| format!("{}-{}", text(s.first()), text(s.last())))
    }

    #[test]
    fn a_span_is_known_to_later_views_until_a_put_hits_it() {
        let spans = TombstoneSpans::new(Shown::new(9));
        insert(&spans, "b", "d", 9);
        assert_eq!(found(&spans, "a", 9), None);
        assert_eq!(found(&spans, "b", 9).as_deref(), Some("b-d"));
        assert_eq!(found(&spans, "d", 12).as_deref(), Some("b-d"));
        assert_eq!(found(&spans, "da", 12), None);
        assert_eq!(found(&spans, "c", 8), None, "an older view may see what was deleted");
        assert!(spans.find(PartitionId(2), b"c", 9).is_none());
        assert!(spans.announce(10));
        spans.invalidate(&partition_key(P, b"e"));
        assert_eq!(found(&spans, "c", 10).as_deref(), Some("b-d"));
        insert(&spans, "m", "a", 9);
        assert_eq!(found(&spans, "c", 10).as_deref(), Some("b-d"), "keys of a damaged file may descend");
        spans.invalidate(&partition_key(P, b"d"));
        assert_eq!(found(&spans, "c", 10), None);
        assert!(!spans.announce(11));
    }

    #[test]
    fn a_span_that_may_hold_an_unseen_write_is_not_kept() {
        let spans = TombstoneSpans::new(Shown::new(9));
        insert(&spans, "x", "z", 9);
        spans.announce(10);
        insert(&spans, "b", "d", 9);
        assert_eq!(found(&spans, "c", 10), None);
        insert(&spans, "b", "d", 10);
        assert_eq!(found(&spans, "c", 10).as_deref(), Some("b-d"));
    }

    #[test]
    fn a_new_span_replaces_those_it_overlaps_and_few_are_kept() {
        let spans = TombstoneSpans::new(Shown::new(9));
        insert(&spans, "b", "d", 9);
        insert(&spans, "f", "h", 9);
        insert(&spans, "d", "f", 9);
        assert_eq!(found(&spans, "c", 9), None);
        assert_eq!(found(&spans, "e", 9).as_deref(), Some("d-f"));
        for i in 0..100 {
            spans.announce(10 + i);
            insert(&spans, &format!("k{i:03}"), &format!("k{i:03}x"), 10 + i);
        }
        assert_eq!(spans.list.lock().len(), SPANS_MAX);
        assert!(found(&spans, "k099", 200).is_some());
        assert!(found(&spans, "k000", 200).is_none());
    }
}
