//! Tests of both kinds: against the promise, with sets of keys that models find easy, hard and impossible.
#![expect(clippy::indexing_slicing, reason = "a test")]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::test_keys::{builder_of, key, sets};

/// Checks the promise for all keys and probes.
fn check_promise(index: &Index, blocks: &[&[Vec<u8>]], probes: &[Vec<u8>]) {
    assert_eq!(index.blocks() as usize, blocks.len());
    for key in blocks.iter().copied().flatten().chain(probes) {
        let found = index.find(key) as usize;
        assert!(found < blocks.len());
        assert!(
            found == 0 || blocks[found - 1].last().unwrap() < key,
            "{key:?} is in a block before {found}"
        );
        assert!(blocks.get(found + 1).is_none_or(|next| *key < next[0]), "{key:?} is behind {found}");
    }
}

/// Builds each kind, stores and reads it, and checks all. Returns whether a model could be made.
fn check(mut keys: Vec<Vec<u8>>, per_block: usize, probes: &[Vec<u8>]) -> bool {
    keys.sort();
    keys.dedup();
    let blocks: Vec<&[Vec<u8>]> = keys.chunks(per_block).collect();
    let mut is_learned = false;
    for choice in [IndexChoice::Separators, IndexChoice::Learned, IndexChoice::Smallest] {
        let builder = builder_of(&blocks);
        let len_max = builder.encoded_len_max();
        let (index, obstacle) = builder.finish_as(choice);
        let is_separators = index.kind() == IndexKind::Separators;
        assert_eq!(obstacle.is_some(), is_separators && choice != IndexChoice::Separators);
        is_learned |= index.kind() == IndexKind::Learned;
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        assert!(choice == IndexChoice::Learned || bytes.len() <= len_max);
        let decoded = Index::decode(&bytes, index.blocks()).unwrap();
        assert_eq!((decoded.kind(), decoded.memory()), (index.kind(), index.memory()));
        for index in [&index, &decoded] {
            check_promise(index, &blocks, probes);
        }
    }
    is_learned
}

proptest! {
    #[test]
    fn every_kind_keeps_the_promise(keys in sets(), per_block in 1usize..9, probes in vec(key(), 0..60)) {
        check(keys, per_block, &probes);
    }

    #[test]
    fn damaged_indexes_are_refused_or_answer_in_range(
        keys in sets(), per_block in 1usize..6, damage in vec((any::<u16>(), any::<u8>()), 1..4), cut in 0usize..8,
        more in 0u32..3,
    ) {
        let keys: std::collections::BTreeSet<_> = keys.into_iter().collect();
        let keys: Vec<_> = keys.into_iter().collect();
        let blocks: Vec<&[Vec<u8>]> = keys.chunks(per_block).collect();
        let index = builder_of(&blocks).finish_as(IndexChoice::Learned).0;
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        for (at, byte) in damage {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let count = index.blocks() - 1 + more;
        if let Ok(decoded) = Index::decode(&bytes, count) {
            for key in &keys {
                prop_assert!(decoded.find(key) < count);
            }
        }
    }

    #[test]
    fn a_learned_index_survives_any_bytes(bytes in vec(any::<u8>(), 0..200), blocks in 0u32..50) {
        if let Ok(index) = Index::decode(&[&[KIND_LEARNED], &*bytes].concat(), blocks) {
            prop_assert!(index.find(&bytes) < blocks);
        }
    }
}

#[test]
fn extreme_keys_keep_the_promise() {
    let probes = [vec![], vec![0], vec![255; 20], b"x".to_vec()];
    let prefixes: Vec<Vec<u8>> = (1..300).map(|n| vec![b'x'; n]).collect();
    check(prefixes, 2, &probes);
    let zeros: Vec<Vec<u8>> = (0..40).map(|n| [b"ab".as_slice(), &vec![0; n]].concat()).collect();
    check(zeros, 1, &probes);
    let bytes: Vec<Vec<u8>> = (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| vec![a, b])).collect();
    assert!(check(bytes, 7, &probes));
    let long: Vec<Vec<u8>> = (0..50u8).map(|n| [vec![7; 65_000].as_slice(), &[n]].concat()).collect();
    assert!(check(long, 1, &probes));
    let mut far = vec![vec![b'a'; 65_000]; 3];
    far[1].push(1);
    far[2][0] = b'b';
    assert!(!check(far, 1, &probes), "the keys differ too far apart");
}

#[test]
fn ties_in_64_bits_are_told_apart_in_128() {
    let wide = |n: u64| {
        [n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !15, n].map(|n| n.swap_bytes().to_le_bytes()).concat()
    };
    let keys: Vec<Vec<u8>> = (0..4000).map(wide).chain((0..4000).map(|n| wide(n % 5 + n * 16))).collect();
    assert!(check(keys, 1, &[vec![], vec![1; 20]]));
}

#[test]
fn equal_encoders_are_shared() {
    let encoders = Encoders::new();
    let mut indexes: Vec<Index> = (0..3)
        .map(|sst| {
            let mut builder = IndexBuilder::learning();
            for block in 1..1000 {
                let key = |n: u32| format!("{:016}", n + (sst / 2) * 77_777_777);
                builder.boundary(key(block * 3 - 1).as_bytes(), key(block * 3).as_bytes());
            }
            builder.finish()
        })
        .collect();
    assert!(!indexes[0].shares_with(&indexes[1]));
    for index in &mut indexes {
        index.share(&encoders);
    }
    assert!(indexes[0].shares_with(&indexes[1]));
    assert!(!indexes[0].shares_with(&indexes[2]), "another prefix");
    assert!(indexes[0].shareable_memory() < indexes[0].memory());
}

#[test]
fn a_builder_that_learns_nothing_has_no_obstacle() {
    for choice in [IndexChoice::Separators, IndexChoice::Smallest, IndexChoice::Learned] {
        let mut builder = IndexBuilder::new();
        assert_eq!(IndexBuilder::new().finish_as(choice).1, None);
        builder.boundary(b"a", b"b");
        assert_eq!(builder.finish_as(choice).1, None);
    }
    let mut tied = IndexBuilder::learning();
    let long = "a".repeat(65_000);
    tied.boundary(long.as_bytes(), format!("{long}a").as_bytes());
    tied.boundary(b"b", b"c");
    assert_eq!(tied.finish_as(IndexChoice::Learned).1, Some(Obstacle::Ties));
}

#[test]
fn a_model_of_other_blocks_or_with_bytes_behind_it_is_refused() {
    let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let random = (0..4000).map(|n| format!("{:016}", mixed(n) >> 11));
    let jumps = (0..4000).map(|n| format!("{:010}", n + n / 100 * 1777));
    let composite =
        (0..4000).map(|n| format!("t{:05}/o{:07}/{:03}", n / 900, mixed(n / 3) % 1_200_000, n % 3));
    for mut keys in [random.collect::<Vec<_>>(), jumps.collect(), composite.collect()] {
        keys.sort();
        let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
        let blocks: Vec<&[Vec<u8>]> = keys.chunks(3).collect();
        let index = builder_of(&blocks).finish_as(IndexChoice::Learned).0;
        assert_eq!(index.kind(), IndexKind::Learned);
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        let count = index.blocks();
        assert!(Index::decode(&bytes, count).is_ok());
        for other in [0, 1, 2, index.segments(), count - 1, count + 1, count + 7, u32::MAX] {
            assert!(Index::decode(&bytes, other).is_err(), "{other} of {count} blocks");
        }
        for len in (0..bytes.len()).rev().step_by(5) {
            assert!(Index::decode(&bytes[..len], count).is_err(), "{len} of {} bytes", bytes.len());
        }
        bytes.push(0);
        assert!(Index::decode(&bytes, count).is_err(), "a byte follows");
    }
}
