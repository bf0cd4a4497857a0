//! Measurements, not tests. `cargo test --release -p pleach-log speed -- --ignored --nocapture`.

use std::sync::Arc;

use pleach_env::{Env, FileId, RealEnv};
use pleach_log::{Append, LogWriter, ManifestHint, RECORD_HEADER_LEN, RecordBuf, recover};

#[test]
#[ignore = "a measurement"]
fn speed_of_appending_and_recovering() {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let dir = std::env::temp_dir().join(format!("pleach-log-speed-{}", std::process::id()));
    env.create_dir_all(&dir).unwrap();
    for (payload_len, group_len, groups) in
        [(100_usize, 1_u64, 400_000_u64), (100, 16, 40_000), (1000, 1, 60_000)]
    {
        let mut log =
            LogWriter::create(Arc::clone(&env), &dir, FileId(1), ManifestHint::NONE, 256 << 20, 0).unwrap();
        let mut records: Vec<_> = (0..group_len).map(|_| RecordBuf::with_capacity(payload_len)).collect();
        let start = env.now();
        for group in 0..groups {
            log.append(records.iter_mut().zip(1..).map(|(record, number)| {
                record.clear();
                record.bytes_mut().resize(RECORD_HEADER_LEN + payload_len, 7);
                Append { record, first_seq: group * group_len + number, count: 1 }
            }))
            .unwrap();
        }
        let appended = env.now().saturating_sub(start);
        let start = env.now();
        let found = recover(&env, &dir, &[FileId(1)], 1, &mut |_| Ok(())).unwrap();
        let recovered = env.now().saturating_sub(start);
        println!(
            "{payload_len} bytes, {group_len} a group: {} ns a record; recovery of {} MiB and a 256 MiB segment: {recovered:?}",
            appended.as_nanos() / u128::from(groups * group_len),
            found.bytes >> 20,
        );
        env.remove_file(&pleach_log::segment_path(&dir, FileId(1))).unwrap();
    }
    println!("left behind: the empty directory {}", dir.display());
}

/// Bytes as people store them, and random ones first.
fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    const LEN: usize = 64 << 20;
    let mut noise = vec![0; LEN];
    fastrand::Rng::with_seed(1).fill(&mut noise);
    let words = |f: &dyn Fn(u32) -> u32| (0..1 << 24).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>();
    let millis = |i: u64| 1_700_000_000_000 + 17 * i;
    let path = |i| format!("/srv/data/{:04}/{:02}/report-{i:08}.csv\n", i / 1000 % 3000, i % 100);
    vec![
        ("random", noise),
        ("zeros", vec![0; LEN]),
        ("u32 of 1001", words(&|_| 1001)),
        ("u32 of 257", words(&|_| 257)),
        ("u32 ids", words(&|i| i)),
        ("milliseconds", (0..1 << 23).flat_map(|i| millis(i).to_le_bytes()).collect()),
        ("paths", (0_u64..).flat_map(|i| path(i).into_bytes()).take(LEN).collect()),
        ("a log", log_bytes(LEN)),
    ]
}

/// Another log's bytes.
fn log_bytes(len: usize) -> Vec<u8> {
    let machine = crate::support::Machine::new();
    let mut log = machine.log(1, len as u64, 0);
    while log.offset() < len as u64 {
        let group: Vec<_> = (1..=100).map(|i| crate::support::logged(log.last_seq() + i, 1, 100)).collect();
        crate::support::append(&mut log, &group).unwrap();
    }
    let mut bytes = machine.read(1);
    bytes.truncate(len);
    bytes
}

/// Logs of 1 GiB with a lost page near the start: one of records of 1,000 bytes, and one whose other headers are lost too.
#[test]
#[ignore = "a measurement, with 1 GiB on the disk"]
fn speed_of_deciding_about_a_gibibyte() {
    const LEN: u64 = 1 << 30;
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let dir = std::env::temp_dir().join(format!("pleach-log-decide-{}", std::process::id()));
    env.create_dir_all(&dir).unwrap();
    let path = pleach_log::segment_path(&dir, FileId(1));
    let bodies = bodies();
    for is_log in [true, false] {
        let mut times = Vec::new();
        for (name, body) in &bodies {
            let mut log =
                LogWriter::create(Arc::clone(&env), &dir, FileId(1), ManifestHint::NONE, LEN, 0).unwrap();
            let mut record = RecordBuf::new();
            let mut number = 0;
            while is_log && log.offset() < LEN - 2000 {
                record.clear();
                let at = usize::try_from(log.offset()).unwrap() % (body.len() - 1000);
                record.bytes_mut().extend_from_slice(&body[at..at + 1000]);
                number += 1;
                log.append([Append { record: &mut record, first_seq: number, count: 1 }]).unwrap();
            }
            let options = pleach_env::OpenOptions { write: true, ..Default::default() };
            let file = env.open_file(&path, options).unwrap();
            let mut at = 8192;
            while !is_log && at < LEN {
                file.write_all_at(body, at).unwrap();
                at += body.len() as u64;
            }
            file.write_all_at(&[0; 4096], 4096).unwrap();
            let mut runs: Vec<_> = (0..5)
                .map(|_| {
                    let start = env.now();
                    let found = recover(&env, &dir, &[FileId(1)], 1, &mut |_| Ok(())).unwrap();
                    (env.now().saturating_sub(start), found)
                })
                .collect();
            runs.sort_by_key(|run| run.0);
            let (time, found) = runs[2];
            times.push(time.as_secs_f64());
            println!(
                "{name}, {}: {time:?}, {:.2} of random; {} records dropped, {} MiB; {} MiB examined",
                if is_log { "records" } else { "no header" },
                time.as_secs_f64() / times[0],
                found.dropped_records,
                found.dropped_bytes >> 20,
                found.examined_bytes >> 20,
            );
            env.remove_file(&path).unwrap();
        }
    }
    println!("left behind: the empty directory {}", dir.display());
}
