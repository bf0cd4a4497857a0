//! The dataset of a run: how many keys of which set, in which orders, with which values.

use std::sync::OnceLock;

use super::keys::KeySet;
use super::permutation::Permutation;
use super::value_sizes::ValueSizes;
use super::values::Values;

/// The keys and values of a run's stores.
#[derive(Debug)]
pub(crate) struct Dataset {
    pub(crate) keys: u64,
    pub(crate) key_set: KeySet,
    pub(crate) sizes: ValueSizes,
    pub(crate) seed: u64,
    pub(crate) values: Values,
    /// The order in which `fillrandom` puts keys.
    pub(crate) shuffled: Permutation,
    /// Indexes in key order, computed on first use if the set has no order of its own.
    sorted: OnceLock<Vec<u32>>,
    /// Smallest and largest key.
    bounds: OnceLock<(Vec<u8>, Vec<u8>)>,
}

impl Dataset {
    /// Requires: `keys` is at least one and below 2^32.
    pub(crate) fn new(keys: u64, key_set: KeySet, sizes: ValueSizes, seed: u64) -> Self {
        Self {
            keys,
            key_set,
            sizes,
            seed,
            values: Values::new(seed),
            shuffled: Permutation::new(keys, seed ^ 0x0073_6875_6666_6c65),
            sorted: OnceLock::new(),
            bounds: OnceLock::new(),
        }
    }

    /// The index of the key that is the `rank`th in key order.
    pub(crate) fn sorted(&self, rank: u64) -> u64 {
        if self.key_set.is_ordered() {
            return rank;
        }
        u64::from(self.sorted.get_or_init(|| self.sort())[rank as usize])
    }

    /// Sorts all keys, which takes a moment and the memory of all keys; fine outside the measured time.
    fn sort(&self) -> Vec<u32> {
        let mut text = Vec::new();
        let mut ends = Vec::with_capacity(self.keys as usize + 1);
        ends.push(0);
        let mut key = Vec::new();
        for index in 0..self.keys {
            self.key_set.write(index, &mut key);
            text.extend_from_slice(&key);
            ends.push(text.len());
        }
        let key = |index: u32| &text[ends[index as usize]..ends[index as usize + 1]];
        let mut sorted: Vec<u32> = (0..u32::try_from(self.keys).expect("keys fit 32 bits")).collect();
        sorted.sort_unstable_by(|&a, &b| key(a).cmp(key(b)));
        sorted
    }

    /// Computes in advance what should not count in the measured time.
    pub(crate) fn prepare_sorted(&self) {
        let _first = self.sorted(0);
    }

    /// Smallest and largest key.
    pub(crate) fn bounds(&self) -> &(Vec<u8>, Vec<u8>) {
        self.bounds.get_or_init(|| {
            let mut key = Vec::new();
            self.key_set.write(0, &mut key);
            let mut bounds = (key.clone(), key.clone());
            let others = if self.key_set.is_ordered() { self.keys - 1..self.keys } else { 1..self.keys };
            for index in others {
                self.key_set.write(index, &mut key);
                if key < bounds.0 {
                    bounds.0.clone_from(&key);
                } else if key > bounds.1 {
                    bounds.1.clone_from(&key);
                }
            }
            bounds
        })
    }

    /// Bytes of the key and the value with `index`.
    pub(crate) fn entry_bytes(&self, index: u64, key: &mut Vec<u8>) -> u64 {
        self.key_set.write(index, key);
        key.len() as u64 + self.sizes.of(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_sets_need_no_memory_for_their_order() {
        let dataset = Dataset::new(4_000_000_000, KeySet::Decimal, ValueSizes::Fixed(10), 1);
        dataset.prepare_sorted();
        assert!(dataset.sorted.get().is_none() && dataset.sorted(3_999_999_999) == 3_999_999_999);
        assert_eq!(dataset.bounds().1, b"0000003999999999");
        assert_eq!(Dataset::new(1, KeySet::Decimal, ValueSizes::Fixed(1), 1).bounds().1, b"0000000000000000");
    }

    #[test]
    fn sorted_is_sorted() {
        let dataset = Dataset::new(5000, KeySet::Url, ValueSizes::Fixed(10), 1);
        let keys: Vec<Vec<u8>> = (0..5000)
            .map(|rank| {
                let mut key = Vec::new();
                dataset.key_set.write(dataset.sorted(rank), &mut key);
                key
            })
            .collect();
        assert!(keys.is_sorted() && keys[0] == dataset.bounds().0 && keys[4999] == dataset.bounds().1);
        assert_eq!(dataset.entry_bytes(dataset.sorted(7), &mut Vec::new()), keys[7].len() as u64 + 10);
    }
}
