//! Records of a checkpoint, beside the map's entries: which store and which state of it they belong to.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md.

use pleach::Result;

use crate::numbers::{self, malformed};

/// The record of the newest checkpoint: rows at and above its sequences, with its version or a later one, are not in it.
pub(crate) const CHECKPOINT: &str = "checkpoint-3";
/// The record that a checkpoint writes first: its entries name no sequence at or above these.
pub(crate) const ENDS: &str = "ends-3";
/// The record that says which generation is the newest of which rows of writers may be in runs.
pub(super) const RUNS_OF_WRITERS: &str = "runs-of-writers";

/// What a checkpoint says of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// A number of the store's identity, and the map's own number.
    pub(crate) identity: [u64; 2],
    /// The number of the checkpoint.
    pub(crate) number: u64,
    pub(crate) generation: u64,
    /// All that earlier versions wrote is in the entries.
    pub(crate) version: u64,
    /// A sequence for each stripe.
    pub(crate) sequences: Vec<u64>,
    /// The same for the generation before, while it may have rows.
    pub(crate) previous: Option<Vec<u64>>,
}

impl Record {
    pub(crate) fn encode(&self, name: &str) -> Vec<u8> {
        let [first, second] = self.identity;
        let mut numbers = vec![first, second, self.number, self.generation, self.version];
        numbers.push(self.sequences.len() as u64);
        numbers.extend(&self.sequences);
        numbers.extend(self.previous.iter().flatten());
        numbers::encode(name, &numbers)
    }

    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let numbers = numbers::decode(name, bytes)?;
        let [first, second, number, generation, version, count, sequences @ ..] = &numbers[..] else {
            return Err(malformed(name));
        };
        let count = usize::try_from(*count).map_err(|_| malformed(name))?;
        let (sequences, rest) = sequences.split_at_checked(count).ok_or_else(|| malformed(name))?;
        let has_previous = count > 0 && !rest.is_empty();
        let previous_len = if has_previous { count } else { 0 };
        let (previous, rest) = rest.split_at_checked(previous_len).ok_or_else(|| malformed(name))?;
        if !rest.is_empty() {
            return Err(malformed(name));
        }
        Ok(Self {
            identity: [*first, *second],
            number: *number,
            generation: *generation,
            version: *version,
            sequences: sequences.to_vec(),
            previous: has_previous.then(|| previous.to_vec()),
        })
    }
}

/// The record [`RUNS_OF_WRITERS`].
pub(super) fn encode_runs_of_writers(generation: u64) -> Vec<u8> {
    numbers::encode(RUNS_OF_WRITERS, &[generation])
}

/// The generation that a record [`RUNS_OF_WRITERS`] names.
pub(super) fn decode_runs_of_writers(bytes: &[u8]) -> Result<u64> {
    match numbers::decode(RUNS_OF_WRITERS, bytes)?[..] {
        [generation] => Ok(generation),
        _ => Err(malformed(RUNS_OF_WRITERS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        for previous in [None, Some(vec![7, 1])] {
            let record = Record {
                identity: [u64::MAX, 2],
                number: 3,
                generation: 1,
                version: 500,
                sequences: vec![1, 1 << 40],
                previous,
            };
            assert_eq!(Record::decode(ENDS, &record.encode(ENDS)).unwrap(), record);
            assert!(Record::decode(CHECKPOINT, &record.encode(ENDS)).is_err());
        }
        for numbers in [&[1, 2, 3, 4, 5, 2, 1][..], &[1, 2, 3, 4, 5, 1, 1, 1, 1], &[1, 2, 3, 4, 5, 0, 1, 7]] {
            assert!(Record::decode(ENDS, &numbers::encode(ENDS, numbers)).is_err());
        }
    }

    #[test]
    fn the_generation_of_runs_of_writers_comes_back() {
        let bytes = encode_runs_of_writers(300);
        assert_eq!(decode_runs_of_writers(&bytes).unwrap(), 300);
        for bytes in [&bytes[..bytes.len() - 1], &numbers::encode(ENDS, &[300])] {
            assert!(decode_runs_of_writers(bytes).is_err());
        }
        for numbers in [&[][..], &[1, 2]] {
            assert!(decode_runs_of_writers(&numbers::encode(RUNS_OF_WRITERS, numbers)).is_err());
        }
    }
}
