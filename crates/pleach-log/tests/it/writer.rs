//! Refusals of the writer, and its rotation.

use std::sync::Arc;

use pleach_env::{CrashPolicy, Env, ErrorKind, Fault, FaultKind, FileId};
use pleach_log::{
    FILE_HEADER_LEN, LogWriter, ManifestHint, RECORD_HEADER_LEN, RecordBuf, SEQ_MAX, parse_segment_name,
};

use crate::support::{HINT, Machine, append, logged, recover_logged, rotate};

#[test]
fn a_record_buffer_keeps_room_for_its_header() {
    let mut record = RecordBuf::with_capacity(10);
    assert_eq!((record.payload(), record.payload_len()), (&b""[..], 0));
    record.bytes_mut().extend_from_slice(b"abc");
    assert_eq!((record.payload(), record.payload_len()), (&b"abc"[..], 3));
    assert_eq!(record.record_len(), RECORD_HEADER_LEN + 3);
    let capacity = record.bytes_mut().capacity();
    record.clear();
    assert_eq!((record.payload_len(), record.bytes_mut().capacity()), (0, capacity));
    assert_eq!(format!("{record:?}"), "RecordBuf { payload_len: 0 }");
}

#[test]
fn sequence_numbers_must_run_on() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 7);
    assert_eq!((log.last_seq(), log.durable_seq()), (7, 7));
    for first_seq in [0, 1, 7, 9] {
        let error = append(&mut log, &[logged(first_seq, 1, 5)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(append(&mut log, &[logged(8, 0, 5)]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    // A group is refused as a whole.
    let error = append(&mut log, &[logged(8, 2, 5), logged(11, 1, 5)]).unwrap_err();
    assert_eq!(error.to_string(), "invalid argument: record starts at sequence number 11, 10 is due");
    assert_eq!((log.last_seq(), log.offset()), (7, FILE_HEADER_LEN as u64));
    append(&mut log, &[logged(8, 2, 5), logged(10, 1, 5)]).unwrap();
    append(&mut log, &[]).unwrap();
    assert_eq!(log.last_seq(), 10);
}

#[test]
fn sequence_numbers_end_at_their_limit() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, SEQ_MAX - 4);
    assert_eq!(
        append(&mut log, &[logged(SEQ_MAX - 3, 4, 5)]).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    append(&mut log, &[logged(SEQ_MAX - 3, 3, 5)]).unwrap();
    log.sync().unwrap();
    let (result, visited) = machine.recover(&[1], SEQ_MAX - 3);
    let recovery = result.unwrap();
    assert_eq!((recovery.next_seq, recovery.torn, visited.len()), (SEQ_MAX, None, 1));
}

#[test]
fn a_full_segment_rotates_and_a_long_record_gets_its_own() {
    let machine = Machine::new();
    let mut log = machine.log(1, 1000, 0);
    assert!(!log.should_rotate(100_000), "an empty segment takes a record of any length");
    append(&mut log, &[logged(1, 1, 760)]).unwrap();
    assert!(!log.should_rotate(80));
    assert!(log.should_rotate(100));
    rotate(&mut log);
    append(&mut log, &[logged(2, 1, 5000)]).unwrap();
    assert!(log.should_rotate(24));
    rotate(&mut log);
    append(&mut log, &[logged(3, 1, 10)]).unwrap();
    log.sync().unwrap();
    assert_eq!((log.segment_id(), log.durable_seq()), (FileId(3), 3));
    let names: Vec<_> = machine.env.list_dir(&machine.dir).unwrap();
    let lens: Vec<_> = names.iter().map(|(name, meta)| (parse_segment_name(name), meta.len)).collect();
    assert_eq!(lens, [(Some(FileId(1)), 1000), (Some(FileId(2)), 5128), (Some(FileId(3)), 1000)]);
    let (result, visited) = machine.recover(&[1, 2, 3], 1);
    assert_eq!((result.unwrap().next_seq, visited.len()), (4, 3));
}

#[test]
fn the_largest_hint_is_told() {
    let machine = Machine::new();
    let mut log = machine.log(1, 1000, 0);
    let later = ManifestHint { file: FileId(2), len: 9000 };
    log.rotate(FileId(5), later).unwrap();
    log.rotate(FileId(6), ManifestHint::NONE).unwrap();
    assert_eq!(machine.recover(&[1, 5, 6], 1).0.unwrap().hint, Some(later));
}

#[test]
fn a_failed_rotation_leaves_the_writer_where_it_was() {
    let machine = Machine::new();
    let mut log = machine.log(3, 1000, 0);
    append(&mut log, &[logged(1, 1, 10)]).unwrap();
    machine.write(4, b"in the way");
    assert_eq!(log.rotate(FileId(3), HINT).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(log.rotate(FileId(4), HINT).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(machine.read(4), b"in the way", "a file that was there is not removed");
    append(&mut log, &[logged(2, 1, 10)]).unwrap();
    log.sync().unwrap();
    assert_eq!((log.segment_id(), log.durable_seq()), (FileId(3), 2));
    let taken = LogWriter::create(Arc::clone(&machine.env), &machine.dir, FileId(3), HINT, 1000, 0);
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_sync_runs_beside_appends_and_covers_what_came_before_it() {
    let machine = Machine::new();
    let mut log = machine.log(1, 300, 0);
    append(&mut log, &[logged(1, 1, 100)]).unwrap();
    let pending = log.prepare_sync().unwrap().unwrap();
    assert_eq!(log.prepare_sync().unwrap_err().kind(), ErrorKind::Conflict);
    append(&mut log, &[logged(2, 1, 50)]).unwrap();
    rotate(&mut log);
    append(&mut log, &[logged(3, 1, 100)]).unwrap();
    let result = pending.run();
    log.finish_sync(pending, result).unwrap();
    assert_eq!((log.durable_seq(), log.last_seq()), (1, 3));
    log.sync().unwrap();
    assert_eq!(log.durable_seq(), 3);
    assert!(log.prepare_sync().unwrap().is_none(), "a marker is not synced for its own sake");
}

/// The calls that change the disk in each sync of records of `len` bytes.
fn calls_of_syncs(machine: &Machine, log: &mut LogWriter, len: usize, syncs: usize) -> Vec<u64> {
    let mut sync = || {
        append(log, &[logged(log.last_seq() + 1, 1, len)]).unwrap();
        let before = machine.sim.op_count();
        log.sync().unwrap();
        machine.sim.op_count() - before
    };
    (0..syncs).map(|_| sync()).collect()
}

/// The first write to reserved space makes each sync commit a transaction of the file system.
#[test]
fn space_behind_records_that_are_synced_a_few_at_a_time_is_filled_with_zeros() {
    const SYNCS: usize = 3000;
    for (maps, len, fills) in
        [(true, 500, 6..=9), (true, 10, 1..=1), (true, 40_000, 0..=0), (false, 500, 0..=0)]
    {
        let machine = Machine::new();
        machine.sim.set_maps_files(maps);
        let mut log = machine.log(1, 4 << 20, 0);
        let syncs = if len > 1000 { 50 } else { SYNCS };
        let calls = calls_of_syncs(&machine, &mut log, len, syncs + 1);
        // The first sync is also one of the directory, and writes the stamp.
        let usual = *calls.iter().min().unwrap();
        let filled: Vec<_> = (1..calls.len()).filter(|&i| calls[i] > usual).collect();
        assert!(
            filled.first().is_none_or(|&first| first == 4),
            "an open and a close fill nothing: {filled:?}"
        );
        let filled = filled.len();
        assert!(fills.contains(&filled), "{filled} of {len} bytes, mapped: {maps}");
        let (result, visited) = machine.recover(&[1], 1);
        assert_eq!((result.unwrap().records, visited.len()), (syncs as u64 + 1, syncs + 1));
    }
}

#[test]
fn zeros_that_cannot_be_written_fail_no_sync() {
    for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite] {
        let machine = Machine::new();
        machine.sim.set_maps_files(true);
        let mut log = machine.log(1, 1 << 20, 0);
        calls_of_syncs(&machine, &mut log, 100, 4);
        append(&mut log, &[logged(5, 1, 100)]).unwrap();
        machine.sim.set_fault(Some(Fault { at_op: machine.sim.op_count(), kind }));
        log.sync().unwrap();
        assert_eq!(machine.sim.faults_struck(), 1, "{kind:?}");
        calls_of_syncs(&machine, &mut log, 100, 1);
        for seed in 0..20 {
            let image: Arc<dyn Env> = machine.sim.crash_image(CrashPolicy::Random, seed);
            assert_eq!(recover_logged(&image, &machine.dir, &[FileId(1)], 1).1.len(), 6);
        }
    }
}
