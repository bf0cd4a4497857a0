//! What recovery makes of logs that crashes, and recovery itself, leave behind.

use pleach_env::{ErrorKind, FileId};
use pleach_log::{
    FILE_HEADER_LEN, FileKind, FrameOptions, FrameWriter, ManifestHint, SHORT_HEADER_LEN, SeqNo, read_frames,
};

use crate::support::{HINT, Logged, Machine, append, logged, record_of, rotate};

/// Appends records of one number each, one by one, and returns them.
fn append_each(
    log: &mut pleach_log::LogWriter,
    numbers: std::ops::RangeInclusive<SeqNo>,
    len: usize,
) -> Vec<Logged> {
    let records: Vec<_> = numbers.map(|seq| logged(seq, 1, len)).collect();
    for record in &records {
        append(log, std::slice::from_ref(record)).unwrap();
    }
    records
}

/// Zeros the short record that ends at `end` of segment `id`, header and all.
fn zero_record(machine: &Machine, id: u64, end: u64, payload_len: usize) {
    let mut bytes = machine.read(id);
    let end = usize::try_from(end).unwrap();
    bytes[end - payload_len - SHORT_HEADER_LEN..end].fill(0);
    machine.write(id, &bytes);
}

#[test]
fn an_empty_log_is_clean_and_tells_its_hint() {
    let machine = Machine::new();
    let _log = machine.log(1, 4096, 5);
    let (result, visited) = machine.recover(&[1], 6);
    let recovery = result.unwrap();
    assert_eq!((recovery.next_seq, recovery.torn, recovery.hint), (6, None, Some(HINT)));
    assert!(visited.is_empty());
    let (result, _) = machine.recover(&[], 9);
    assert_eq!(result.unwrap().next_seq, 9);
}

#[test]
fn a_hole_in_unsynced_records_is_a_torn_tail() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    let records = append_each(&mut log, 1..=3, 20);
    let third_end = log.offset();
    append_each(&mut log, 4..=6, 20);
    zero_record(&machine, 1, third_end, 20);
    let (result, visited) = machine.recover(&[1], 1);
    let recovery = result.unwrap();
    assert_eq!(visited, records[..2]);
    assert_eq!(recovery.torn, Some((FileId(1), third_end - 26)));
    assert_eq!((recovery.next_seq, recovery.records, recovery.bytes), (3, 2, 40));
}

#[test]
fn the_same_hole_is_corruption_once_a_later_record_calls_it_durable() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append_each(&mut log, 1..=3, 20);
    let third_end = log.offset();
    log.sync().unwrap();
    append_each(&mut log, 4..=4, 20);
    zero_record(&machine, 1, third_end, 20);
    let error = machine.recover(&[1], 1).0.unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(third_end - 26)));
    assert!(error.to_string().contains("expected the record from sequence number 3 on"), "{error}");
    // Unless SSTs hold it.
    let (result, visited) = machine.recover(&[1], 4);
    assert_eq!((result.unwrap().next_seq, visited.len()), (4, 0));
}

#[test]
fn what_ssts_hold_counts_as_durable() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append_each(&mut log, 1..=3, 20);
    let third_end = log.offset();
    log.mark_durable(3);
    assert_eq!(log.durable_seq(), 3);
    append_each(&mut log, 4..=4, 20);
    zero_record(&machine, 1, third_end, 20);
    assert_eq!(machine.recover(&[1], 1).0.unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn a_later_segment_takes_over_where_an_earlier_one_is_torn() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    let mut records = append_each(&mut log, 1..=3, 20);
    zero_record(&machine, 1, log.offset(), 20);
    append_each(&mut log, 4..=6, 20);
    rotate(&mut log);
    append_each(&mut log, 7..=9, 20);
    assert_eq!(machine.recover(&[1, 2], 1).0.unwrap().next_seq, 3);
    // Recovery copies 1 and 2, and new records come; then it crashes before the old segments are gone.
    records.truncate(2);
    let mut log = machine.log(3, 4096, 0);
    append_each(&mut log, 1..=2, 20);
    for seq in 3..=5 {
        let record = logged(seq, 1, 33);
        append(&mut log, std::slice::from_ref(&record)).unwrap();
        records.push(record);
    }
    log.sync().unwrap();
    let (result, visited) = machine.recover(&[1, 2, 3], 1);
    let recovery = result.unwrap();
    assert_eq!(visited, records);
    assert_eq!((recovery.next_seq, recovery.torn), (6, None));
}

#[test]
fn a_torn_copy_changes_nothing() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    let records = append_each(&mut log, 1..=4, 20);
    log.sync().unwrap();
    let mut copy = machine.log(2, 4096, 0);
    append_each(&mut copy, 1..=3, 20);
    zero_record(&machine, 2, copy.offset(), 20);
    let (result, visited) = machine.recover(&[1, 2], 1);
    assert_eq!((result.unwrap().next_seq, visited), (5, records));
}

#[test]
fn records_below_the_due_number_are_skipped_and_overlaps_refused() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append(&mut log, &[logged(1, 3, 9), logged(4, 3, 9), logged(7, 1, 9)]).unwrap();
    let (result, visited) = machine.recover(&[1], 4);
    assert_eq!((result.unwrap().next_seq, visited.len()), (8, 2));
    assert_eq!(machine.recover(&[1], 5).0.unwrap_err().kind(), ErrorKind::Corruption);
    // SSTs may hold more than the log.
    assert_eq!(machine.recover(&[1], 50).0.unwrap().next_seq, 50);
}

#[test]
fn segments_without_a_header_are_empty_unless_something_durable_is_missing() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    let records = append_each(&mut log, 1..=2, 20);
    log.sync().unwrap();
    machine.write(2, b"");
    machine.write(3, b"PLCHLOG1 half a header");
    machine.write(4, &[0; 300]);
    let (result, visited) = machine.recover(&[1, 2, 3, 4], 1);
    assert_eq!(result.unwrap().torn, Some((FileId(2), 0)));
    assert_eq!(visited, records);
}

#[test]
fn a_lost_header_before_a_segment_that_knows_of_durable_records_is_corruption() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append_each(&mut log, 1..=2, 20);
    log.sync().unwrap();
    rotate(&mut log);
    append_each(&mut log, 3..=3, 20);
    for kept in [0, 8, 40] {
        let mut bytes = machine.read(1);
        bytes[kept..FILE_HEADER_LEN].fill(0);
        machine.write(1, &bytes);
        assert_eq!(machine.recover(&[1, 2], 1).0.unwrap_err().kind(), ErrorKind::Corruption);
        // Alone too: the marker in it is found although it has no header.
        assert_eq!(machine.recover(&[1], 1).0.unwrap_err().kind(), ErrorKind::Corruption);
    }
}

#[test]
fn strangers_are_never_taken_for_torn_segments() {
    let machine = Machine::new();
    machine.write(1, b"MZ\x90");
    assert_eq!(machine.recover(&[1], 1).0.unwrap_err().kind(), ErrorKind::Corruption);
    machine.write(1, &[7; 100]);
    assert_eq!(machine.recover(&[1], 1).0.unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn segments_out_of_order_are_refused() {
    let machine = Machine::new();
    for segments in [[2, 1], [1, 1]] {
        assert_eq!(machine.recover(&segments, 1).0.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_record_longer_than_the_read_window_comes_back() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    let records =
        [logged(1, 1, 100), logged(2, 7, 3_000_000), logged(9, 1, 1_048_552), logged(10, 1, 1_048_553)];
    append(&mut log, &records).unwrap();
    log.sync().unwrap();
    let (result, visited) = machine.recover(&[1], 1);
    assert_eq!((result.unwrap().torn, visited.len()), (None, 4));
    assert!(visited == records);
    // And with its last byte damaged.
    let mut bytes = machine.read(1);
    bytes[64 + 24 + 100 + 24 + 3_000_000 - 1] ^= 1;
    machine.write(1, &bytes);
    let error = machine.recover(&[1], 1).0.unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(64 + 24 + 100)));
}

#[test]
fn bytes_made_up_to_look_like_nested_records_are_given_up_on() {
    let machine = Machine::new();
    let mut log = machine.log(1, 1 << 18, 0);
    append_each(&mut log, 1..=1, 10);
    let mut bytes = machine.read(1);
    let mut header = [0; 24];
    header[4] = 1;
    header[5] = 200;
    header[12..16].copy_from_slice(&100_000_u32.to_le_bytes());
    header[16] = 1;
    for chunk in bytes[98..].chunks_exact_mut(24) {
        chunk.copy_from_slice(&header);
    }
    machine.write(1, &bytes);
    let error = machine.recover(&[1], 1).0.unwrap_err();
    assert!(error.to_string().contains("too many bytes that look like records"), "{error}");
}

const EDITS: FileKind = FileKind { magic: *b"PLCHTEST", version: 3, name: "edit log" };

fn edit_options(kind: FileKind) -> FrameOptions {
    FrameOptions {
        kind,
        id: FileId(4),
        hint: ManifestHint::NONE,
        preallocate: None,
        next_seq: 1,
        durable_seq: 0,
    }
}

#[test]
fn a_framed_file_tells_its_records_and_its_end() {
    let machine = Machine::new();
    let path = machine.dir.join("edits");
    let mut edits = FrameWriter::create(&*machine.env, &path, &edit_options(EDITS)).unwrap();
    for seq in 1..=3 {
        let mut record = record_of(format!("edit {seq}").as_bytes());
        edits.append([pleach_log::Append { record: &mut record, first_seq: seq, count: 1 }]).unwrap();
        edits.sync("manifest.sync").unwrap();
        assert_eq!((edits.durable_seq(), edits.next_seq()), (seq, seq + 1));
        assert_eq!(edits.durable_len(), edits.offset() - 24);
    }
    let mut seen = Vec::new();
    let read = read_frames(&machine.env, &path, &EDITS, FileId(4), 1, &mut |record| {
        seen.push(record.payload.to_vec());
        Ok(())
    });
    let read = read.unwrap();
    assert_eq!(seen, [b"edit 1", b"edit 2", b"edit 3"]);
    assert_eq!((read.next_seq, read.end, read.torn), (4, edits.offset(), false));
    assert!(read.end >= edits.durable_len());
}

#[test]
fn a_newer_format_version_is_unsupported() {
    let machine = Machine::new();
    let path = machine.dir.join("edits");
    drop(FrameWriter::create(&*machine.env, &path, &edit_options(FileKind { version: 4, ..EDITS })).unwrap());
    let error = read_frames(&machine.env, &path, &EDITS, FileId(4), 1, &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("format version 4, this build knows up to 3"), "{error}");
}

#[test]
fn an_error_of_the_visitor_ends_recovery() {
    let machine = Machine::new();
    let mut log = machine.log(1, 4096, 0);
    append_each(&mut log, 1..=3, 20);
    let result = pleach_log::recover(&machine.env, &machine.dir, &[FileId(1)], 1, &mut |record| {
        if record.first_seq == 2 { Err(pleach_env::Error::new(ErrorKind::Closed, "enough")) } else { Ok(()) }
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_missing_file_is_an_error() {
    let machine = Machine::new();
    assert_eq!(machine.recover(&[1], 1).0.unwrap_err().kind(), ErrorKind::Io);
}
