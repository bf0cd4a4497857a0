//! Recovery of the logs that crashes, and recovery itself, leave behind.

use pleach_env::{ErrorKind, FileId};
use pleach_log::{
    FILE_HEADER_LEN, FileKind, ManifestHint, RECORD_HEADER_LEN, RecordFileOptions, RecordWriter,
    SHORT_HEADER_LEN, SeqNo, read_records,
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

/// Appends records of two numbers each, which are long, and returns where each of them starts.
fn append_long(log: &mut pleach_log::LogWriter, count: u64) -> Vec<u64> {
    let append_one = |_| {
        let (offset, record) = (log.offset(), logged(log.last_seq() + 1, 2, 50));
        append(log, &[record]).unwrap();
        offset
    };
    (0..count).map(append_one).collect()
}

/// Changes one byte of segment `id`.
fn flip(machine: &Machine, id: u64, offset: u64) {
    let mut bytes = machine.read(id);
    bytes[usize::try_from(offset).unwrap()] ^= 1;
    machine.write(id, &bytes);
}

/// Recovers all that is in the segments, and returns how many records were dropped, and how many bytes.
fn dropped(machine: &Machine, segments: &[u64]) -> (u64, u64) {
    let recovery = machine.recover(segments, 1).0.unwrap();
    assert_eq!(recovery.torn.is_some(), recovery.dropped_bytes > 0);
    (recovery.dropped_records, recovery.dropped_bytes)
}

#[test]
fn dropped_records_are_counted_where_they_can_be_found() {
    let machine = Machine::new();
    let mut log = machine.log(1, 1 << 16, 0);
    let places = append_long(&mut log, 4);
    append_each(&mut log, 9..=11, 20);
    assert_eq!(dropped(&machine, &[1]), (0, 0));
    let end = log.offset();
    // A payload, then a header: everything behind is whole, the short records that follow a long one too.
    flip(&machine, 1, places[2] + 40);
    assert_eq!(dropped(&machine, &[1]), (4, end - places[2]));
    flip(&machine, 1, places[1] + 2);
    assert_eq!(dropped(&machine, &[1]), (4, end - places[1]));
    // The long one as well: short records alone do not tell what they are.
    flip(&machine, 1, places[3]);
    assert_eq!(dropped(&machine, &[1]), (0, end - places[1]));
    // One that a cut has left in half is none.
    let mut bytes = machine.read(1);
    bytes.truncate(usize::try_from(end - 3).unwrap());
    machine.write(1, &bytes);
    assert_eq!(dropped(&machine, &[1]), (0, end - 3 - places[1]));
}

#[test]
fn dropped_records_are_counted_in_later_segments_and_once() {
    let machine = Machine::new();
    let mut log = machine.log(1, 1 << 16, 0);
    let places = append_long(&mut log, 3);
    let ends = [log.offset()];
    flip(&machine, 1, places[1]);
    rotate(&mut log);
    append_long(&mut log, 2);
    let lost = log.offset() - FILE_HEADER_LEN as u64;
    assert_eq!(dropped(&machine, &[1, 2]), (3, ends[0] - places[1] + lost));
    // A segment without a header is dropped as a whole.
    let mut bytes = machine.read(2);
    bytes[..FILE_HEADER_LEN].fill(0);
    machine.write(2, &bytes);
    assert_eq!(dropped(&machine, &[1, 2]), (3, ends[0] - places[1] + log.offset()));
    // A copy of what is lost anyway, itself torn, is no second loss; one that continues the prefix leaves none.
    let mut copy = machine.log(3, 1 << 16, 0);
    let copied = append_long(&mut copy, 3);
    flip(&machine, 3, copied[1]);
    assert_eq!(dropped(&machine, &[1, 2, 3]).0, 3);
    flip(&machine, 3, copied[1]);
    assert_eq!(dropped(&machine, &[1, 2, 3]), (0, 0));
}

/// Broken near its start, a log takes about the same work whatever its records hold.
#[test]
fn recovery_takes_linear_work_whatever_the_payloads_are() {
    let number = |value: u32| move |i: u64| value.wrapping_mul(u32::try_from(i).unwrap_or(1)).to_le_bytes();
    let mut rng = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = (0..1 << 16).map(|_| rng.u8(..)).collect();
    let words = |f: &dyn Fn(u64) -> [u8; 4]| (0..1 << 14).flat_map(f).collect::<Vec<u8>>();
    let payloads = [
        noise,
        words(&|_| 1001_u32.to_le_bytes()),
        words(&|_| 257_u32.to_le_bytes()),
        words(&number(1)),
        words(&number(17)),
        words(&|i| if i % 2 == 0 { number(17)(i) } else { 396_u32.to_le_bytes() }),
    ];
    let works = payloads.map(|payload| {
        let machine = Machine::new();
        let mut log = machine.log(1, 16 << 20, 0);
        for seq in 1..=100 {
            append(&mut log, &[Logged { first_seq: seq, count: 1, payload: payload.clone() }]).unwrap();
        }
        let mut bytes = machine.read(1);
        // The first record, and all headers but every tenth, so that most bytes are searched.
        let record_len = RECORD_HEADER_LEN + payload.len();
        bytes[FILE_HEADER_LEN..]
            .chunks_mut(record_len)
            .enumerate()
            .filter(|(i, _)| i % 10 > 0)
            .for_each(|(_, record)| record[..RECORD_HEADER_LEN.min(payload.len())].fill(0xff));
        machine.write(1, &bytes);
        let recovery = machine.recover(&[1], 1).0.unwrap();
        assert_eq!((recovery.records, recovery.dropped_records), (1, 9));
        recovery.examined_bytes
    });
    assert!(works.iter().all(|&work| work < 5 * 8 * (1 << 20)), "{works:?}");
    assert!(works.iter().all(|&work| work <= works[0] + works[0] / 100), "{works:?}");
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
fn foreign_files_are_never_taken_for_torn_segments() {
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
        [logged(1, 1, 100), logged(2, 7, 3_000_000), logged(9, 1, 1_048_544), logged(10, 1, 1_048_545)];
    append(&mut log, &records).unwrap();
    log.sync().unwrap();
    let (result, visited) = machine.recover(&[1], 1);
    assert_eq!((result.unwrap().torn, visited.len()), (None, 4));
    assert!(visited == records);
    // And with its last byte damaged.
    let mut bytes = machine.read(1);
    bytes[FILE_HEADER_LEN + 100 + 2 * RECORD_HEADER_LEN + 3_000_000 - 1] ^= 1;
    machine.write(1, &bytes);
    let error = machine.recover(&[1], 1).0.unwrap_err();
    let second = (FILE_HEADER_LEN + RECORD_HEADER_LEN + 100) as u64;
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(second)));
}

const EDITS: FileKind = FileKind { magic: *b"PLCHTEST", version: 3, name: "edit log" };

fn edit_options(kind: FileKind) -> RecordFileOptions {
    RecordFileOptions {
        kind,
        id: FileId(4),
        hint: ManifestHint::NONE,
        preallocate: None,
        next_seq: 1,
        durable_seq: 0,
    }
}

#[test]
fn a_record_file_gives_its_records_and_its_end() {
    let machine = Machine::new();
    let path = machine.dir.join("edits");
    let mut edits = RecordWriter::create(&*machine.env, &path, &edit_options(EDITS)).unwrap();
    for seq in 1..=3 {
        let mut record = record_of(format!("edit {seq}").as_bytes());
        edits.append([pleach_log::Append { record: &mut record, first_seq: seq, count: 1 }]).unwrap();
        edits.sync("manifest.sync").unwrap();
        assert_eq!((edits.durable_seq(), edits.next_seq()), (seq, seq + 1));
        assert_eq!(edits.durable_len(), edits.offset() - RECORD_HEADER_LEN as u64);
    }
    let mut seen = Vec::new();
    let read = read_records(&machine.env, &path, &EDITS, FileId(4), 1, &mut |record| {
        seen.push(record.payload.to_vec());
        Ok(())
    });
    let read = read.unwrap();
    assert_eq!(seen, [b"edit 1", b"edit 2", b"edit 3"]);
    assert_eq!((read.next_seq, read.end, read.torn), (4, edits.offset(), None));
    assert!(read.end >= edits.durable_len());
}

#[test]
fn a_newer_format_version_is_unsupported() {
    let machine = Machine::new();
    let path = machine.dir.join("edits");
    drop(
        RecordWriter::create(&*machine.env, &path, &edit_options(FileKind { version: 4, ..EDITS })).unwrap(),
    );
    let error = read_records(&machine.env, &path, &EDITS, FileId(4), 1, &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("format version 4, which is newer than this build knows (3)"),
        "{error}"
    );
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
