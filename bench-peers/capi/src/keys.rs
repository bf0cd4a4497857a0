//! The keys of the benchmark's key set `random16`, made by its own sources.

#![expect(dead_code, reason = "the sources have more than is used here")]
#![expect(clippy::cast_precision_loss, reason = "as in the benchmark, where they are at home")]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "their tests use small numbers"))]

#[path = "../../../crates/pleach-bench/src/data/permutation.rs"]
mod permutation;
#[path = "../../../crates/pleach-bench/src/data/random.rs"]
mod random;

use permutation::Permutation;
use pleach_bench::Result;

/// Bytes of a key.
pub(crate) const KEY_LEN: usize = 16;

/// So many keys there are.
const KEYS: u64 = 10_u64.pow(16);

/// The key with `index`: 16 digits that have no visible order.
pub(crate) fn key(index: u64) -> Result<[u8; KEY_LEN]> {
    if index >= KEYS {
        return Err(format!("there is no key {index}: there are {KEYS}").into());
    }
    let mut number = Permutation::new(KEYS, 0).apply(index);
    let mut key = [b'0'; KEY_LEN];
    for digit in key.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    Ok(key)
}
