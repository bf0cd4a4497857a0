//! Tests of the index that is learned from separators: it answers every key as they do.
#![expect(clippy::indexing_slicing, reason = "a test")]

use pleach_coding::common_prefix_len;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::separators::SeparatorsBuilder;
use crate::test_keys::{key, sets};

/// The separators between blocks of `per_block` keys.
fn separators_of(keys: &mut Vec<Vec<u8>>, per_block: usize) -> Separators {
    keys.sort();
    keys.dedup();
    let mut builder = SeparatorsBuilder::default();
    let blocks: Vec<&[Vec<u8>]> = keys.chunks(per_block).collect();
    for pair in blocks.windows(2) {
        let (last, first) = (pair[0].last().unwrap(), &pair[1][0]);
        builder.boundary(first, common_prefix_len(last, first));
    }
    builder.finish()
}

/// Keys next to `key`: shorter, longer, and with another byte.
fn neighbours(key: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![[key, &[0]].concat(), [key, &[0xff]].concat()];
    for at in 0..key.len().min(24) {
        all.push(key[..at].to_vec());
        for byte in [0, key[at].wrapping_sub(1), key[at].wrapping_add(1), b'0', b'a', 0xff] {
            let mut changed = key.to_vec();
            changed[at] = byte;
            all.push(changed);
        }
    }
    all
}

/// Compares all answers, whatever the sizes are. Returns whether a model could be made.
fn check(mut keys: Vec<Vec<u8>>, per_block: usize, probes: &[Vec<u8>]) -> bool {
    let separators = separators_of(&mut keys, per_block);
    let Some(points) = Points::new(&separators) else {
        assert_eq!(separators.blocks(), 1);
        return false;
    };
    let Some(learned) = FromSeparators::of(&points) else { return false };
    assert_eq!(learned.blocks(), separators.blocks());
    for key in keys.iter().chain(probes) {
        assert_eq!(learned.find(key), separators.find(key), "{key:?}");
    }
    for suffix in points.suffixes() {
        for key in neighbours(&[&points.prefix, suffix].concat()) {
            assert_eq!(learned.find(&key), separators.find(&key), "{key:?}");
        }
    }
    true
}

proptest! {
    #[test]
    fn every_key_is_answered_as_by_separators(keys in sets(), per_block in 1usize..9, probes in vec(key(), 0..60)) {
        check(keys, per_block, &probes);
    }

    #[test]
    fn long_separators_are_kept(
        common in vec(any::<u32>(), 200..900), tied in vec((any::<u32>(), "[0-9a-f]{0,20}"), 0..12), per_block in 1usize..3,
    ) {
        let mut keys: Vec<Vec<u8>> = common.iter().map(|n| format!("k{n:08x}").into_bytes()).collect();
        for (at, tail) in &tied {
            let like = &common[*at as usize % common.len()];
            keys.push(format!("k{like:08x}{tail}").into_bytes());
        }
        prop_assert!(check(keys, per_block, &[]));
    }
}

#[test]
fn extreme_keys_are_answered_as_by_separators() {
    let probes = [vec![], vec![0], vec![255; 20], b"x".to_vec()];
    let prefixes: Vec<Vec<u8>> = (1..300).map(|n| vec![b'x'; n]).collect();
    check(prefixes, 2, &probes);
    let zeros: Vec<Vec<u8>> = (0..40).map(|n| [b"ab".as_slice(), &vec![0; n]].concat()).collect();
    assert!(check(zeros, 1, &probes));
    let bytes: Vec<Vec<u8>> = (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| vec![a, b])).collect();
    assert!(check(bytes, 7, &probes));
    let long: Vec<Vec<u8>> = (0..50u8).map(|n| [vec![7; 65_000].as_slice(), &[n]].concat()).collect();
    assert!(check(long, 1, &probes));
    let mut far = vec![vec![b'a'; 65_000]; 3];
    far[1].push(1);
    far[2][0] = b'b';
    assert!(!check(far, 1, &probes), "the keys differ too far apart");
    assert!(check(vec![b"a".to_vec(), b"b".to_vec()], 1, &probes));
}

#[test]
fn keys_that_reach_far_behind_a_few_boundaries_are_learned() {
    // Of 4000 boundaries, 20 are between keys that have 30 digits in common.
    let keys = (0..4000_u64).map(|n| format!("{:07}", n * 37).into_bytes());
    let far = (0..20_u64).map(|n| format!("{:07}{:030}", n * 37 * 190, 1).into_bytes());
    let further = (0..20_u64).map(|n| format!("{:07}{:030}", n * 37 * 190, 2).into_bytes());
    let mut keys: Vec<_> = keys.chain(far).chain(further).collect();
    assert!(check(keys.clone(), 1, &[]));
    let separators = separators_of(&mut keys, 1);
    let learned = FromSeparators::train(&separators, false).unwrap();
    assert!(learned.long.blocks.len() >= 20, "{}", learned.long.blocks.len());
    assert!(learned.own_memory() * 3 < separators.memory());
}

#[test]
fn random_keys_take_a_third_of_the_memory() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut keys: Vec<_> = (0..100_000).map(|_| format!("{:016}", rng.u64(..) >> 11).into_bytes()).collect();
    let separators = separators_of(&mut keys, 36);
    let learned = FromSeparators::train(&separators, false).unwrap();
    let memory = learned.own_memory() + learned.encoder().memory();
    assert!(memory * 3 < separators.memory(), "{memory} of {}", separators.memory());
}

#[test]
fn an_empty_separator_is_refused() {
    let separators = Separators::decode(b"\x01\0\0\0\0\x00", 2).unwrap();
    assert_eq!(separators.find(b""), 1);
    assert_eq!(FromSeparators::train(&separators, false).unwrap_err(), Obstacle::Ties);
}

#[test]
fn an_index_that_would_be_larger_is_refused() {
    let few: Vec<_> = (0..20_u32).map(|n| n.to_string().into_bytes()).collect();
    assert_eq!(
        FromSeparators::train(&separators_of(&mut few.clone(), 2), false).unwrap_err(),
        Obstacle::Larger
    );
    assert_eq!(
        FromSeparators::train(&separators_of(&mut few.clone(), 20), false).unwrap_err(),
        Obstacle::OneBlock
    );
    let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let tied =
        (0..100).map(|n| format!("{:020}{:020}{n:03}", mixed(n % 20), mixed(n % 20 + 20)).into_bytes());
    assert_eq!(
        FromSeparators::train(&separators_of(&mut tied.collect(), 1), false).unwrap_err(),
        Obstacle::Ties
    );
}
