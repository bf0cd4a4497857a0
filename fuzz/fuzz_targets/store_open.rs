//! Changes to one file of a good store that was closed: right answers or errors.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use pleach::{Db, Durability, Options};
use pleach_env::{Capture, CrashPolicy, SimEnv};
use pleach_fuzz::{DIR, Input};

static GOOD: LazyLock<(Capture, Vec<String>)> = LazyLock::new(build);

const PARTITIONS: [&str; 3] = ["default", "many", "few"];
const KEYS: u32 = 60;

fn options(env: &Arc<SimEnv>) -> Options {
    let options = Options::new().env(Arc::clone(env) as _).memory(1 << 20).memtable_bytes(16 << 10);
    options.sst_bytes(8 << 10).separate_at(60)
}

fn value(partition: &str, key: u32, round: u32) -> Option<Vec<u8>> {
    (key % 9 != round)
        .then(|| format!("{partition} {key} {round} ").repeat(3 + key as usize % 5).into_bytes())
}

fn build() -> (Capture, Vec<String>) {
    let env = SimEnv::new(1);
    let db = options(&env).runs_per_stage(3).compression(true).open(DIR).expect("a store");
    for round in 0..5 {
        for name in PARTITIONS {
            let partition = db.partition(name).expect("a partition");
            for key in (0..KEYS).filter(|key| name != "few" || key % 30 == 0) {
                let mut batch = db.batch();
                match value(name, key, round) {
                    Some(value) => batch.put(&partition, key.to_le_bytes(), value),
                    None => batch.delete(&partition, key.to_le_bytes()),
                }
                batch.commit(Durability::Buffered).expect("a commit");
            }
        }
        if round == 3 {
            db.settle().expect("rest");
        }
    }
    db.close().expect("it closes");
    let names = env.file_names(Path::new(DIR)).into_iter().filter(|name| name != "LOCK" && name != "RESERVE").collect();
    (env.capture(), names)
}

fn check(db: &Db) {
    for name in PARTITIONS {
        let partition = db.find_partition(name).expect("the manifest is whole or refused");
        let expected: Vec<_> = (0..KEYS).filter(|key| name != "few" || key % 30 == 0).collect();
        for key in &expected {
            if let Ok(found) = partition.get(key.to_le_bytes()) {
                assert_eq!(found.as_deref(), value(name, *key, 4).as_deref(), "a wrong answer");
            }
        }
        let scanned: Result<Vec<_>, _> = partition.iter().map(|e| e.map(|(key, _)| key)).collect();
        if let Ok(scanned) = scanned {
            let live = expected.iter().filter(|key| value(name, **key, 4).is_some()).count();
            assert_eq!(scanned.len(), live, "a scan that misses entries");
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (disk, names) = &*GOOD;
    let env = disk.crash_image(CrashPolicy::Everything, 1);
    let path = Path::new(DIR).join(&names[usize::from(input.byte()) % names.len()]);
    let compacts = input.byte() % 4 == 0;
    let mut file = env.read_file(&path).expect("it is listed");
    input.damage(&mut file);
    env.write_file(&path, &file);
    let Ok(db) = options(&env).open(DIR) else { return };
    check(&db);
    if compacts {
        let _any_answer = db.compact();
        check(&db);
    }
    let _any_answer = db.verify();
});
