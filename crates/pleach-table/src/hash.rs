//! The hash of a key: computed once, used by the memtable, the filters and the tags of blocks.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash of `key` in the partition whose number is `seed`.
///
/// Filters and tags on disk depend on it: never change it without a new format version.
#[inline]
pub fn key_hash(seed: u32, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(seed))
}

/// The tag of a key in its block: a byte of the hash that does not choose the filter's line.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u8 {
    (hash & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_fixed() {
        assert_eq!(key_hash(0, b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(7, b"key"), 2_716_753_337_528_975_820);
        assert_ne!(key_hash(7, b"key"), key_hash(8, b"key"));
    }
}
