//! The key sets of `pleach-bench`, from its own files.

#![expect(dead_code, reason = "they have more than is used here")]
#![expect(clippy::cast_possible_truncation, reason = "places are below 2^32")]

#[path = "../../../pleach-bench/src/data/generated_text.rs"]
mod generated_text;
#[path = "../../../pleach-bench/src/data/keys.rs"]
mod keys;
#[path = "../../../pleach-bench/src/data/permutation.rs"]
mod permutation;
#[path = "../../../pleach-bench/src/data/random.rs"]
mod random;

pub(crate) use keys::KeySet;
pub(crate) use random::mix64;

/// Number of keys in the run of which an SST is a part.
const RUN: u64 = 16 * 600_000;

/// A part of a run: a sixteenth of its keys, in order, and keys among them that are missing.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) missing: Vec<Vec<u8>>,
}

impl Part {
    /// What a compaction writes: the keys between two quantiles.
    pub(crate) fn of_run(set: KeySet) -> Self {
        let mut sample: Vec<_> = (0..RUN).step_by(997).map(|index| key(set, index)).collect();
        sample.sort();
        let bound = |quantile: usize| sample[sample.len() * quantile / 16].clone();
        let range = bound(5)..bound(6);
        let keys = (0..RUN).map(|index| key(set, index)).filter(|key| range.contains(key)).collect();
        let missing = (0..RUN).map(|index| missing(set, index)).filter(|key| range.contains(key));
        Self::sorted(set.description().0.to_owned(), keys, missing.take(100_000).collect())
    }

    /// What a flush writes if keys are inserted in random order: some keys of the whole range.
    pub(crate) fn of_shuffled(set: KeySet) -> Self {
        let chosen = || (0..RUN).filter(|&index| mix64(index).is_multiple_of(16));
        let missing = chosen().take(100_000).map(|index| missing(set, index)).collect();
        let name = format!("{}-shuffle", set.description().0);
        Self::sorted(name, chosen().map(|index| key(set, index)).collect(), missing)
    }

    /// A run of `len` keys, and as many that are missing.
    pub(crate) fn run(set: KeySet, len: u64) -> Self {
        let missing = (0..len).map(|index| missing(set, index)).collect();
        Self::sorted(set.description().0.to_owned(), (0..len).map(|index| key(set, index)).collect(), missing)
    }

    fn sorted(name: String, mut keys: Vec<Vec<u8>>, missing: Vec<Vec<u8>>) -> Self {
        keys.sort();
        Self { name, keys, missing }
    }
}

fn key(set: KeySet, index: u64) -> Vec<u8> {
    let mut key = Vec::new();
    set.write(index, &mut key);
    key
}

fn missing(set: KeySet, index: u64) -> Vec<u8> {
    let mut key = Vec::new();
    set.write_missing(index, &mut key);
    key
}
