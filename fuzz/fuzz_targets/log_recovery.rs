//! A log segment of any bytes behind a good header, and one that follows it.
#![no_main]

use std::path::Path;

use pleach_env::{FileId, failpoint};
use pleach_fuzz::{DIR, Input, machine};
use pleach_log::{Append, LogWriter, ManifestHint, RecordBuf, recover, segment_path};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (env, machine) = machine();
    let dir = Path::new(DIR);
    let (first, second) = (FileId(1), FileId(2));
    let mut log = LogWriter::create(machine.clone(), dir, first, ManifestHint::NONE, 4096, 0).expect("a log");
    let mut seq = 1;
    for _ in 0..input.byte() % 4 {
        let mut record = RecordBuf::new();
        let len = usize::from(input.byte());
        record.bytes_mut().extend_from_slice(input.bytes(len));
        log.append([Append { record: &mut record, first_seq: seq, count: 1 }]).expect("an append");
        seq += 1;
    }
    let synced = input.byte() % 2 == 0;
    if synced {
        log.sync().expect("a sync");
    }
    log.rotate(second, ManifestHint::NONE).expect("a second segment");
    let skipped = if input.byte() % 2 == 0 { "log.record.crc" } else { "" };
    let victim = if input.byte() % 2 == 0 { first } else { second };
    let path = segment_path(dir, victim);
    let mut file = env.read_file(&path).expect("it was written");
    input.damage(&mut file);
    env.write_file(&path, &file);
    let (mut due, mut records) = (1, 0);
    let recovered = failpoint::with_skipped(skipped, || {
        recover(&machine, dir, &[first, second], 1, &mut |record| {
            assert_eq!(record.first_seq, due, "no gap");
            due += u64::from(record.count);
            records += 1;
            Ok(())
        })
    });
    if let Ok(recovered) = recovered {
        let lens = [first, second].map(|id| env.read_file(&segment_path(dir, id)).expect("it is there").len() as u64);
        assert!(recovered.examined_bytes <= 16 * (lens[0] + lens[1]), "the work is linear");
        assert!(recovered.dropped_bytes <= lens[0] + lens[1], "no more is dropped than there was");
        assert_eq!((recovered.next_seq, recovered.records), (due, records));
        assert!(!skipped.is_empty() || due <= seq, "nothing is invented");
    }
});
