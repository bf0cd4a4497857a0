//! How many blocks a read takes without a cache: one for a key that is there and for a false positive of the filter, at most
//! two for a seek. For all generated key sets and all ways to make an index.

use std::sync::Arc;

use pleach_env::SimEnv;
use pleach_table::{
    Codec, CursorMode, FrameCache, IndexChoice, IndexKind, Sst, SstCursor, SstOptions, ValueKind,
};

use crate::data::{KeySet, Part, mix64};
use crate::support::{Entries, build, get, hash, machine, open};

/// Keys of an SST: about 100 blocks.
const KEYS: u64 = 3000;
/// One of so many keys is looked up. Arbitrary.
const STEP: usize = 7;

/// How an index comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Separators,
    Learned,
    LearnedFromSeparators,
}

/// Entries of a part, values of lengths from 50 to 150, and a filter so small that many absent keys pass it. `None` if the keys
/// have no such index.
fn sst_of(part: &Part, index: Index, codec: Codec) -> Option<(Arc<SimEnv>, Arc<Sst>)> {
    let value = |no: usize| vec![7; 50 + usize::try_from(mix64(no as u64) % 101).unwrap()];
    let entries: Entries =
        part.keys.iter().enumerate().map(|(no, key)| (key.clone(), (ValueKind::Put, value(no)))).collect();
    let choice = if index == Index::Learned { IndexChoice::Learned } else { IndexChoice::Separators };
    let options = SstOptions { codec, filter_bits_per_key: 2.0, index: choice, ..SstOptions::default() };
    let (sim, env) = machine();
    let summary = build(&env, &entries, options);
    let mut sst = open(&env, Some(&summary), &FrameCache::new(0)).unwrap();
    if index == Index::LearnedFromSeparators {
        sst = Arc::new(sst.learn_index(IndexChoice::Learned).ok()?);
        assert!(sst.has_index_from_separators());
    }
    let is_learned = sst.index_kind() == IndexKind::Learned;
    (is_learned == (index != Index::Separators)).then_some((sim, sst))
}

/// Numbers of reads and of bytes that `read` takes.
fn reads_of(sim: &SimEnv, read: impl FnOnce()) -> (u64, u64) {
    let before = (sim.read_count(), sim.read_bytes());
    read();
    (sim.read_count() - before.0, sim.read_bytes() - before.1)
}

/// Looks `key` up, and checks that this reads its block and nothing else, or nothing if the filter excludes it. Returns whether
/// the key passed the filter.
fn check_get(sim: &SimEnv, sst: &Sst, key: &[u8], is_there: bool) -> bool {
    let passes = sst.may_contain(hash(key));
    let one = (1, u64::from(sst.block_extent(sst.block_for(key)).1));
    let reads = reads_of(sim, || assert_eq!(get(sst, key).unwrap().is_some(), is_there, "{key:?}"));
    assert_eq!(reads, if passes { one } else { (0, 0) }, "{key:?}, there: {is_there}");
    passes
}

/// Seeks `target` both ways in a new cursor, and checks answers and reads.
fn check_seeks(sim: &SimEnv, sst: &Arc<Sst>, keys: &[Vec<u8>], target: &[u8]) {
    let place = keys.partition_point(|key| key.as_slice() < target);
    let mut cursor = SstCursor::new(sst.clone(), CursorMode::Cached);
    let (reads, _) = reads_of(sim, || cursor.seek(target).unwrap());
    assert!((1..=2).contains(&reads), "{reads} reads of a seek of {target:?}");
    let found = cursor.valid().then(|| cursor.key().to_vec());
    assert_eq!(found.as_ref(), keys.get(place), "{target:?}");
    let mut cursor = SstCursor::new(sst.clone(), CursorMode::Cached);
    let (reads, _) = reads_of(sim, || cursor.seek_before(target).unwrap());
    assert!((1..=2).contains(&reads), "{reads} reads of a seek below {target:?}");
    let found = cursor.valid().then(|| cursor.key().to_vec());
    assert_eq!(found.as_ref(), place.checked_sub(1).and_then(|place| keys.get(place)), "{target:?}");
}

fn check(part: &Part, index: Index, codec: Codec) -> bool {
    let Some((sim, sst)) = sst_of(part, index, codec) else { return false };
    let mut false_positives = 0;
    for (key, missing) in part.keys.iter().zip(&part.missing).step_by(STEP) {
        assert!(check_get(&sim, &sst, key, true), "a filter passes keys that are there");
        let behind = [key, b"\0".as_slice()].concat();
        let before = &key[..key.len() - 1];
        for absent in [missing, &behind, before].into_iter().filter(|key| !key.is_empty()) {
            let is_there = part.keys.binary_search_by(|key| key.as_slice().cmp(absent)).is_ok();
            false_positives += usize::from(check_get(&sim, &sst, absent, is_there) && !is_there);
        }
        for target in [key, missing, &behind, before] {
            check_seeks(&sim, &sst, &part.keys, target);
        }
    }
    assert!(false_positives > 100, "{false_positives} false positives");
    true
}

#[test]
fn a_get_reads_one_block_and_a_seek_at_most_two_on_all_key_sets() {
    for set in KeySet::ALL {
        let part = Part::run(set, KEYS);
        for index in [Index::Separators, Index::Learned, Index::LearnedFromSeparators] {
            for codec in [Codec::None, Codec::Lz4] {
                let has_index = check(&part, index, codec);
                let ties = matches!(set, KeySet::Url | KeySet::Path);
                assert!(has_index || ties && index != Index::Separators, "{index:?} of {set:?}, {codec:?}");
            }
        }
    }
}
