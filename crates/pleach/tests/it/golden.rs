//! Golden test: the same history leaves the same bytes as earlier code.
//!
//! A history from a seed runs in the simulator, for each shape and with separators or learned indexes. A checksum over all
//! bytes of the store is compared with the one of earlier code. So a change of a format, of a picker or of the order of I/O
//! shows here. If such a change is intended, `PLEACH_GOLDEN=print cargo test -p pleach --test it golden -- --nocapture`
//! prints the new checksums.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::SimEnv;
use pleach::{Db, Durability, LearnedIndex, Options, Shape, Thresholds};

const DIR: &str = "/store";

/// Shape, when indexes are learned, seed, checksum of the store's files.
const GOLDEN: &[(Shape, LearnedIndex, u64, u64)] = &[
    (Shape::Forest, LearnedIndex::Never, 1, 0x9cc1_156d_ebed_b318),
    (Shape::Forest, LearnedIndex::Never, 2, 0xe104_bae9_123f_eafd),
    (Shape::ForestOverBottom, LearnedIndex::Never, 1, 0xa053_d894_ee44_2ea1),
    (Shape::ForestOverBottom, LearnedIndex::Never, 2, 0x53dd_b762_e36d_e65f),
    (Shape::Leveled, LearnedIndex::Never, 1, 0xe152_27b3_92d8_94c4),
    (Shape::Leveled, LearnedIndex::Never, 2, 0x9932_7af2_196b_bf63),
    (Shape::Forest, LearnedIndex::Always, 1, 0x8333_975f_7d64_45a4),
    (Shape::ForestOverBottom, LearnedIndex::Always, 1, 0x8cb4_cba3_4abb_f599),
    (Shape::ForestOverBottom, LearnedIndex::Always, 3, 0xa251_b3ce_9a54_aa0e),
];

#[test]
fn golden_histories_leave_the_bytes_they_left_before() {
    let found: Vec<_> =
        GOLDEN.iter().map(|&(shape, when, seed, _)| (shape, when, seed, play(shape, when, seed))).collect();
    if std::env::var_os("PLEACH_GOLDEN").is_some() {
        for (shape, when, seed, sum) in &found {
            let hex = format!("{sum:016x}");
            let quarters = [&hex[..4], &hex[4..8], &hex[8..12], &hex[12..]].join("_");
            println!("    (Shape::{shape:?}, LearnedIndex::{when:?}, {seed}, 0x{quarters}),");
        }
        return;
    }
    assert_eq!(found, GOLDEN);
}

/// The checksum of the store that a history leaves behind.
fn play(shape: Shape, when: LearnedIndex, seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let env = SimEnv::new(seed);
    let options = Options::new()
        .env(Arc::<SimEnv>::clone(&env))
        .memory(1 << 20)
        .separate_at(0)
        .learned_index(when)
        .thresholds(Thresholds { larger_models: true, ..Thresholds::default() })
        .memtable_bytes(32 << 10)
        .sst_bytes(12 << 10)
        .shape(shape)
        .compression(seed.is_multiple_of(2))
        .runs_per_stage(2 + (seed % 3) as usize);
    let mut learned = 0;
    for _session in 0..3 {
        let db = options.clone().open(DIR).unwrap();
        for round in 0..4 {
            let name = format!("partition {}", rng.u8(..3));
            if round == 3 {
                db.drop_partition(db.partition(&name).unwrap()).unwrap();
            }
            let partition = db.partition(&name).unwrap();
            write(&db, &partition, &mut rng);
            match rng.u8(..4) {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                2 => db.settle().unwrap(),
                _ => {}
            }
        }
        learned += db.stats().ssts_learned;
        db.close().unwrap();
    }
    assert_eq!(learned > 0, when == LearnedIndex::Always, "learned indexes in {learned} SSTs");
    checksum(&env)
}

fn write(db: &Db, partition: &pleach::Partition, rng: &mut Rng) {
    for _ in 0..rng.usize(100..800) {
        let key = format!("user{:05}/{}", rng.u32(..2_000), rng.u8(..3));
        let value = vec![rng.u8(..); rng.usize(..300)];
        match rng.u8(..20) {
            0 => partition.delete(&key).unwrap(),
            1 => {
                let mut batch = db.batch();
                for at in 0..rng.u32(1..40) {
                    batch.put(&db.default_partition(), format!("{key}/{at}"), &value);
                }
                batch.delete(partition, &key);
                batch.commit(Durability::Sync).unwrap();
            }
            2 => partition.put_with(&key, &value, Durability::Sync).unwrap(),
            _ => partition.put(&key, &value).unwrap(),
        }
    }
}

/// FNV-1a over names and bytes of all files.
fn checksum(env: &SimEnv) -> u64 {
    let dir = Path::new(DIR);
    let mut names = env.file_names(dir);
    names.sort_unstable();
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for name in names {
        let bytes = env.read_file(&dir.join(&name)).unwrap_or_default();
        for byte in name.bytes().chain(bytes) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    sum
}
