//! Separated values that a dump has skipped, by their errors: values with the same error, as those of a file that is missing, are
//! told together.

use std::collections::HashMap;

use pleach::Error;

use crate::damage::tell_lost_values;

/// See the module's text.
#[derive(Default)]
pub(super) struct LostValues {
    lost: Vec<Lost>,
    /// The place of each error in `lost`.
    by_error: HashMap<String, usize>,
}

/// Values with the same error.
struct Lost {
    error: Error,
    count: u64,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl LostValues {
    /// Adds the value of `key`. Requires: keys ascend.
    pub(super) fn add(&mut self, key: Vec<u8>, error: Error) {
        let next = self.lost.len();
        let at = *self.by_error.entry(error.to_string()).or_insert(next);
        match self.lost.get_mut(at) {
            Some(lost) => {
                lost.count += 1;
                lost.last = key;
            }
            None => self.lost.push(Lost { error, count: 1, first: key.clone(), last: key }),
        }
    }

    /// How many errors there were.
    pub(super) fn places(&self) -> u64 {
        self.lost.len() as u64
    }

    /// Prints a line for each error.
    pub(super) fn tell(&self, partition: &str) {
        for Lost { error, count, first, last } in &self.lost {
            tell_lost_values(error, *count, partition, first, last);
        }
    }
}
