//! Tests of the separators index: against a linear search, fixed bytes, damaged bytes.
#![expect(clippy::indexing_slicing, reason = "a test")]

use super::*;
use crate::{Index, IndexBuilder};
use proptest::prelude::*;

/// Blocks given by their keys; returns the index and each key's block.
fn build(blocks: &[Vec<Vec<u8>>]) -> Index {
    let mut builder = IndexBuilder::new();
    for pair in blocks.windows(2) {
        builder.boundary(pair[0].last().unwrap(), &pair[1][0]);
    }
    builder.finish()
}

/// The right answer of `find`, by a look at every block.
fn linear(blocks: &[Vec<Vec<u8>>], key: &[u8]) -> u32 {
    u32::try_from(blocks.iter().skip(1).filter(|b| b[0].as_slice() <= key).count()).unwrap()
}

fn check(keys: &[Vec<u8>], per_block: usize, absent: &[Vec<u8>]) {
    let blocks: Vec<Vec<Vec<u8>>> = keys.chunks(per_block).map(<[_]>::to_vec).collect();
    if blocks.is_empty() {
        return;
    }
    let built = build(&blocks);
    let mut bytes = Vec::new();
    built.encode(&mut bytes);
    let decoded = Index::decode(&bytes, built.blocks()).unwrap();
    for index in [&built, &decoded] {
        assert_eq!(index.blocks() as usize, blocks.len());
        for key in keys {
            assert_eq!(index.find(key), linear(&blocks, key), "present key");
        }
        for key in absent {
            let found = index.find(key);
            assert!(found < index.blocks());
            // An absent key between two blocks may fall to either; elsewhere the answer is exact.
            let exact = linear(&blocks, key);
            let between = blocks
                .get(exact as usize + 1)
                .is_some_and(|next| key > blocks[exact as usize].last().unwrap() && *key < next[0]);
            assert!(found == exact || (between && found == exact + 1));
        }
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..12),
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 1..20),
        "[a-c]{1,4}/shared/prefix/[a-d]{0,12}".prop_map(String::into_bytes),
        (0u32..10_000).prop_map(|n| format!("user{n:08}").into_bytes()),
    ]
}

proptest! {
    #[test]
    fn find_agrees_with_linear_search(
        keys in proptest::collection::btree_set(key(), 1..300),
        absent in proptest::collection::vec(key(), 0..50),
        per_block in 1usize..8,
    ) {
        check(&keys.into_iter().collect::<Vec<_>>(), per_block, &absent);
    }

    #[test]
    fn decode_survives_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), blocks in 0u32..50) {
        if let Ok(index) = Index::decode(&[&[KIND_SEPARATORS], &*bytes].concat(), blocks) {
            prop_assert!(index.find(&bytes) < blocks);
        }
    }
}

#[test]
fn separators_that_differ_only_in_trailing_zeros_are_told_apart() {
    let keys: Vec<Vec<u8>> = (1..40).map(|n| [b"ab".as_slice(), &vec![0; n]].concat()).collect();
    check(&keys, 1, &[b"a".to_vec(), b"ab".to_vec(), b"ab\x01".to_vec()]);
}

#[test]
fn separators_beyond_eight_shared_bytes_are_told_apart() {
    let keys: Vec<_> = (0..500).map(|n| format!("a/{:020}/{:03}", n / 250, n).into_bytes()).collect();
    check(&keys, 3, &[b"a/".to_vec(), b"zzz".to_vec(), vec![0]]);
}

#[test]
fn one_block_is_always_the_answer() {
    let index = IndexBuilder::new().finish();
    assert_eq!((index.blocks(), index.find(b""), index.find(b"\xff")), (1, 0, 0));
}

#[test]
fn the_separator_is_as_short_as_can_be() {
    assert_eq!(shortest_separator(b"banana", 0), b"b");
    assert_eq!(shortest_separator(b"apple2", 5), b"apple2");
    assert_eq!(shortest_separator(b"abxyz", 2), b"abx");
}

#[test]
fn stored_bytes_are_fixed() {
    let mut builder = IndexBuilder::new();
    builder.boundary(b"key01", b"key02");
    builder.boundary(b"key1", b"key1\0more");
    let mut bytes = Vec::new();
    builder.finish().encode(&mut bytes);
    assert_eq!(bytes, b"\x01\x03\0\0\0key\x0202\x021\0");
}

#[test]
fn decode_rejects_what_encode_never_writes() {
    let rejected = |bytes: &[u8], blocks, expected: &str| {
        assert_eq!(Index::decode(bytes, blocks).unwrap_err().expected, expected);
    };
    rejected(b"\0\0\0\0\0", 1, "an index kind this build knows");
    rejected(b"\x01\0\0\0\0", 0, "at least one data block");
    rejected(b"\x01\xff\xff\xff\xff", 1, "a prefix within the index block");
    rejected(b"\x01\0\0\0\0\x01b\x01a", 3, "separators in ascending order");
    rejected(b"\x01\0\0\0\0\x01b", 1_000_000, "a separator for each pair of blocks");
    rejected(b"\x01\0\0\0\0\x01b\x01", 2, "the end of the index");
    rejected(b"\x01\0\0\0\0\xff\xff\xff\xff", 2, "a length");
}

#[test]
fn a_search_tells_the_memory_that_it_will_read() {
    let boundaries: Vec<Vec<u8>> =
        (0..5000_u64).map(|n| [&b"prefix"[..], &head_bytes(n << 50)].concat()).collect();
    let mut builder = SeparatorsBuilder::default();
    for boundary in &boundaries {
        builder.boundary(boundary, boundary.len() - 1);
    }
    let index = builder.finish();
    let heads = index.heads.as_ptr_range();
    for key in &boundaries {
        assert!(index.reads(key, SearchStage::Table).is_some());
        let place = index.reads(key, SearchStage::Keys).unwrap();
        assert!((heads.start.cast()..heads.end.cast()).contains(&place));
        let found = heads.start.wrapping_add(index.find(key) as usize - 1).cast::<u8>();
        assert!(found.addr().abs_diff(place.addr()) < 16 * 8, "in the line, or the one next to it");
    }
    for key in [&b"other"[..], b"", b"prefix"] {
        for stage in [SearchStage::Table, SearchStage::Keys] {
            let _may_read_nothing = index.reads(key, stage);
        }
    }
}
