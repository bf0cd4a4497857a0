//! Tests of nodes with second heads: keys whose first heads are often equal, against a `BTreeMap`.

use std::collections::BTreeMap;

use pleach_table::key_hash;

use super::{Memtable, memtable, put, scaled};
use crate::limits::KEY_LEN_MAX;

/// Like URLs: the keys of a leaf come from few hosts, and the hosts' names share more than a head.
pub(super) fn url(n: u64) -> Vec<u8> {
    let host = ["city.org", "cityhall.co.uk", "cityhall.org", "cityhallway.org"][(n % 4) as usize];
    let folder = ["", "archive/", "archives/", "a/b/"][(n / 4 % 4) as usize];
    format!("https://www.{host}/{folder}{}", n.wrapping_mul(0x9e37_79b9) % 1_000_000).into_bytes()
}

/// Few keys at both ends share nothing with the others, so outer nodes have equal heads, and equal second heads too.
fn long_prefix(n: u64) -> Vec<u8> {
    match n % 50 {
        0 => format!("a{n}").into_bytes(),
        1 => format!("z{n}").into_bytes(),
        _ => format!("longer than two heads/{n:06}").into_bytes(),
    }
}

/// Each key is a prefix of others. A head of a key that ends in it is padded with the zeros that longer keys have there.
fn prefixes(n: u64) -> Vec<u8> {
    let letters = vec![b'k'; (n % 30) as usize];
    let zeros = vec![0; (n / 30 % 25) as usize];
    [&letters[..], &zeros, &vec![b'e'; (n / 750 % 3) as usize]].concat()
}

fn zeros(n: u64) -> Vec<u8> {
    [&vec![0; (n % 40) as usize][..], &vec![1; (n / 40 % 2) as usize], &vec![0; (n / 80 % 20) as usize]]
        .concat()
}

fn check(memtable: &std::sync::Arc<Memtable>, model: &BTreeMap<Vec<u8>, u64>, probes: &[Vec<u8>]) {
    let (tree, arena) = (&memtable.tree, &memtable.arena);
    let mut cursor = memtable.cursor(u64::MAX >> 8);
    cursor.seek_first();
    for key in model.keys() {
        assert_eq!(cursor.key(), key);
        cursor.next();
    }
    assert!(!cursor.is_valid());
    for probe in probes {
        assert_eq!(tree.find(arena, probe).is_some(), model.contains_key(probe), "{probe:?}");
        cursor.seek(probe);
        let expected = model.range(probe.clone()..).next();
        assert_eq!(cursor.is_valid().then(|| cursor.key()), expected.map(|(key, _)| &key[..]));
        cursor.seek_before(probe);
        let expected = model.range(..probe.clone()).next_back();
        assert_eq!(cursor.is_valid().then(|| cursor.key()), expected.map(|(key, _)| &key[..]));
    }
}

#[test]
fn keys_with_equal_heads_agree_with_a_model() {
    let count = if cfg!(miri) { 150 } else { 6_000 };
    for (kind, key) in [url, long_prefix, prefixes, zeros].into_iter().enumerate() {
        let mut rng = fastrand::Rng::with_seed(kind as u64);
        let mut memtable = memtable(1 << 16);
        let mut model = BTreeMap::new();
        for seq in 1..=count {
            let key = key(rng.u64(..count));
            put(&mut memtable, &key, seq, b"");
            model.insert(key, seq);
        }
        assert!(memtable.tree.second_heads() > 0, "kind {kind}");
        let cut = |mut key: Vec<u8>, len: usize| {
            key.truncate(key.len().saturating_sub(len));
            key
        };
        let probes: Vec<_> =
            (0..scaled(6_000)).map(|_| cut(key(rng.u64(..count + 100)), rng.usize(..3))).collect();
        check(&memtable, &model, &probes);
        for (key, &seq) in &model {
            let found = memtable.version(key_hash(0, key), key, u64::MAX >> 8);
            assert_eq!(found.map(|version| version.seq), Some(seq), "kind {kind}");
        }
    }
}

#[test]
fn keys_without_equal_heads_need_no_second_ones() {
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
    let digits = |n: u64| format!("{:016}", n * 7_919 % 20_000).into_bytes();
    for key in [scattered, digits] {
        let mut memtable = memtable(1 << 20);
        for n in 0..scaled(20_000) {
            put(&mut memtable, &key(n), n + 1, b"");
        }
        assert_eq!(memtable.tree.second_heads(), 0);
    }
}

/// They differ in their last bytes only, or one is a prefix of the other. Two other keys keep outer nodes from a long prefix.
#[test]
#[cfg_attr(miri, ignore = "large keys")]
fn the_longest_keys_are_told_apart() {
    let mut memtable = memtable(1 << 20);
    let mut model = BTreeMap::new();
    let keys: Vec<_> = (0..80usize)
        .map(|n| match n {
            20 => b"a".to_vec(),
            40 => b"z".to_vec(),
            _ if n % 2 == 0 => vec![b'k'; KEY_LEN_MAX - n],
            _ => {
                [&vec![b'k'; KEY_LEN_MAX - 8][..], &(n as u64 * 37 % 80).swap_bytes().to_le_bytes()].concat()
            }
        })
        .collect();
    for (seq, key) in (1..).zip(&keys) {
        put(&mut memtable, key, seq, b"");
        model.insert(key.clone(), seq);
    }
    check(&memtable, &model, &keys);
}
