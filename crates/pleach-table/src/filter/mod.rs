//! The filter of an SST: a Bloom filter in lines of 512 bits, so that a test touches one cache line.
//!
//! A key's hash chooses a line and a few bits in it. A key whose bits are not all set is not in the SST.
//!
//! # On disk
//! Layout: docs/format/sst.md, filter block.
//!
//! # Cost
//! One cache miss a test. [`Filter::prefetch`] starts it early, so that the misses of several filters overlap.
//!
//! # Origin
//! Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters (2007). `SifrDB` 3.3 keeps one per SST.

mod builder;
mod rate;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use builder::FilterBuilder;
pub use rate::{false_positive_rate, probes_for};
pub use reader::Filter;

/// Bits of a line.
const LINE_BITS: usize = 512;
/// Bytes of a line.
const LINE_LEN: usize = LINE_BITS / 8;
/// Bytes before the lines: probes, three zeros, number of lines.
const HEAD_LEN: usize = 8;
/// Bits that a key sets at most.
const PROBES_MAX: u32 = 2 * FIELDS;

/// The line of `lines` that a hash belongs to.
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Number of positions in a word of hash; each is a field of 9 bits.
const FIELDS: u32 = 7;
const FIELD_BITS: u32 = 9;

/// The words whose fields, from the lowest on, are the positions that a hash sets in its line. The second word is used only if
/// a key sets more than [`FIELDS`] bits.
#[inline]
fn position_words(hash: u64) -> [u64; 2] {
    let low = mix(hash);
    [low, mix(low)]
}

/// The first `count` fields of `word`, each below [`LINE_BITS`].
#[inline]
fn fields(word: u64, count: u32) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| (word >> (FIELD_BITS * i) & 511) as usize)
}

#[inline]
fn mix(hash: u64) -> u64 {
    let product = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}
