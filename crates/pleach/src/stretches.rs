//! Stretches of keys that are known to be deleted, so that scans need not pass the same tombstones again and again.
//!
//! A scan that stepped over many tombstones in a row remembers between which keys nothing lives; later scans leap over
//! them. A put into a stretch makes it forgotten. The front of a queue is found so, and the beginning of a key space of
//! which much was deleted, long before a compaction removes the tombstones.
//!
//! # Invariants
//! 1. For every stretch on the list: in each view that sees `since`, and that was taken before now, no key of it lives.
//!
//! # Concurrency
//! The writer announces the sequence numbers it is about to give, then looks whether there are stretches, and only then
//! lets readers see its writes. A scan puts its stretch on the list and then looks whether a write that its view does not
//! see was announced; if so it takes it back. Whichever of the two runs second sees the
//! other's store, so a stale stretch is never kept. Flushes and compactions do not change what lives; partitions' numbers
//! are not used again.
//!
//! # Cost
//! Nothing for scans without tombstones. For a write a store and a load, and while there are stretches a search among them
//! for each put. Where writes never pause for as long as a scan takes, nothing is remembered.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use pleach_log::SeqNo;

use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, PartitionKey, partition_key};
use crate::stats::add;

/// Stretches remembered at a time (arbitrary).
const STRETCHES_MAX: usize = 16;

/// The stretches of a store.
pub(crate) struct DeletedStretches {
    /// Last sequence number that was given, or is about to be.
    announced: AtomicU64,
    /// Whether there are any.
    any: AtomicBool,
    /// Ascending; they do not overlap.
    list: Mutex<Vec<Stretch>>,
    /// Tombstones that scans stepped over.
    passed: AtomicU64,
}

/// A stretch, both ends included, as partition keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    first: PartitionKey,
    last: PartitionKey,
    since: SeqNo,
}

impl DeletedStretches {
    /// None yet, in a store whose last sequence number is `last_seq`.
    pub(crate) fn new(last_seq: SeqNo) -> Self {
        Self {
            announced: AtomicU64::new(last_seq),
            any: AtomicBool::new(false),
            list: Mutex::default(),
            passed: AtomicU64::new(0),
        }
    }

    /// Tombstones that scans stepped over, in all.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Writer: says that sequence numbers up to `last_seq` are about to be given. Returns whether puts must be told by
    /// [`DeletedStretches::forget`] before readers see them.
    #[inline]
    pub(crate) fn announce(&self, last_seq: SeqNo) -> bool {
        self.announced.store(last_seq, Ordering::SeqCst);
        self.any.load(Ordering::SeqCst)
    }

    /// Writer: forgets the stretch that `key` lies in; it is about to live.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut list = self.list.lock();
        if let Some(at) = position(&list, key) {
            list.remove(at);
            self.any.store(!list.is_empty(), Ordering::SeqCst);
        }
    }

    /// The user keys between which, both included, nothing lives in a view that sees `visible`, and `user_key` among them.
    pub(crate) fn find(&self, partition: PartitionId, user_key: &[u8], visible: SeqNo) -> Option<Stretch> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let list = self.list.lock();
        let stretch = &list[position(&list, &partition_key(partition, user_key))?];
        (stretch.since <= visible).then(|| stretch.clone())
    }

    /// Remembers that nothing lives between two keys, both included, in a view that sees no more than `visible`.
    fn remember(&self, stretch: Stretch) {
        let mut list = self.list.lock();
        let begin = list.partition_point(|other| other.last < stretch.first);
        let end = list.partition_point(|other| other.first <= stretch.last);
        let since = stretch.since;
        // What it overlaps is true all the same, until it must be forgotten.
        list.splice(begin..end, [stretch]);
        if list.len() > STRETCHES_MAX
            && let Some(oldest) = (0..list.len()).filter(|at| *at != begin).min_by_key(|at| list[*at].since)
        {
            list.remove(oldest);
        }
        self.any.store(true, Ordering::SeqCst);
        if self.announced.load(Ordering::SeqCst) != since {
            // A write that the view does not see may lie in it, and its writer may have looked before.
            list.retain(|other| other.since != since);
            self.any.store(!list.is_empty(), Ordering::SeqCst);
        }
    }
}

/// Where the stretch is that `key` lies in.
fn position(list: &[Stretch], key: &[u8]) -> Option<usize> {
    let at = list.partition_point(|stretch| &*stretch.first <= key).checked_sub(1)?;
    (key <= &*list[at].last).then_some(at)
}

impl Stretch {
    /// First user key.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first[PARTITION_PREFIX_LEN..]
    }

    /// Last user key.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last[PARTITION_PREFIX_LEN..]
    }
}

/// After so many tombstones in a row a scan asks whether the stretch is known, and again whenever it has passed
/// [`ASK_EVERY`] of them.
const ASK_AFTER: u32 = 8;
const ASK_EVERY: u32 = 64;

/// Stretches in which a scan stepped over fewer tombstones are not worth remembering.
const REMEMBERED_MIN: u32 = 32;

/// The tombstones that a scan has stepped over since the last living key.
#[derive(Default)]
pub(crate) struct Passed {
    /// Smallest and largest user key of the stretch; empty before the first.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// Tombstones stepped over.
    stepped: u32,
    ask_at: u32,
}

impl Passed {
    /// Notes a tombstone of `user_key`, which lies beyond those before; `true` when it is time to ask for a known stretch.
    pub(crate) fn step(&mut self, user_key: &[u8], goes_up: bool) -> bool {
        match &mut self.bounds {
            None => {
                self.bounds = Some((user_key.to_vec(), user_key.to_vec()));
                self.ask_at = ASK_AFTER;
            }
            Some((first, last)) => {
                let bound = if goes_up { last } else { first };
                bound.clear();
                bound.extend_from_slice(user_key);
            }
        }
        self.stepped += 1;
        self.stepped == self.ask_at
    }

    /// Sets when to ask again, and takes `known`, if it is, to be a part of the stretch.
    pub(crate) fn asked(&mut self, known: Option<&Stretch>) {
        let Some((first, last)) = &mut self.bounds else { return };
        let Some(known) = known else {
            self.ask_at = self.stepped + ASK_EVERY;
            return;
        };
        self.ask_at = self.stepped + ASK_AFTER;
        if known.first() < first.as_slice() {
            *first = known.first().to_vec();
        }
        if known.last() > last.as_slice() {
            *last = known.last().to_vec();
        }
    }

    /// Ends the stretch, for a view that sees no more than `visible`.
    pub(crate) fn end(self, stretches: &DeletedStretches, partition: PartitionId, visible: SeqNo) {
        let Some((first, last)) = self.bounds else { return };
        add(&stretches.passed, u64::from(self.stepped));
        if self.stepped >= REMEMBERED_MIN {
            let (first, last) = (partition_key(partition, &first), partition_key(partition, &last));
            stretches.remember(Stretch { first, last, since: visible });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(3);

    fn remember(stretches: &DeletedStretches, first: &str, last: &str, since: SeqNo) {
        let (first, last) = (partition_key(P, first.as_bytes()), partition_key(P, last.as_bytes()));
        stretches.remember(Stretch { first, last, since });
    }

    fn found(stretches: &DeletedStretches, key: &str, visible: SeqNo) -> Option<String> {
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        stretches.find(P, key.as_bytes(), visible).map(|s| format!("{}-{}", text(s.first()), text(s.last())))
    }

    #[test]
    fn a_stretch_is_known_to_later_views_until_a_put_hits_it() {
        let stretches = DeletedStretches::new(9);
        remember(&stretches, "b", "d", 9);
        assert_eq!(found(&stretches, "a", 9), None);
        assert_eq!(found(&stretches, "b", 9).as_deref(), Some("b-d"));
        assert_eq!(found(&stretches, "d", 12).as_deref(), Some("b-d"));
        assert_eq!(found(&stretches, "da", 12), None);
        assert_eq!(found(&stretches, "c", 8), None, "an older view may see what was deleted");
        assert!(stretches.find(PartitionId(2), b"c", 9).is_none());
        assert!(stretches.announce(10));
        stretches.forget(&partition_key(P, b"e"));
        assert_eq!(found(&stretches, "c", 10).as_deref(), Some("b-d"));
        stretches.forget(&partition_key(P, b"d"));
        assert_eq!(found(&stretches, "c", 10), None);
        assert!(!stretches.announce(11));
    }

    #[test]
    fn a_stretch_that_an_unseen_write_may_lie_in_is_not_remembered() {
        let stretches = DeletedStretches::new(9);
        remember(&stretches, "x", "z", 9);
        stretches.announce(10);
        remember(&stretches, "b", "d", 9);
        assert_eq!(found(&stretches, "c", 10), None);
        remember(&stretches, "b", "d", 10);
        assert_eq!(found(&stretches, "c", 10).as_deref(), Some("b-d"));
    }

    #[test]
    fn overlapping_stretches_give_way_to_the_newest_and_few_are_kept() {
        let stretches = DeletedStretches::new(9);
        remember(&stretches, "b", "d", 9);
        remember(&stretches, "f", "h", 9);
        remember(&stretches, "d", "f", 9);
        assert_eq!(found(&stretches, "c", 9), None);
        assert_eq!(found(&stretches, "e", 9).as_deref(), Some("d-f"));
        for i in 0..100 {
            stretches.announce(10 + i);
            remember(&stretches, &format!("k{i:03}"), &format!("k{i:03}x"), 10 + i);
        }
        assert_eq!(stretches.list.lock().len(), STRETCHES_MAX);
        assert!(found(&stretches, "k099", 200).is_some());
        assert!(found(&stretches, "k000", 200).is_none());
    }
}
