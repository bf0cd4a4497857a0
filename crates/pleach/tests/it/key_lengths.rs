//! Keys of all lengths that are legal: the empty one, and those beyond 64 KiB up to 1 MiB.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach::env::{CrashPolicy, SimEnv};
use pleach::limits::KEY_LEN_MAX;
use pleach::{Db, Durability, ErrorKind, LearnedIndex, Options, Partition, repair};

use crate::rig::setup::DIR;

type Expected = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that share long prefixes, around each length at which a format has an edge.
fn keys() -> Vec<Vec<u8>> {
    let lens = [
        0,
        1,
        2,
        65_534,
        65_535,
        65_536,
        65_539,
        65_540,
        131_070,
        131_071,
        300_000,
        KEY_LEN_MAX - 1,
        KEY_LEN_MAX,
    ];
    let long = lens.iter().flat_map(|&len| [b'a', b'k'].map(|byte| vec![byte; len]));
    let last = (0..3).map(|last| [vec![b'k'; KEY_LEN_MAX - 1], vec![last]].concat());
    let short = (0..200).map(|n| format!("k{n:06}").into_bytes());
    let mut keys: Vec<_> = long.chain(last).chain(short).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn fill(partition: &Partition, values: usize, expected: &mut Expected) {
    for (n, key) in (0..).zip(keys()) {
        let value = vec![n; values];
        partition.put(&key, &value).unwrap();
        expected.insert(key, value);
    }
}

fn check(partition: &Partition, expected: &Expected) {
    for (key, value) in expected {
        assert_eq!(partition.get(key).unwrap().as_deref(), Some(&value[..]), "a key of {} bytes", key.len());
    }
    let up: Vec<_> = partition.iter().map(|entry| entry.unwrap()).collect();
    assert!(
        up.iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .eq(expected.iter().map(|(k, v)| (&k[..], &v[..])))
    );
    let down = partition.iter().rev().map(|entry| entry.unwrap().0.to_vec());
    assert!(down.eq(expected.keys().rev().cloned()));
    let read = partition.get_many(expected.keys()).unwrap();
    assert!(read.iter().map(Option::as_deref).eq(expected.values().map(|value| Some(&value[..]))));
    let mut cursor = partition.cursor().unwrap();
    for key in expected.keys() {
        assert!(cursor.seek(key).unwrap());
        assert_eq!(cursor.key(), Some(&key[..]));
        assert!(cursor.seek_for_prev(key).unwrap());
        assert_eq!(cursor.key(), Some(&key[..]));
    }
    // Bounds of a range.
    let bounds: Vec<_> = expected.keys().step_by(expected.len() / 5).cloned().collect();
    for pair in bounds.windows(2) {
        let found = partition.range(pair[0].clone()..pair[1].clone()).count();
        assert_eq!(found, expected.range(pair[0].clone()..pair[1].clone()).count());
    }
}

fn variants() -> Vec<(Arc<SimEnv>, Options)> {
    let base = |seed| {
        let env = SimEnv::new(seed);
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(32 << 20);
        (env, options)
    };
    let mut variants = Vec::new();
    for seed in 0..4 {
        let (env, options) = base(seed);
        let options = match seed {
            0 => options,
            1 => options.compression(true).separate_at(64),
            2 => options.learned_index(LearnedIndex::Always).sst_bytes(4 << 20),
            _ => options.learned_index(LearnedIndex::Never).separate_at(64).sst_bytes(64 << 10),
        };
        variants.push((env, options));
    }
    variants
}

#[test]
fn keys_of_all_lengths_are_found_wherever_they_are() {
    for (env, options) in variants() {
        let db = options.clone().open(DIR).unwrap();
        let (default, other) = (db.default_partition(), db.partition("other").unwrap());
        let mut expected = Expected::new();
        fill(&default, 10, &mut expected);
        check(&default, &expected);
        // Both partitions share a flush file.
        fill(&other, 100, &mut Expected::new());
        db.flush().unwrap();
        check(&default, &expected);
        fill(&default, 200, &mut expected);
        db.flush().unwrap();
        check(&default, &expected);
        db.compact().unwrap();
        check(&default, &expected);
        db.verify().unwrap();
        for key in keys().into_iter().step_by(3) {
            default.delete(&key).unwrap();
            expected.remove(&key);
        }
        check(&default, &expected);
        default.put(b"last", b"1").unwrap();
        expected.insert(b"last".to_vec(), b"1".to_vec());
        db.sync().unwrap();
        drop((default, other));
        let image = env.crash_image(CrashPolicy::DurableOnly, 1);
        drop(db);
        let options = options.env(image);
        let db = options.clone().open(DIR).unwrap();
        check(&db.default_partition(), &expected);
        db.compact().unwrap();
        check(&db.default_partition(), &expected);
        db.close().unwrap();
        let report = repair(DIR, "/salvaged", options.clone(), &mut |_, _| true).unwrap();
        assert!(report.complete, "{report:?}");
        let db = options.open("/salvaged").unwrap();
        check(&db.default_partition(), &expected);
    }
}

#[test]
fn a_longer_key_is_refused_before_anything_is_written() {
    let db = Options::new().env(SimEnv::new(1)).memory(16 << 20).open(DIR).unwrap();
    let partition = db.default_partition();
    let too_long = vec![0; KEY_LEN_MAX + 1];
    assert_eq!(partition.put(&too_long, b"").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(partition.delete(&too_long).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(partition.get(&too_long).unwrap_err().kind(), ErrorKind::InvalidArgument);
    // As a bound it is like any other.
    assert_eq!(partition.range(too_long..).count(), 0);
}

/// Two small partitions: their sections share a file.
#[test]
fn the_empty_key_is_found_in_a_section() {
    let db = Options::new().env(SimEnv::new(1)).memory(16 << 20).open(DIR).unwrap();
    let partitions = [db.default_partition(), db.partition("other").unwrap()];
    for partition in &partitions {
        partition.put(b"", b"first").unwrap();
        partition.put(b"k", b"second").unwrap();
    }
    db.flush().unwrap();
    for partition in &partitions {
        assert_eq!(partition.get(b"").unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(partition.iter().count(), 2);
    }
}

#[test]
fn the_empty_key_is_the_first() {
    let db = Options::new().env(SimEnv::new(1)).memory(16 << 20).open(DIR).unwrap();
    let partition = db.default_partition();
    let mut batch: pleach::WriteBatch = db.batch();
    batch.put(&partition, b"", b"first");
    batch.put(&partition, b"\0", b"second");
    batch.commit(Durability::Sync).unwrap();
    for _ in 0..2 {
        let keys: Vec<_> = partition.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
        assert_eq!(keys, [&b""[..], b"\0"]);
        assert_eq!(partition.range(..&b"\0"[..]).count(), 1);
        assert_eq!(partition.range(&b""[..]..=b"").count(), 1);
        assert_eq!(partition.prefix(b"").count(), 2);
        db.flush().unwrap();
        Db::compact(&db).unwrap();
    }
    partition.delete(b"").unwrap();
    db.compact().unwrap();
    assert_eq!(partition.get(b"").unwrap().as_deref(), None);
    assert_eq!(partition.iter().count(), 1);
}
