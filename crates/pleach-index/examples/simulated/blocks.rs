//! Blocks of 4 KiB as the builder packs them, simulated: 5 bytes of overhead for an entry, 18 bytes for the block, keys without
//! the prefix that all keys of the block share.

use pleach_index::{Cuts, GIVEN_UP_MAX};

pub(crate) const PAGE: usize = 4096;

/// Bytes of a value, unless said otherwise.
pub(crate) const VALUE_LEN: usize = 100;

const ENTRY_OVERHEAD: usize = 5;
const BLOCK_OVERHEAD: usize = 18;

/// Bytes of a block with values of `value_len` bytes.
pub(crate) fn len_of(keys: &[Vec<u8>], value_len: usize) -> usize {
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let entries: usize = keys.iter().map(|key| ENTRY_OVERHEAD + key.len() + value_len - shared).sum();
    BLOCK_OVERHEAD + shared + entries
}

/// Numbers of entries in the blocks.
pub(crate) fn pack(keys: &[Vec<u8>], value_len: usize, is_advised: bool) -> Vec<usize> {
    let len = |from: usize, to: usize| len_of(&keys[from..to], value_len);
    let (mut counts, mut cuts, mut from) = (Vec::new(), Cuts::default(), 0);
    while from < keys.len() {
        let mut most = 1;
        while from + most < keys.len() && len(from, from + most + 1) <= PAGE {
            most += 1;
        }
        let mut count = most;
        if is_advised && from + most < keys.len() {
            let mut least = most;
            while least > 1 && len(from, from + most) - len(from, from + least - 1) <= GIVEN_UP_MAX {
                least -= 1;
            }
            let around: Vec<&[u8]> = keys[from + least - 1..=from + most].iter().map(Vec::as_slice).collect();
            count = cuts.advise(least, &around);
        }
        cuts.end_block(count);
        counts.push(count);
        from += count;
    }
    counts
}
