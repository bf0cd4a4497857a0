//! The length that a segment had when it was synced is noted in it, and a shorter segment was cut.

use std::sync::Arc;

use pleach_env::{CrashPolicy, Env, ErrorKind, Fault, FaultKind, FileId};
use pleach_log::{FILE_HEADER_LEN, FileKind, ManifestHint, RecordFileOptions, RecordWriter, read_records};

use crate::support::{Machine, append, logged, record_of, recover_logged, rotate};

/// More than a segment reserves at a time.
const LONG: usize = 5 << 20;

fn stamp(machine: &Machine, id: u64) -> u64 {
    u64::from_le_bytes(machine.read(id)[64..72].try_into().unwrap())
}

#[test]
fn a_segment_cut_below_its_synced_length_is_corruption_that_names_both_lengths() {
    let machine = Machine::new();
    let mut log = machine.log(1, 1 << 20, 0);
    append(&mut log, &[logged(1, 1, 100)]).unwrap();
    let unsynced = machine.read(1);
    log.sync().unwrap();
    let bytes = machine.read(1);
    for len in [bytes.len() - 1, 300_000, FILE_HEADER_LEN] {
        machine.write(1, &bytes[..len]);
        let error = machine.recover(&[1], 1).0.unwrap_err();
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(len as u64)));
        let message = format!("was durable with 1048576 bytes, and now it has {len}");
        assert!(error.to_string().contains(&message), "{error}");
    }
    // A crash may leave less of what was never synced.
    machine.write(1, &unsynced[..300_000]);
    assert_eq!(machine.recover(&[1], 1).0.unwrap().records, 1);
}

#[test]
fn a_lost_header_in_front_of_a_stamp_is_corruption() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    log.sync().unwrap();
    let mut bytes = machine.read(1);
    bytes[63] ^= 1;
    machine.write(1, &bytes);
    let error = machine.recover(&[1], 1).0.unwrap_err();
    assert!(
        error.to_string().contains("expected the header of the log segment, which was durable"),
        "{error}"
    );
}

#[test]
fn a_stamp_is_written_when_the_file_has_grown_and_not_with_every_sync() {
    let machine = Machine::new();
    let mut log = machine.log(1, 64 << 20, 0);
    assert_eq!(stamp(&machine, 1), 0);
    let mut sync = |len: usize| {
        let record = logged(log.last_seq() + 1, 1, len);
        append(&mut log, &[record]).unwrap();
        let before = machine.sim.op_count();
        log.sync().unwrap();
        (machine.sim.op_count() - before, stamp(&machine, 1))
    };
    // The syncs of file and directory, marker, stamp; then sync and marker.
    assert_eq!(sync(10), (4, 4 << 20));
    assert_eq!(sync(10), (2, 4 << 20));
    let (calls, stamped) = sync(LONG);
    assert_eq!((calls, stamped), (3, machine.read(1).len() as u64));
    assert_eq!(sync(10).0, 2);
}

#[test]
fn an_older_segment_gets_its_stamp_with_the_sync_that_covers_it() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 10)]).unwrap();
    rotate(&mut log);
    append(&mut log, &[logged(2, 1, 10)]).unwrap();
    assert_eq!((stamp(&machine, 1), stamp(&machine, 2)), (0, 0));
    log.sync().unwrap();
    assert_eq!((stamp(&machine, 1), stamp(&machine, 2)), (4096, 4096));
    assert_eq!(machine.recover(&[1, 2], 1).0.unwrap().next_seq, 3);
}

/// Space that was reserved while the sync ran may not be durable.
#[test]
fn a_stamp_does_not_cover_what_was_reserved_beside_the_sync() {
    let machine = Machine::new();
    let mut log = machine.log(1, 64 << 20, 0);
    append(&mut log, &[logged(1, 1, 10)]).unwrap();
    let pending = log.prepare_sync().unwrap().unwrap();
    append(&mut log, &[logged(2, 1, LONG)]).unwrap();
    let result = pending.run();
    log.finish_sync(pending, result).unwrap();
    assert_eq!(stamp(&machine, 1), 4 << 20);
    for seed in 0..50 {
        let image: Arc<dyn Env> = machine.sim.crash_image(CrashPolicy::Random, seed);
        let (result, visited) = recover_logged(&image, &machine.dir, &[FileId(1)], 1);
        result.unwrap();
        assert!(!visited.is_empty());
    }
}

#[test]
fn a_stamp_that_fails_is_written_with_the_next_sync() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 10)]).unwrap();
    // Segment, directory, marker, stamp.
    machine.sim.set_fault(Some(Fault { at_op: machine.sim.op_count() + 3, kind: FaultKind::Eio }));
    log.sync().unwrap();
    assert_eq!(machine.sim.faults_struck(), 1);
    machine.recover(&[1], 1).0.unwrap();
    append(&mut log, &[logged(2, 1, 10)]).unwrap();
    log.sync().unwrap();
    assert_eq!(stamp(&machine, 1), 4096);
    assert_eq!(machine.recover(&[1], 1).0.unwrap().next_seq, 3);
}

#[test]
fn a_file_that_reserves_nothing_has_no_stamp() {
    const EDITS: FileKind = FileKind { magic: *b"PLCHTEST", version: 3, name: "edit log" };
    let machine = Machine::new();
    let path = machine.dir.join("edits");
    let hint = ManifestHint::NONE;
    let options = RecordFileOptions {
        kind: EDITS,
        id: FileId(4),
        hint,
        preallocate: None,
        next_seq: 1,
        durable_seq: 0,
    };
    let mut edits = RecordWriter::create(&*machine.env, &path, &options).unwrap();
    edits.append([pleach_log::Append { record: &mut record_of(b"edit"), first_seq: 1, count: 1 }]).unwrap();
    edits.sync("manifest.sync").unwrap();
    assert_eq!(machine.sim.read_file(&path).unwrap()[64..FILE_HEADER_LEN], [0; 32]);
    let read = read_records(&machine.env, &path, &EDITS, FileId(4), 1, &mut |_| Ok(())).unwrap();
    assert_eq!((read.next_seq, read.torn), (2, None));
}
