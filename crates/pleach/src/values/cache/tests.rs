//! Values come and go, are pinned, moved and trimmed, and no reader ever sees other bytes than those of its value.

use std::sync::atomic::AtomicBool;

use fastrand::Rng;
use pleach_env::FileId;

use super::*;

fn pointer(number: u64, len: usize) -> ValuePointer {
    ValuePointer {
        segment: FileId(1 + number / 50),
        offset: 64 + number % 50 * 5000,
        len: u32::try_from(len).unwrap(),
    }
}

/// The bytes of a value, which say whose they are.
fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// As good as random.
fn hash_of(number: u64) -> u64 {
    Rng::with_seed(number).u64(..)
}

/// Lengths of values by their numbers, from 0 to `max`.
fn len_of(number: u64, max: usize) -> usize {
    usize::try_from(hash_of(number) % (max as u64 + 1)).unwrap()
}

fn admit(values: &Values, number: u64, len: usize) -> Option<CachedValue> {
    values.admit(hash_of(number), pointer(number, len), &bytes_of(number, len))
}

fn is_cached(values: &Values, number: u64, len: usize) -> bool {
    let found = values.get(hash_of(number), pointer(number, len), false);
    found.is_some_and(|found| {
        assert_eq!(found[..], bytes_of(number, len));
        true
    })
}

fn with_capacity(bytes: usize) -> Values {
    let values = Values::try_new(bytes).unwrap();
    values.set_capacity(bytes);
    values
}

#[test]
fn overhead_is_small() {
    for len in [512, 1000, 4000, 20_000] {
        let values = with_capacity(4 << 20);
        // Three times what fits. Those that were evicted when the table was small have been replaced.
        let count = (12 << 20) / len as u64;
        for number in 0..count {
            assert!(admit(&values, number, len).is_some());
        }
        values.check_invariants();
        let bytes = (0..count).filter(|number| is_cached(&values, *number, len)).count() * len;
        assert!(values.used_bytes() <= 4 << 20);
        assert!(values.used_bytes() * 100 < bytes * 125, "{} for {bytes} bytes", values.used_bytes());
    }
}

#[test]
fn values_of_all_lengths_come_and_go() {
    let mut rng = Rng::with_seed(7);
    for (capacity, max) in [(100 << 10, 2000), (1 << 20, 5000), (1 << 20, 200), (200 << 10, 40_000)] {
        let values = with_capacity(capacity);
        let mut pinned = Vec::new();
        let mut admitted = 0;
        for round in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let number = rng.u64(..2000);
            let len = len_of(number, max);
            if !is_cached(&values, number, len)
                && let Some(value) = admit(&values, number, len)
            {
                assert_eq!(value[..], bytes_of(number, len));
                admitted += 1;
                if rng.u8(..50) == 0 {
                    pinned.push((number, value));
                }
            }
            if pinned.len() > 5 {
                let (number, value) = pinned.swap_remove(rng.usize(..pinned.len()));
                assert_eq!(value[..], bytes_of(number, len_of(number, max)));
            }
            if rng.u16(..300) == 0 {
                values.set_capacity(rng.usize(..=capacity));
                values.check_invariants();
            }
            if round % 1000 == 0 {
                values.set_capacity(capacity);
                values.check_invariants();
            }
        }
        assert!(cfg!(miri) || admitted > 1000, "{admitted} admitted");
        values.set_capacity(capacity);
        drop(pinned);
        values.set_capacity(0);
        values.check_invariants();
        assert!(values.used_bytes() <= capacity / 8 + 128, "only the table is left");
    }
}

#[test]
fn values_that_are_read_survive_those_that_are_not() {
    let values = with_capacity(1 << 20);
    let hot = 0..200;
    hot.clone().for_each(|number| drop(admit(&values, number, 1000)));
    for number in 1000..20_000 {
        drop(admit(&values, number, 1000));
        if number % 300 == 0 {
            for number in hot.clone() {
                drop(values.get(hash_of(number), pointer(number, 1000), true));
            }
        }
    }
    let kept = hot.filter(|number| is_cached(&values, *number, 1000)).count();
    assert!(kept > 190, "{kept} of 200");
    values.check_invariants();
}

#[test]
fn large_values_and_small_capacities_are_refused() {
    let values = with_capacity(64 << 10);
    assert!(admit(&values, 1, 20 << 10).is_none());
    assert!(admit(&values, 2, 10 << 10).is_some());
    for capacity in [0, 1, 63, 128, 300] {
        values.set_capacity(capacity);
        assert!(admit(&values, 3, 100).is_none());
        assert!(!is_cached(&values, 2, 10 << 10));
    }
    // What pins hold is not given away.
    values.set_capacity(64 << 10);
    let pinned: Vec<_> = (0..1000).map_while(|number| admit(&values, number, 4000)).collect();
    assert!((8..=16).contains(&pinned.len()), "{} pinned", pinned.len());
    assert!((0..).zip(&pinned).all(|(number, value)| value[..] == bytes_of(number, 4000)));
    values.check_invariants();
    let unknown = ValuePointer { segment: FileId(1 << 32), offset: 64, len: 3 };
    assert!(values.admit(1, unknown, b"far").is_none());
    for len in [4001, 1 << 29] {
        assert!(values.get(hash_of(1), pointer(1, len), false).is_none(), "the pointer says more");
    }
}

/// Memory is asked for ahead of the values, but never beyond the capacity, and little for few values.
#[test]
fn memory_is_asked_for_ahead_of_the_values() {
    const HUGE_PAGE: usize = 2 << 20;
    let values = with_capacity(32 << 20);
    let (mut asked, mut populated) = (0, 0);
    for number in 0..30_000 {
        assert!(admit(&values, number, 1000).is_some());
        if values.wants_memory(hash_of(number)) {
            asked += 1;
            let used = values.used_bytes();
            values.populate();
            let ahead = values.populated_bytes() - used.min(values.populated_bytes());
            assert!(ahead <= used.min(4 << 20) + HUGE_PAGE, "{ahead} bytes ahead of {used}");
            assert!(values.populated_bytes() > populated, "each time there was something to ask for");
            populated = values.populated_bytes();
        }
        if (HUGE_PAGE * 2..24 << 20).contains(&values.used_bytes()) {
            assert!(values.populated_bytes() >= values.used_bytes() - (1 << 20), "no value has to wait");
        }
    }
    assert!((4..=16).contains(&asked), "{asked} times");
    assert!(populated <= 32 << 20);
    values.set_capacity(8 << 20);
    assert!(values.populated_bytes() <= 8 << 20, "it was given back");
    values.check_invariants();
}

/// Memory that was asked for and not used yet is behind all values, whether some of them have to go or not.
#[test]
fn memory_ahead_is_given_back_with_the_capacity() {
    let values = with_capacity(32 << 20);
    for number in 0..9_000 {
        assert!(admit(&values, number, 1000).is_some());
        if values.wants_memory(hash_of(number)) {
            values.populate();
        }
    }
    let (used, populated) = (values.used_bytes(), values.populated_bytes());
    assert!(populated > used + (2 << 20), "{populated} bytes, {used} used");
    values.set_capacity(used + (1 << 20));
    assert!(values.populated_bytes() <= used + (1 << 20), "{} bytes", values.populated_bytes());
    assert!(is_cached(&values, 8_999, 1000), "no value had to go");
    values.check_invariants();
}

#[test]
fn a_copied_value_is_found_by_its_new_pointer_alone() {
    let values = with_capacity(1 << 20);
    for number in 0..100 {
        assert!(admit(&values, number, 1000).is_some());
    }
    let (used, was_cached) = (values.used_bytes(), |number| is_cached(&values, number, 1000));
    let was_cached: Vec<_> = (0..100).map(was_cached).collect();
    let copied = |number| pointer(number + 1000, 1000);
    let pinned = values.get(hash_of(7), pointer(7, 1000), true).unwrap();
    for number in 0..100 {
        values.note_copy(hash_of(number), pointer(number, 1000), copied(number));
    }
    for (number, was_cached) in (0..100).zip(was_cached) {
        let is_copy_found = values.get(hash_of(number), copied(number), false).is_some();
        assert_eq!(
            (is_cached(&values, number, 1000), is_copy_found),
            (number == 7, was_cached && number != 7)
        );
    }
    assert_eq!(pinned[..], bytes_of(7, 1000));
    assert_eq!(values.used_bytes(), used, "no value is there twice");
    // Not cached, or not by this pointer.
    values.note_copy(hash_of(200), pointer(200, 1000), copied(200));
    values.note_copy(hash_of(8), pointer(8, 1000), copied(9));
    assert!(values.get(hash_of(8), copied(9), false).is_none());
    values.check_invariants();
}

/// A pointer has the length of the packed value.
#[test]
fn values_that_were_packed_are_whole() {
    let values = with_capacity(1 << 20);
    for number in 0..50 {
        let bytes = bytes_of(number, 3000);
        drop(values.admit(hash_of(number), pointer(number, 20), &bytes).unwrap());
        let found = values.get(hash_of(number), pointer(number, 20), true).unwrap();
        assert_eq!((found[..].len(), &found.clone()[..]), (3000, &bytes[..]));
        assert!(values.get(hash_of(number), pointer(number + 1, 20), true).is_none(), "another place");
    }
    values.check_invariants();
}

#[test]
fn the_hand_passes_values_and_holes_of_any_length() {
    let values = with_capacity(16 << 20);
    let fill = |first| (first..first + 30_000).all(|number| admit(&values, number, 1000).is_some());
    assert!(admit(&values, 0, 3 << 20).is_some());
    assert!(fill(1), "a value that is longer than the hand passes at once");
    let last = (1..30_001).rev().find_map(|number| {
        let found = values.get(hash_of(number), pointer(number, 1000), false);
        let is_far = |found: &CachedValue| found.as_ptr().addr() - first_address(&values) > 8 << 20;
        found.filter(is_far)
    });
    values.set_capacity(0);
    drop(last.expect("some value is in the upper half"));
    values.set_capacity(16 << 20);
    assert!(fill(100_000), "a hole that is longer than the hand passes at once");
    values.check_invariants();
}

/// The least address of a cached value.
fn first_address(values: &Values) -> usize {
    let found = |number| values.get(hash_of(number), pointer(number, 1000), false);
    (1..30_001).filter_map(found).map(|value| value.as_ptr().addr()).min().unwrap()
}

#[test]
fn pins_outlive_the_cache() {
    let values = with_capacity(1 << 20);
    let kept: Vec<_> = (0..10).map(|number| admit(&values, number, 1000).unwrap()).collect();
    drop(values);
    let copies = kept.clone();
    drop(kept);
    for (number, value) in copies.iter().enumerate() {
        assert_eq!(value[..], bytes_of(number as u64, 1000));
    }
}

/// Small enough for Miri, which looks for races between readers and those who reuse the memory.
#[test]
fn threads_read_whole_values_while_others_admit_and_capacities_change() {
    let rounds = if cfg!(miri) { 60 } else { 30_000 };
    let values = with_capacity(40 << 10);
    let ended = AtomicBool::new(false);
    let kept: Vec<_> = std::thread::scope(|scope| {
        let (values, ended) = (&values, &ended);
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed);
                    let mut kept = None;
                    for _ in 0..rounds {
                        let number = rng.u64(..40);
                        let len = len_of(number, 3000);
                        let found = values.get(hash_of(number), pointer(number, len), rng.bool());
                        let found = found.or_else(|| admit(values, number, len));
                        if let Some(value) = &found {
                            assert_eq!(value[..], bytes_of(number, len));
                        }
                        if rng.u8(..4) == 0 {
                            kept = found.clone().map(|value| (number, value));
                        }
                    }
                    kept
                })
            })
            .collect();
        let mut rng = Rng::with_seed(9);
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                values.set_capacity(rng.usize(..40 << 10));
                values.set_capacity(40 << 10);
            }
        });
        let kept = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        ended.store(true, Ordering::Relaxed);
        kept
    });
    values.check_invariants();
    drop(values);
    for (number, value) in kept.into_iter().flatten() {
        assert_eq!(value[..], bytes_of(number, len_of(number, 3000)));
    }
}

/// Memtables take their share in 48 pieces. The values give up memory in steps, because each time costs a look at all of them.
#[test]
fn values_give_up_memory_in_steps() {
    for memory in [64 << 20, 1 << 30, 64 << 30] {
        let (piece, mut capacities) = (4 << 20, Vec::new());
        for pieces in 0..48.min(memory / 2 / piece) {
            let total = memory - pieces * piece;
            let bytes = whole_steps(total - total / 4, total);
            assert!(bytes <= total - total / 4 && bytes + total / STEP_SHARE >= total - total / 4, "{bytes}");
            capacities.push(bytes);
        }
        let falls = capacities.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // The least step is a half of this share of the memory that is left, which is half of it or more.
        let least_step = memory / 2 / STEP_SHARE / 2;
        assert!(falls <= 2 + 48 * piece / least_step, "{falls} falls of {memory}");
    }
}
