//! The filter of an SST: a Bloom filter in lines of 512 bits, so that a test touches one cache line.
//!
//! A key's hash chooses a line and a few bits in it. A key whose bits are not all set is not in the SST.
//!
//! # On disk
//! Layout: docs/format/sst.md, filter block.
//!
//! # Cost
//! One cache miss a test, which [`Filter::prefetch`] can start early for many filters at once.
//!
//! # Origin
//! Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters (2007). `SifrDB` 3.3 keeps one per SST.

mod builder;
mod rate;
mod reader;

pub(crate) use builder::FilterBuilder;
pub use rate::{false_positive_rate, probes_for};
pub(crate) use reader::Filter;

/// Bits of a line.
const LINE_BITS: usize = 512;
/// Bytes of a line.
const LINE_LEN: usize = LINE_BITS / 8;
/// Bytes before the lines: probes, three zeros, number of lines.
const HEAD_LEN: usize = 8;
/// Positions that one 64-bit word of hash can give.
const PROBES_MAX: u32 = 14;

/// The line of `lines` that a hash belongs to.
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The bits of its line that a hash sets, of which the first `probes` count.
#[inline]
fn positions(hash: u64) -> impl Iterator<Item = usize> {
    let low = mix(hash);
    let high = mix(low);
    (0..7)
        .map(move |i| (low >> (9 * i) & 511) as usize)
        .chain((0..7).map(move |i| (high >> (9 * i) & 511) as usize))
}

#[inline]
fn mix(hash: u64) -> u64 {
    let product = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}
