//! Operations, reopenings and crashes against a `BTreeMap`.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pleach::{Db, Durability, Options};
use pleach_env::{CrashPolicy, Env, SimEnv};
use pleach_fuzz::{DIR, Input};

type Model = BTreeMap<u8, BTreeMap<Vec<u8>, Vec<u8>>>;

fn open(env: &Arc<SimEnv>) -> Db {
    let options = Options::new().env(Arc::clone(env) as _).memory(1 << 20).memtable_bytes(16 << 10);
    let options = options.sst_bytes(4 << 10).clean_every(1).runs_per_stage(2).separate_at(1000);
    options.compression(env.random_u64().is_multiple_of(2)).open(DIR).expect("it opens")
}

fn key(input: &mut Input<'_>) -> Vec<u8> {
    let byte = input.byte();
    vec![byte >> 2; 1 + usize::from(byte & 3)]
}

fn batch(input: &mut Input<'_>, db: &Db, model: &mut Model) {
    let mut batch = db.batch();
    for _ in 0..=input.byte() % 4 {
        let number = input.byte() % 3;
        let partition = db.partition(&number.to_string()).expect("a partition");
        let (entries, key) = (model.entry(number).or_default(), key(input));
        if input.byte() % 4 == 0 {
            batch.delete(&partition, &key);
            entries.remove(&key);
        } else {
            let value = vec![input.byte(); input.number() % 3000];
            batch.put(&partition, &key, &value);
            entries.insert(key, value);
        }
    }
    // Synced, so that a crash loses nothing.
    batch.commit(Durability::Sync).expect("a commit");
}

fn check(db: &Db, model: &Model) {
    for (number, entries) in model {
        let partition = db.partition(&number.to_string()).expect("a partition");
        let pairs = |e: pleach::Result<(pleach::Key, pleach::Value)>| {
            e.map(|(k, v)| (k.to_vec(), v.into_vec())).expect("a scan")
        };
        assert!(partition.iter().map(pairs).eq(entries.clone()), "a scan up");
        assert!(partition.iter().rev().map(pairs).eq(entries.clone().into_iter().rev()), "a scan down");
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut env = SimEnv::new(1);
    let mut db = open(&env);
    let mut model = Model::new();
    while !input.is_empty() {
        match input.byte() % 16 {
            0 => check(&db, &model),
            1 => db.flush().expect("a flush"),
            2 => db.compact().expect("a compaction"),
            3 => {
                drop(db);
                db = open(&env);
            }
            4 => {
                let crashed =
                    env.crash_image(CrashPolicy::ALL[usize::from(input.byte()) % 6], u64::from(input.byte()));
                env.power_off();
                drop(db);
                env = crashed;
                db = open(&env);
            }
            5 => {
                let number = input.byte() % 3;
                if let Some(partition) = db.find_partition(&number.to_string()) {
                    db.drop_partition(partition).expect("a drop");
                }
                model.remove(&number);
            }
            6 => {
                let (number, key) = (input.byte() % 3, key(&mut input));
                let found =
                    db.partition(&number.to_string()).expect("a partition").get(&key).expect("a read");
                assert_eq!(found.as_deref(), model.get(&number).and_then(|m| m.get(&key)).map(Vec::as_slice));
            }
            7 | 8 => drop(env.step_job()),
            _ => batch(&mut input, &db, &mut model),
        }
    }
    check(&db, &model);
    db.verify().expect("the files are whole");
    assert!(env.read_file(&Path::new(DIR).join("CURRENT")).is_some());
});
