//! Damaged files: every byte, every length, holes of zeros. Never a panic, never a wrong record, and durable records
//! are missed.

use pleach_env::{ErrorKind, FileId, failpoint};
use pleach_log::{FILE_HEADER_LEN, SeqNo};

use crate::support::{Logged, Machine, append, logged, rotate};

/// Where the first record is.
const FIRST: usize = FILE_HEADER_LEN;

const SEGMENT_LEN: u64 = 420;

/// Where a segment says how long it was when it was synced.
const STAMP: std::ops::Range<usize> = 64..FILE_HEADER_LEN;

/// A log of three segments in which everything was synced, as bytes, with its records and where each of them ends.
struct Synced {
    segments: Vec<(u64, Vec<u8>)>,
    /// Segment index and end offset of each record.
    records: Vec<(Logged, usize, usize)>,
}

impl Synced {
    fn new() -> Self {
        let machine = Machine::new();
        let mut log = machine.log(3, SEGMENT_LEN, 0);
        let mut records = Vec::new();
        for segment in 0..3 {
            if segment > 0 {
                rotate(&mut log);
            }
            for (count, len) in [(1, 30), (3, 0), (2, 41)] {
                let record = logged(log.last_seq() + 1, count, len);
                append(&mut log, std::slice::from_ref(&record)).unwrap();
                records.push((record, segment, usize::try_from(log.offset()).unwrap()));
                if count == 3 {
                    log.sync().unwrap();
                }
            }
            log.sync().unwrap();
        }
        let segments = (3..=5).map(|id| (id, machine.read(id))).collect();
        Self { segments, records }
    }

    fn all(&self) -> Vec<Logged> {
        self.records.iter().map(|(record, ..)| record.clone()).collect()
    }

    /// Records that end at or before `len` bytes of segment `index`, and all of earlier segments.
    fn up_to(&self, index: usize, len: usize) -> Vec<Logged> {
        self.records
            .iter()
            .filter(|(_, s, end)| *s < index || (*s == index && *end <= len))
            .map(|(r, ..)| r.clone())
            .collect()
    }
}

/// Asserts what damage of `start..end` in segment `index` permits: an error or all records; and where the last marker is
/// hit too, all records before the damage.
fn assert_permitted(outcome: &Outcome, synced: &Synced, index: usize, start: usize, end: usize) {
    let (_, last, data_end) = synced.records[synced.records.len() - 1];
    if index == last && end > data_end && outcome.error.is_none() {
        assert!(outcome.visited.starts_with(&synced.up_to(index, start)), "damage at {start}..{end}");
        assert!(synced.all().starts_with(&outcome.visited), "damage at {start}..{end}");
    } else {
        assert_error_or_all(outcome, &synced.all(), &format!("damage at {start}..{end} of segment {index}"));
    }
}

struct Outcome {
    error: Option<ErrorKind>,
    torn: Option<(FileId, u64)>,
    next_seq: SeqNo,
    visited: Vec<Logged>,
}

/// Recovers from the log after `damage` to segment `index`.
fn recover_damaged(
    machine: &Machine,
    synced: &Synced,
    index: usize,
    damage: impl FnOnce(&mut Vec<u8>),
) -> Outcome {
    let (id, bytes) = &synced.segments[index];
    let mut damaged = bytes.clone();
    damage(&mut damaged);
    machine.write(*id, &damaged);
    let (result, visited) = machine.recover(&[3, 4, 5], 1);
    machine.write(*id, bytes);
    match result {
        Ok(recovery) => Outcome { error: None, torn: recovery.torn, next_seq: recovery.next_seq, visited },
        Err(e) => Outcome { error: Some(e.kind()), torn: None, next_seq: 0, visited },
    }
}

fn installed(synced: &Synced) -> Machine {
    let machine = Machine::new();
    for (id, bytes) in &synced.segments {
        machine.write(*id, bytes);
    }
    machine
}

/// Asserts an error other than I/O, or all records.
fn assert_error_or_all(outcome: &Outcome, all: &[Logged], what: &str) {
    match outcome.error {
        Some(kind) => {
            assert!(matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported), "{what}: {kind:?}");
        }
        None => assert_eq!(outcome.visited, all, "{what}"),
    }
}

#[test]
fn an_undamaged_log_is_recovered_whole_and_clean() {
    let synced = Synced::new();
    let outcome = recover_damaged(&installed(&synced), &synced, 0, |_| {});
    assert_eq!((outcome.error, outcome.torn), (None, None));
    assert_eq!(outcome.visited, synced.all());
    assert_eq!(outcome.next_seq, 19);
}

#[test]
fn every_changed_byte_of_a_synced_log_gives_an_error_or_all_records() {
    let synced = Synced::new();
    let machine = installed(&synced);
    let all = synced.all();
    let mut whole = 0;
    for index in 0..3 {
        for at in 0..synced.segments[index].1.len() {
            for change in [0x01, 0x08, 0x80, 0xff] {
                let outcome = recover_damaged(&machine, &synced, index, |bytes| bytes[at] ^= change);
                assert_error_or_all(
                    &outcome,
                    &all,
                    &format!("segment {index}, byte {at} changed by {change:#x}"),
                );
                whole += usize::from(outcome.error.is_none());
                let ends = synced.records.iter().filter(|(_, s, _)| *s == index).map(|(.., end)| *end);
                let data_end = ends.max().unwrap();
                assert_eq!(
                    outcome.error.is_some(),
                    at < data_end && !STAMP.contains(&at),
                    "segment {index}, byte {at}: damage is missed exactly in the stamp and behind the data"
                );
            }
        }
    }
    assert!(whole > 0, "bytes behind the data may change without loss");
}

#[test]
fn every_truncation_of_a_synced_segment_is_corruption_while_its_header_is_there() {
    let synced = Synced::new();
    let machine = installed(&synced);
    for index in 0..3 {
        let whole = synced.segments[index].1.len();
        for len in 0..=whole {
            let outcome = recover_damaged(&machine, &synced, index, |bytes| bytes.truncate(len));
            // Of the last segment, nobody else says that it was there.
            if index == 2 && len < FILE_HEADER_LEN {
                assert_eq!((outcome.error, outcome.torn), (None, Some((FileId(5), 0))), "length {len}");
                assert_eq!(outcome.visited, synced.up_to(2, len), "length {len}");
            } else {
                let expected = (len < whole).then_some(ErrorKind::Corruption);
                assert_eq!(outcome.error, expected, "segment {index} cut to {len}");
            }
        }
    }
}

#[test]
fn every_truncation_of_a_segment_without_a_stamp_gives_the_records_before_it() {
    let mut synced = Synced::new();
    synced.segments.iter_mut().for_each(|(_, bytes)| bytes[STAMP].fill(0));
    let machine = installed(&synced);
    for index in 0..3 {
        for len in 0..=synced.segments[index].1.len() {
            let outcome = recover_damaged(&machine, &synced, index, |bytes| bytes.truncate(len));
            let what = format!("segment {index} cut to {len}");
            if index == 2 {
                // A marker that is still there says how much there must be: it always stands behind that much.
                assert_eq!((outcome.error, outcome.visited), (None, synced.up_to(2, len)), "{what}");
            } else {
                assert_error_or_all(&outcome, &synced.all(), &what);
                let lost = synced.up_to(index, len).len() < synced.up_to(index, usize::MAX).len();
                assert_eq!(outcome.error.is_some(), lost, "{what}");
            }
        }
    }
}

#[test]
fn holes_of_zeros_are_damage_in_the_middle_and_a_torn_tail_at_the_end() {
    let synced = Synced::new();
    let machine = installed(&synced);
    for index in 0..3 {
        let len = synced.segments[index].1.len();
        for start in 0..len {
            for hole in [1, 7, 24, 64, len] {
                let end = (start + hole).min(len);
                let outcome = recover_damaged(&machine, &synced, index, |bytes| bytes[start..end].fill(0));
                assert_permitted(&outcome, &synced, index, start, end);
            }
        }
    }
}

#[test]
fn a_missing_segment_in_the_middle_is_corruption_and_at_the_end_it_is_a_torn_tail() {
    let synced = Synced::new();
    let machine = installed(&synced);
    assert_eq!(machine.recover(&[3, 5], 1).0.unwrap_err().kind(), ErrorKind::Corruption);
    let (result, visited) = machine.recover(&[3, 4], 1);
    assert_eq!(result.unwrap().next_seq, 13);
    assert_eq!(visited, synced.up_to(1, usize::MAX));
    // What SSTs hold is not missed.
    let (result, visited) = machine.recover(&[5], 13);
    assert_eq!((result.unwrap().next_seq, visited.len()), (19, 3));
    let (result, visited) = machine.recover(&[5], 100);
    assert_eq!((result.unwrap().next_seq, visited.len()), (100, 0));
}

#[test]
fn swapped_segments_are_corruption() {
    let synced = Synced::new();
    let machine = installed(&synced);
    machine.write(3, &synced.segments[1].1);
    machine.write(4, &synced.segments[0].1);
    let error = machine.recover(&[3, 4, 5], 1).0.unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(16)));
}

#[test]
fn a_record_moved_to_another_offset_is_no_record() {
    let synced = Synced::new();
    let machine = installed(&synced);
    // The first record of the first segment, over the first of the last one: same place, another file.
    let record = synced.segments[0].1[FIRST..FIRST + 62].to_vec();
    let outcome =
        recover_damaged(&machine, &synced, 2, |bytes| bytes[FIRST..FIRST + 62].copy_from_slice(&record));
    assert_eq!(outcome.error, Some(ErrorKind::Corruption));
    // Moved by one byte within its file.
    let outcome = recover_damaged(&machine, &synced, 0, |bytes| {
        bytes.insert(FIRST, 0);
        bytes.pop();
    });
    assert_eq!(outcome.error, Some(ErrorKind::Corruption));
}

#[test]
fn random_bytes_never_panic() {
    let seed = std::env::var("PLEACH_SEED").map_or(1, |s| s.parse().unwrap());
    println!("PLEACH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let synced = Synced::new();
    let machine = installed(&synced);
    for _ in 0..2_000 {
        let index = random.usize(..3);
        let (start, len) = (random.usize(..synced.segments[index].1.len()), random.usize(1..40));
        let mut noise = vec![0; len];
        random.fill(&mut noise);
        let outcome = recover_damaged(&machine, &synced, index, |bytes| {
            let end = (start + len).min(bytes.len());
            bytes[start..end].copy_from_slice(&noise[..end - start]);
        });
        assert_permitted(&outcome, &synced, index, start, start + len);
    }
}

#[test]
fn a_missing_check_of_header_checksums_is_noticed() {
    let synced = Synced::new();
    let machine = installed(&synced);
    let damaged_hint = |bytes: &mut Vec<u8>| bytes[32] ^= 1;
    assert!(recover_damaged(&machine, &synced, 0, damaged_hint).error.is_some());
    let missed =
        failpoint::with_skipped("log.header.crc", || recover_damaged(&machine, &synced, 0, damaged_hint));
    assert_eq!((missed.error, missed.visited), (None, synced.all()));
}
