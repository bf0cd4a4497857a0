//! Seeks in ranges, size estimates, and keys and values in maps.

use std::collections::{BTreeMap, HashMap, HashSet};

use pleach::{Db, Key, Options, Value};

/// A store of some runs, a memtable and tombstones, and what it holds.
fn store(dir: &std::path::Path, rng: &mut fastrand::Rng) -> (Db, BTreeMap<Vec<u8>, Vec<u8>>) {
    let db = Options::new().memory(1 << 20).open(dir).unwrap();
    let partition = db.default_partition();
    let mut model = BTreeMap::new();
    for n in 0..1_500u32 {
        let key = format!("{:03}", rng.u32(..600)).into_bytes();
        if rng.u8(..4) == 0 {
            partition.delete(&key).unwrap();
            model.remove(&key);
        } else {
            partition.put(&key, n.to_le_bytes()).unwrap();
            model.insert(key, n.to_le_bytes().to_vec());
        }
        if n % 400 == 399 {
            db.flush().unwrap();
        }
    }
    (db, model)
}

#[test]
fn a_seek_passes_over_what_lies_before_from_both_ends() {
    let seed = std::env::var("PLEACH_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut rng = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let (db, model) = store(dir.path(), &mut rng);
    let partition = db.default_partition();
    for case in 0..400 {
        let bounds = [rng.u32(..300), rng.u32(300..650)].map(|n| format!("{n:03}").into_bytes());
        let mut range = partition.range(&bounds[0][..]..&bounds[1][..]);
        let mut left: Vec<_> =
            model.range(bounds[0].clone()..bounds[1].clone()).map(|(k, _)| k.clone()).collect();
        let mut has_ended = false;
        for _ in 0..40 {
            let key = format!("{:03}", rng.u32(..650)).into_bytes();
            match rng.u8(..6) {
                0 => {
                    range.seek(&key);
                    left.retain(|other| *other >= key);
                }
                1 => {
                    range.seek_back(&key);
                    left.retain(|other| *other <= key);
                }
                choice => {
                    let up = choice < 4;
                    let found = if up { range.next() } else { range.next_back() };
                    let expected = match up {
                        _ if has_ended || left.is_empty() => None,
                        true => Some(left.remove(0)),
                        false => left.pop(),
                    };
                    has_ended |= expected.is_none();
                    let found = found.map(|entry| entry.unwrap().0.into_vec());
                    assert_eq!(found, expected, "seed {seed} case {case}");
                }
            }
        }
    }
}

#[test]
fn estimates_are_near_the_truth_and_read_no_data() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory(8 << 20).open(dir.path()).unwrap();
    let (large, small) = (db.default_partition(), db.partition("small").unwrap());
    for n in 0..40_000u32 {
        large.put(format!("{n:06}"), [7; 100]).unwrap();
    }
    for n in 0..100u32 {
        small.put(format!("{n:06}"), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    let entries = |from: u32, to: u32| {
        large.approximate_size(format!("{from:06}")..format!("{to:06}")).unwrap().entries
    };
    assert_eq!(large.approximate_size::<&[u8]>(..).unwrap().entries, 40_000);
    assert_eq!(small.approximate_size::<&[u8]>(..).unwrap().entries, 100);
    for (from, to) in [(0, 20_000), (10_000, 30_000), (39_000, 50_000), (20_000, 20_001), (30_000, 10_000)] {
        let truth = u64::from(to.min(40_000u32).saturating_sub(from));
        // A block holds some 140 entries; there are some runs, and two bounds.
        assert!(entries(from, to).abs_diff(truth) < 1_500, "{from}..{to}: {} not {truth}", entries(from, to));
    }
    let whole = large.approximate_size::<&[u8]>(..).unwrap();
    assert!(whole.bytes >= 40_000 * 106 && whole.bytes < 40_000 * 140);
}

#[expect(clippy::mutable_key_type, reason = "the bytes that a value shows never change")]
#[test]
fn keys_and_values_are_found_in_maps_by_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let (db, model) = store(dir.path(), &mut rng);
    let snapshot = db.snapshot();
    let partition = db.default_partition();
    let entries: Vec<(Key, Value)> = snapshot.iter(&partition).map(Result::unwrap).collect();
    let hashed: HashMap<Key, Value> = entries.iter().cloned().collect();
    let ordered: BTreeMap<Key, Value> = entries.iter().cloned().collect();
    let values: HashSet<Value> = entries.iter().map(|(_, value)| value.clone()).collect();
    for (key, value) in &model {
        assert_eq!(hashed.get(&key[..]).map(|v| &v[..]), Some(&value[..]));
        assert_eq!(ordered.get(&key[..]).map(|v| &v[..]), Some(&value[..]));
        assert!(values.contains(&value[..]));
    }
    let mut sorted: Vec<Value> = entries.iter().map(|(_, value)| value.clone()).collect();
    sorted.sort();
    assert!(sorted.windows(2).all(|pair| pair[0][..] <= pair[1][..]));
    let keys: Vec<_> = model.keys().collect();
    let many = snapshot.get_many(&partition, &keys).unwrap();
    assert!(many.iter().zip(model.values()).all(|(found, value)| found.as_deref() == Some(&value[..])));
    assert!(snapshot.contains(&partition, keys[0]).unwrap() && !snapshot.contains(&partition, "x").unwrap());
}

#[test]
fn memtables_that_a_snapshot_holds_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory(1 << 20).open(dir.path()).unwrap();
    let partition = db.default_partition();
    partition.put("a", vec![1; 100_000]).unwrap();
    let snapshot = db.snapshot();
    assert_eq!(db.stats().pinned_memtable_bytes, 0, "it is not flushed yet");
    db.flush().unwrap();
    assert!(db.stats().pinned_memtable_bytes >= 100_000);
    drop(snapshot);
    assert_eq!(db.stats().pinned_memtable_bytes, 0);
}
