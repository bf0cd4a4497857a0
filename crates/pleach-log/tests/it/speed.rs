//! Measurements, not tests. `cargo test --release -p pleach-log speed -- --ignored --nocapture`.

use std::sync::Arc;

use pleach_env::{Env, FileId, RealEnv};
use pleach_log::{Append, LogWriter, ManifestHint, RecordBuf, recover};

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
                record.bytes_mut().resize(24 + payload_len, 7);
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
