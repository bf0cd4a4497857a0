//! Writer and recovery when the machine refuses.

use std::path::Path;
use std::sync::Arc;

use pleach_env::memory::RegionBytes;
use pleach_env::{CrashPolicy, Env, ErrorKind, Fault, FaultKind, FileId, Result};
use pleach_log::{
    Append, FILE_HEADER_LEN, LogWriter, RECORD_HEADER_LEN, RecordBuf, SHORT_HEADER_LEN, recover, segment_path,
};

use crate::support::{HINT, Logged, Machine, append, logged, recover_logged, rotate};

/// Plants `kind` at the `ahead`-th mutating call from now.
fn fail(machine: &Machine, ahead: u64, kind: FaultKind) {
    machine.sim.set_fault(Some(Fault { at_op: machine.sim.op_count() + ahead, kind }));
}

#[test]
fn a_full_disk_refuses_segments_and_leaves_no_file() {
    let machine = Machine::new();
    machine.sim.set_capacity(1 << 20);
    let refused = LogWriter::create(Arc::clone(&machine.env), &machine.dir, FileId(1), HINT, 2 << 20, 0);
    assert!(refused.unwrap_err().is_out_of_space());
    assert!(machine.sim.file_names(&machine.dir).is_empty());

    let mut log = machine.log(1, 600 << 10, 0);
    append(&mut log, &[logged(1, 1, 50)]).unwrap();
    assert!(log.rotate(FileId(2), HINT).unwrap_err().is_out_of_space());
    assert_eq!(machine.sim.file_names(&machine.dir), ["000001.log"]);
    append(&mut log, &[logged(2, 1, 50)]).unwrap();
    log.sync().unwrap();
    let (result, visited) = machine.recover(&[1], 1);
    assert_eq!((result.unwrap().torn, visited.len()), (None, 2));
}

#[test]
fn every_failing_call_of_a_rotation_leaves_the_writer_where_it_was() {
    for ahead in 0..3 {
        let machine = Machine::new();
        let mut log = machine.log(1, 4096, 0);
        append(&mut log, &[logged(1, 1, 50)]).unwrap();
        fail(&machine, ahead, FaultKind::Eio);
        assert_eq!(log.rotate(FileId(2), HINT).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(machine.sim.file_names(&machine.dir), ["000001.log"]);
        append(&mut log, &[logged(2, 1, 50)]).unwrap();
        log.rotate(FileId(3), HINT).unwrap();
        append(&mut log, &[logged(3, 1, 50)]).unwrap();
        log.sync().unwrap();
        let (result, visited) = machine.recover(&[1, 3], 1);
        assert_eq!((result.unwrap().torn, visited.len()), (None, 3));
    }
}

#[test]
fn short_writes_are_completed() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    fail(&machine, 0, FaultKind::ShortWrite);
    append(&mut log, &[logged(1, 1, 500), logged(2, 1, 500)]).unwrap();
    assert_eq!(machine.recover(&[1], 1).1.len(), 2);
}

#[test]
fn a_failed_append_is_replaced_by_the_next_one() {
    for (failed_len, next_len) in [(100, 100), (500, 20), (20, 500), (0, 0)] {
        let machine = Machine::new();
        let mut log = machine.log(1, 8192, 0);
        append(&mut log, &[logged(1, 1, 50)]).unwrap();
        let offset = log.offset();
        fail(&machine, 0, FaultKind::Eio);
        let error = append(&mut log, &[logged(2, 9, failed_len), logged(11, 1, failed_len)]).unwrap_err();
        assert_eq!(
            (error.kind(), error.path()),
            (ErrorKind::Io, Some(&*segment_path(&machine.dir, FileId(1))))
        );
        assert_eq!((log.offset(), log.last_seq()), (offset, 1));
        let records = [logged(2, 1, next_len), logged(3, 1, next_len)];
        append(&mut log, &records).unwrap();
        log.sync().unwrap();
        let (result, visited) = machine.recover(&[1], 2);
        assert_eq!((result.unwrap().next_seq, visited), (4, records.to_vec()));
    }
}

/// A failed append leaves a valid record exactly where the records that replaced it end, with the number that is due:
/// only its epoch tells it from a record of the log.
#[test]
fn remains_of_a_failed_append_are_stale_by_their_epoch() {
    let before = Machine::new();
    let mut log = before.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    append(&mut log, &[logged(2, 1, 74), logged(3, 2, 77)]).unwrap();
    let remains = before.read(1);

    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    fail(&machine, 0, FaultKind::NoSpace);
    append(&mut log, &[logged(2, 1, 74), logged(3, 2, 77)]).unwrap_err();
    let replacement = logged(2, 1, 16);
    append(&mut log, std::slice::from_ref(&replacement)).unwrap();
    let end = usize::try_from(log.offset()).unwrap();
    let failed_at = FILE_HEADER_LEN + RECORD_HEADER_LEN + 30;
    assert_eq!(end, failed_at + SHORT_HEADER_LEN + 74, "where the second record of the failed group begins");
    let mut bytes = machine.read(1);
    bytes[end..].copy_from_slice(&remains[end..]);
    machine.write(1, &bytes);

    let (result, visited) = machine.recover(&[1], 2);
    let recovery = result.unwrap();
    assert_eq!(visited, [replacement]);
    assert_eq!((recovery.next_seq, recovery.torn), (3, Some((FileId(1), end as u64))));
    assert_eq!(recovery.dropped_records, 0, "their writes were never acknowledged");
    // The next record overwrites it.
    append(&mut log, &[logged(3, 1, 5)]).unwrap();
    assert_eq!(machine.recover(&[1], 1).0.unwrap().next_seq, 4);
}

#[test]
fn a_failed_append_is_fenced_before_a_segment_is_left() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    // Both the append and its first fence fail.
    fail(&machine, 0, FaultKind::Eio);
    machine.sim.add_fault(Fault { at_op: machine.sim.op_count() + 1, kind: FaultKind::Eio });
    append(&mut log, &[logged(2, 1, 40)]).unwrap_err();
    rotate(&mut log);
    append(&mut log, &[logged(2, 2, 10)]).unwrap();
    log.sync().unwrap();
    let (result, visited) = machine.recover(&[1, 2], 1);
    assert_eq!((result.unwrap().torn.map(|(id, _)| id), visited.len()), (None, 2));
    assert_eq!(visited[1], logged(2, 2, 10));
}

/// Whether some crash brings a failed record back after the log has gone on, with another record of its number, in the
/// next segment.
fn failed_record_comes_back() -> bool {
    (0..100).any(|seed| {
        let machine = Machine::seeded(seed);
        let mut log = machine.log(1, 4096, 0);
        append(&mut log, &[logged(1, 1, 30)]).unwrap();
        log.sync().unwrap();
        // A part of the record reaches the page cache; what is missing are zeros, so it may be whole.
        fail(&machine, 0, FaultKind::Eio);
        append(&mut log, &[Logged { first_seq: 2, count: 1, payload: vec![0; 60] }]).unwrap_err();
        rotate(&mut log);
        append(&mut log, &[logged(2, 1, 10)]).unwrap();
        log.sync().unwrap();
        (0..100).any(|crash| {
            let image: Arc<dyn Env> = machine.sim.crash_image(CrashPolicy::Random, 100 * seed + crash);
            let (result, visited) = recover_logged(&image, &machine.dir, &[FileId(1), FileId(2)], 1);
            result.is_err() || visited != [logged(1, 1, 30), logged(2, 1, 10)]
        })
    })
}

#[test]
fn a_fence_is_durable_before_a_segment_is_left() {
    assert!(!failed_record_comes_back());
}

/// Once a sync has returned, a failed record does not come back, though nothing else was there to be synced.
#[test]
fn a_failed_record_does_not_come_back_after_a_sync() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    log.sync().unwrap();
    // All of the record is on the medium.
    fail(&machine, 0, FaultKind::FailsYetDone);
    append(&mut log, &[logged(2, 1, 40)]).unwrap_err();
    log.sync().unwrap();
    let image: Arc<dyn Env> = machine.sim.crash_image(CrashPolicy::DurableOnly, 1);
    let (result, visited) = recover_logged(&image, &machine.dir, &[FileId(1)], 1);
    assert_eq!((result.unwrap().next_seq, visited.len()), (2, 1));
}

/// A machine whose log has one durable record, and then a failed group of two, of which the first record was written whole. No
/// write goes on, not even one in place.
fn machine_with_half_a_group() -> (Machine, LogWriter) {
    let group = [logged(2, 1, 40), logged(3, 1, 40)];
    let start = |machine: &Machine| {
        let mut log = machine.log(1, 4096, 0);
        append(&mut log, &[logged(1, 1, 30)]).unwrap();
        log.sync().unwrap();
        log
    };
    let twin = Machine::new();
    let mut log = start(&twin);
    let before = log.offset();
    append(&mut log, &group[..1]).unwrap();
    let first_len = log.offset() - before;

    let machine = Machine::new();
    let mut log = start(&machine);
    machine.sim.set_write_quota(Some(first_len));
    assert!(append(&mut log, &group).unwrap_err().is_out_of_space());
    (machine, log)
}

/// The numbers of the records that a crash leaves.
fn after_crash(machine: &Machine, policy: CrashPolicy) -> Vec<u64> {
    let image: Arc<dyn Env> = machine.sim.crash_image(policy, 1);
    let (result, visited) = recover_logged(&image, &machine.dir, &[FileId(1)], 1);
    result.unwrap();
    visited.iter().map(|record| record.first_seq).collect()
}

/// The error of the fence was once dropped, so the sync succeeded and the failed record came back.
#[test]
fn a_sync_fails_while_half_a_group_cannot_be_overwritten() {
    let (machine, mut log) = machine_with_half_a_group();
    assert_eq!(
        after_crash(&machine, CrashPolicy::Everything),
        [1, 2],
        "the test plants a record that was refused"
    );
    for _ in 0..2 {
        assert!(log.sync().unwrap_err().is_out_of_space());
        assert!(!log.is_poisoned());
    }
    machine.sim.set_write_quota(None);
    log.sync().unwrap();
    for policy in [CrashPolicy::DurableOnly, CrashPolicy::Everything] {
        assert_eq!(after_crash(&machine, policy), [1]);
    }
    append(&mut log, &[logged(2, 1, 10)]).unwrap();
    log.sync().unwrap();
    assert_eq!(after_crash(&machine, CrashPolicy::DurableOnly), [1, 2]);
}

#[test]
fn a_sync_that_cannot_overwrite_a_failed_group_makes_the_others_durable() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    machine.sim.set_write_quota(Some(80));
    append(&mut log, &[logged(2, 1, 20), logged(3, 1, 400)]).unwrap_err();
    assert!(log.sync().unwrap_err().is_out_of_space());
    assert_eq!(log.durable_seq(), 1);
    assert_eq!(after_crash(&machine, CrashPolicy::DurableOnly)[0], 1);
}

/// On a disk that takes nothing at all there is nothing to overwrite, and syncs go on.
#[test]
fn a_failed_append_that_wrote_nothing_lets_syncs_succeed() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    machine.sim.set_write_quota(Some(0));
    append(&mut log, &[logged(2, 1, 40), logged(3, 1, 40)]).unwrap_err();
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(after_crash(&machine, CrashPolicy::DurableOnly), [1]);
    assert!(append(&mut log, &[logged(2, 1, 40)]).unwrap_err().is_out_of_space());
    machine.sim.set_write_quota(None);
    append(&mut log, &[logged(2, 1, 40)]).unwrap();
    assert_eq!(after_crash(&machine, CrashPolicy::Everything), [1, 2]);
}

/// Lengths of small payloads, and of one that is written by a call of its own.
const LENGTHS: [usize; 4] = [50, 300, 3 << 20, 70];

#[test]
fn recovered_records_are_written_as_they_were() {
    let (first, again) = (Machine::new(), Machine::new());
    let (mut log, mut copy) = (first.log(1, 8 << 20, 0), again.log(1, 8 << 20, 0));
    for (seq, len) in (1..).zip(LENGTHS) {
        append(&mut log, &[logged(seq, 1, len)]).unwrap();
    }
    recover(&first.env, &first.dir, &[FileId(1)], 1, &mut |record| {
        copy.append_recovered(&record, usize::MAX).map(drop)
    })
    .unwrap();
    assert_eq!(copy.offset(), log.offset());
    assert!(first.read(1) == again.read(1), "other bytes");
}

#[test]
fn a_large_record_cut_off_or_failed_between_its_calls_is_none() {
    let first = Machine::new();
    let mut log = first.log(1, 8 << 20, 0);
    append(&mut log, &[logged(1, 1, 50)]).unwrap();
    append(&mut log, &[logged(2, 1, 3 << 20)]).unwrap();
    for (ahead, kind) in [0, 1].into_iter().flat_map(|a| [FaultKind::Eio, FaultKind::NoSpace].map(|k| (a, k)))
    {
        let machine = Machine::new();
        let mut copy = machine.log(1, 8 << 20, 0);
        let mut written = 0;
        let copied = recover(&first.env, &first.dir, &[FileId(1)], 1, &mut |record| {
            if record.first_seq == 2 {
                machine.sim.capture_at(&[machine.sim.op_count() + ahead]);
                fail(&machine, ahead, kind);
            }
            copy.append_recovered(&record, usize::MAX)?;
            written += 1;
            Ok(())
        });
        assert_eq!((copied.unwrap_err().kind(), written), (ErrorKind::Io, 1), "{ahead} {kind:?}");
        assert_eq!(copy.last_seq(), 1);
        let captured = machine.sim.captured();
        assert_eq!(captured.len(), 1);
        for (_, capture) in captured {
            let sim = capture.crash_image(CrashPolicy::Everything, 1);
            let env: Arc<dyn Env> = sim;
            let (result, visited) = recover_logged(&env, &machine.dir, &[FileId(1)], 1);
            let torn = result.unwrap().torn.is_some();
            assert_eq!((torn, visited), (ahead == 1, vec![logged(1, 1, 50)]), "{ahead} {kind:?}");
        }
        append(&mut copy, &[logged(2, 1, 30)]).unwrap();
        assert_eq!(machine.recover(&[1], 1).1, [logged(1, 1, 50), logged(2, 1, 30)], "{ahead} {kind:?}");
    }
}

/// The record of `logged`, every other 100 bytes of it in a piece apart.
fn record_in_pieces(logged: &Logged) -> RecordBuf {
    let mut record = RecordBuf::new();
    for (number, piece) in logged.payload.chunks(100).enumerate() {
        if number % 2 == 0 {
            record.bytes_mut().extend_from_slice(piece);
        } else {
            record.push_region(RegionBytes::try_copy(number, piece).unwrap());
        }
    }
    record
}

/// Appends each record in pieces, as groups of so many.
fn append_in_pieces(log: &mut LogWriter, records: &[Logged], group: usize) -> Result<()> {
    let mut buffers: Vec<_> = records.iter().map(record_in_pieces).collect();
    for (buffers, records) in buffers.chunks_mut(group).zip(records.chunks(group)) {
        let numbered = buffers.iter_mut().zip(records);
        log.append(numbered.map(|(record, logged)| Append {
            record,
            first_seq: logged.first_seq,
            count: logged.count,
        }))?;
    }
    Ok(())
}

#[test]
fn a_record_in_pieces_is_written_as_if_it_were_whole() {
    let records: Vec<_> = (1..).zip([50, 100, 101, 199, 200, 201, 1_000, 1 << 20, 30]).collect();
    let records: Vec<_> = records.into_iter().map(|(seq, len)| logged(seq, 1, len)).collect();
    for group in [1, 3] {
        let (first, again) = (Machine::new(), Machine::new());
        let (mut log, mut copy) = (first.log(1, 8 << 20, 0), again.log(1, 8 << 20, 0));
        for group in records.chunks(group) {
            append(&mut log, group).unwrap();
        }
        append_in_pieces(&mut copy, &records, group).unwrap();
        assert_eq!(copy.offset(), log.offset());
        assert!(first.read(1) == again.read(1), "other bytes in groups of {group}");
        assert_eq!(again.recover(&[1], 1).1, records);
    }
}

#[test]
fn a_record_in_pieces_cut_off_or_failed_between_its_calls_is_none() {
    let (one, pieces) = (logged(1, 1, 50), logged(2, 1, 450));
    for (ahead, kind) in (0..5).flat_map(|a| [FaultKind::Eio, FaultKind::NoSpace].map(|k| (a, k))) {
        let machine = Machine::new();
        let mut log = machine.log(1, 8 << 20, 0);
        append(&mut log, std::slice::from_ref(&one)).unwrap();
        machine.sim.capture_at(&[machine.sim.op_count() + ahead]);
        fail(&machine, ahead, kind);
        append_in_pieces(&mut log, std::slice::from_ref(&pieces), 1).unwrap_err();
        assert_eq!(log.last_seq(), 1);
        for (_, capture) in machine.sim.captured() {
            let env: Arc<dyn Env> = capture.crash_image(CrashPolicy::Everything, 1);
            let (result, visited) = recover_logged(&env, &machine.dir, &[FileId(1)], 1);
            assert_eq!((result.is_ok(), visited), (true, vec![one.clone()]), "{ahead} {kind:?}");
        }
        append(&mut log, &[logged(2, 1, 30)]).unwrap();
        assert_eq!(machine.recover(&[1], 1).1, [one.clone(), logged(2, 1, 30)], "{ahead} {kind:?}");
    }
}

#[test]
fn a_segment_that_failed_too_often_asks_for_rotation() {
    let machine = Machine::new();
    let mut log = machine.log(1, 1 << 16, 0);
    for failed in 0..31 {
        assert!(!log.should_rotate(100), "after {failed} failures");
        // From the second time on, the fence of the failure before is synced first.
        fail(&machine, u64::from(failed > 0), FaultKind::Eio);
        append(&mut log, &[logged(1, 1, 40)]).unwrap_err();
    }
    machine.sim.clear_faults();
    assert!(log.should_rotate(100));
    let error = append(&mut log, &[logged(1, 1, 40)]).unwrap_err();
    assert!(error.to_string().contains("31 appends to log segment 000001 failed"), "{error}");
    log.sync().unwrap();
    rotate(&mut log);
    append(&mut log, &[logged(1, 1, 40)]).unwrap();
    assert_eq!(machine.recover(&[1, 2], 1).0.unwrap().next_seq, 2);
}

#[test]
fn a_failed_sync_poisons_the_log() {
    // The segment's sync, the directory's sync.
    for ahead in 0..2 {
        let machine = Machine::new();
        let mut log = machine.log(1, 4096, 0);
        append(&mut log, &[logged(1, 1, 30)]).unwrap();
        fail(&machine, ahead, FaultKind::SyncFails);
        assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Io);
        assert!(log.is_poisoned());
        assert_eq!(log.durable_seq(), 0);
        let errors = [
            append(&mut log, &[logged(2, 1, 30)]).unwrap_err(),
            log.sync().unwrap_err(),
            log.rotate(FileId(2), HINT).unwrap_err(),
        ];
        assert!(errors.iter().all(|e| e.kind() == ErrorKind::Poisoned), "{errors:?}");
    }
}

#[test]
fn an_older_segment_whose_sync_fails_poisons_the_log() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    rotate(&mut log);
    append(&mut log, &[logged(2, 1, 30)]).unwrap();
    fail(&machine, 0, FaultKind::SyncFails);
    let error = log.sync().unwrap_err();
    assert_eq!(error.path(), Some(&*segment_path(&machine.dir, FileId(1))));
    assert_eq!(append(&mut log, &[logged(3, 1, 30)]).unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn forgotten_segments_are_not_synced() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    rotate(&mut log);
    append(&mut log, &[logged(2, 1, 30)]).unwrap();
    log.mark_durable(1);
    drop(log.forget_before(FileId(2)));
    machine.env.remove_file(Path::new("/db/000001.log")).unwrap();
    // The first sync is that of the second segment.
    fail(&machine, 0, FaultKind::SyncFails);
    assert_eq!(log.sync().unwrap_err().path(), Some(&*segment_path(&machine.dir, FileId(2))));
}

#[test]
fn a_lost_marker_costs_nothing() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30)]).unwrap();
    // Segment, directory, marker.
    fail(&machine, 2, FaultKind::Eio);
    log.sync().unwrap();
    assert_eq!(machine.sim.faults_struck(), 1);
    append(&mut log, &[logged(2, 1, 30)]).unwrap();
    log.sync().unwrap();
    assert_eq!(machine.recover(&[1], 1).0.unwrap().next_seq, 3);
}

#[test]
fn a_read_error_is_never_the_end_of_the_log() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 1, 30), logged(2, 1, 2_500_000)]).unwrap();
    rotate(&mut log);
    append(&mut log, &[logged(3, 1, 30)]).unwrap();
    let before = machine.sim.read_count();
    assert_eq!(machine.recover(&[1, 2], 1).0.unwrap().next_seq, 4);
    let reads = machine.sim.read_count() - before;
    assert!(reads > 4);
    for read in 0..reads {
        let at_op = machine.sim.read_count() + read;
        machine.sim.set_fault(Some(Fault { at_op, kind: FaultKind::ReadEio }));
        assert_eq!(
            machine.recover(&[1, 2], 1).0.unwrap_err().kind(),
            ErrorKind::Io,
            "read {read} of {reads}"
        );
    }
}
