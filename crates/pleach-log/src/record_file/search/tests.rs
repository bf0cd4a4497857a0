//! Tests of the search: what it finds, and that no bytes make it slow.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach_env::{FileId, SimEnv};

use super::super::reader::Found;
use super::*;
use crate::record_file::{
    Append, FILE_HEADER_LEN, FileKind, ManifestHint, RecordBuf, RecordFileOptions, RecordWriter,
};

const KIND: FileKind = FileKind { magic: *b"PLCHTEST", version: 1, name: "test file" };
const ID: FileId = FileId(9);
const PATH: &str = "file";
const FIRST: u64 = FILE_HEADER_LEN as u64;

fn writer(env: &SimEnv) -> RecordWriter {
    let options = RecordFileOptions {
        kind: KIND,
        id: ID,
        hint: ManifestHint::NONE,
        preallocate: None,
        next_seq: 1,
        durable_seq: 0,
    };
    RecordWriter::create(env, Path::new(PATH), &options).unwrap()
}

fn append(writer: &mut RecordWriter, count: u32, payload: &[u8]) -> u64 {
    let (mut record, offset, first_seq) = (RecordBuf::new(), writer.offset(), writer.next_seq());
    record.bytes_mut().extend_from_slice(payload);
    writer.append([Append { record: &mut record, first_seq, count }]).unwrap();
    offset
}

/// The result of a search of the whole file, where it ends, and the work that it takes.
fn search(env: &Arc<SimEnv>) -> (Vec<LaterRecord>, u64, u64) {
    let (mut reader, _) = RecordReader::open(&**env, Path::new(PATH), &KIND, ID).unwrap();
    let (mut found, before) = (Vec::new(), reader.examined());
    let end = reader.search(FIRST, &mut |later| found.push(later)).unwrap();
    (found, end, reader.examined() - before)
}

fn change(env: &SimEnv, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = env.read_file(Path::new(PATH)).unwrap();
    change(&mut bytes);
    env.write_file(Path::new(PATH), &bytes);
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// A file whose bytes behind the header are `body`.
fn file_of(body: &[u8]) -> Arc<SimEnv> {
    let env = SimEnv::new(1);
    drop(writer(&env));
    change(&env, |bytes| bytes.extend_from_slice(body));
    env
}

#[test]
fn the_blockwise_comparison_finds_what_a_plain_one_finds() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..2000 {
        let (len, start) = (rng.usize(..400), rng.u64(..1 << 40));
        let mut bytes: Vec<_> = (0..len).map(|_| rng.u8(..)).collect();
        for _ in 0..rng.usize(..3) {
            let at = rng.usize(..len.max(1));
            let value = tag(ID, start + at as u64).to_le_bytes();
            bytes.iter_mut().skip(at).zip(value).for_each(|(byte, value)| *byte = value);
        }
        let plain = (0..len.saturating_sub(3)).find(|&at| word(&bytes[at..]) == tag(ID, start + at as u64));
        assert_eq!(first_tag(&bytes, tag(ID, start)), plain);
        let last = bytes.iter().rposition(|&byte| byte != 0);
        assert_eq!(last_nonzero(&bytes), last);
        bytes.resize(len + rng.usize(..9000), 0);
        assert_eq!(last_nonzero(&bytes), last);
    }
}

#[test]
fn long_records_are_found_and_the_short_ones_behind_them() {
    let env = SimEnv::new(1);
    let mut writer = writer(&env);
    let first = append(&mut writer, 1, &[1; 100]);
    let shorts: Vec<_> = (0..3).map(|_| append(&mut writer, 1, &[2; 60])).collect();
    let long = append(&mut writer, 5, &[3; 300]);
    let behind = append(&mut writer, 1, &[4; 60]);
    let (found, end, _) = search(&env);
    let places: Vec<_> = found.iter().map(|later| (later.offset, later.is_whole)).collect();
    let all = [first, shorts[0], shorts[1], shorts[2], long, behind].map(|offset| (offset, true));
    assert_eq!((&places[..], end), (&all[..], writer.offset()));
    assert_eq!(found[5].header.first_seq, 10);
    // A damaged short record hides the next ones, up to a long one.
    change(&env, |bytes| bytes[index(shorts[1]) + 20] ^= 1);
    let (found, ..) = search(&env);
    let places: Vec<_> = found.iter().map(|later| later.offset).collect();
    assert_eq!(places, [first, shorts[0], long, behind]);
    // A damaged payload leaves the header, and what it says of durable records.
    change(&env, |bytes| bytes[index(long) + 200] ^= 1);
    let (found, ..) = search(&env);
    let places: Vec<_> = found.iter().map(|later| (later.offset, later.is_whole)).collect();
    // It leaves the number of the short record behind it, too.
    assert_eq!(places, [(first, true), (shorts[0], true), (long, false), (behind, true)]);
}

#[test]
fn what_a_failed_append_left_is_no_loss() {
    let env = SimEnv::new(1);
    let at = |offset: u64, epoch: u8| {
        let header = RecordHeader {
            kind: RecordKind::Data,
            epoch,
            payload_len: 0,
            first_seq: 7,
            count: 1,
            durable_lag: 0,
        };
        header.encode(ID, offset, &[])
    };
    drop(writer(&env));
    change(&env, |bytes| {
        bytes.resize(index(FIRST) + 400, 0);
        for (offset, epoch) in [(10, 0), (100, 2), (200, 1), (300, 2)] {
            let encoded = at(FIRST + offset, epoch);
            bytes[index(FIRST + offset)..][..encoded.len()].copy_from_slice(&encoded);
        }
    });
    let whole: Vec<_> = search(&env).0.iter().map(|later| later.is_whole).collect();
    assert_eq!(whole, [true, true, false, true]);
}

/// Work for each byte of a file, at most: it is read, compared and at most twice checksummed, and where a payload is not
/// as its header says, read again.
const WORK_MAX: u64 = 8;

#[test]
fn no_payload_takes_more_work_than_random_bytes() {
    let len = 3 << 20;
    let mut rng = Rng::with_seed(1);
    let random: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
    let work_of = |body: &[u8]| search(&file_of(body)).2;
    let usual = work_of(&random);
    assert!(usual < 3 * len, "{usual}");
    let words = |next: &dyn Fn(u32) -> u32| -> Vec<u8> {
        (0..u32::try_from(len).unwrap() / 4).flat_map(|i| next(i).to_le_bytes()).collect()
    };
    let env = SimEnv::new(1);
    let mut other = writer(&env);
    for _ in 0..20_000 {
        append(&mut other, 2, &[7; 100]);
    }
    let log = env.read_file(Path::new(PATH)).unwrap();
    for body in [
        words(&|_| 0),
        words(&|_| 1001),
        words(&|_| 257),
        words(&|_| u32::MAX),
        words(&|i| i),
        words(&|i| 1_700_000_000 + 17 * i),
        words(&|i| 1 << (i % 32)),
        // This very file, one byte further on.
        log[index(FIRST) - 1..].to_vec(),
    ] {
        let work = work_of(&body);
        assert!(work * len <= (usual + len / 1000) * body.len() as u64, "{work} against {usual}");
    }
}

/// Bytes that are made for their place in the file: headers whose payloads all reach to the end of the file.
#[test]
fn nested_headers_take_linear_work() {
    let len = 1 << 20;
    for (step, payload_len) in [(32, 1 << 19), (32, 8000), (64, 1 << 18), (4096, 1 << 19)] {
        let mut body = vec![0; len];
        for start in (0..len - step).step_by(step) {
            let header = RecordHeader {
                kind: RecordKind::Data,
                epoch: 0,
                payload_len,
                first_seq: 1,
                count: 1,
                durable_lag: 0,
            };
            let encoded = header.encode(ID, FIRST + start as u64, &[]);
            body[start..start + RECORD_HEADER_LEN].copy_from_slice(&encoded);
        }
        let (found, _, work) = search(&file_of(&body));
        assert!(found.len() >= len / step - 1 && found.iter().all(|later| !later.is_whole));
        assert!(work <= WORK_MAX * len as u64, "{work} for {len} bytes, a header every {step}");
    }
    // Tags alone.
    let body: Vec<_> = (0..len as u64 / 4).flat_map(|i| tag(ID, FIRST + 4 * i).to_le_bytes()).collect();
    let (found, end, work) = search(&file_of(&body));
    assert_eq!((found.len(), end), (0, FIRST + len as u64));
    assert!(work <= 12 * len as u64, "{work}");
}

/// The findings of salvage behind the header: places of records, and the work that it takes.
fn salvage(env: &Arc<SimEnv>) -> (Vec<u64>, u64) {
    let mut reader = RecordReader::open_for_salvage(&**env, Path::new(PATH), &KIND, ID).unwrap();
    let mut found = Vec::new();
    loop {
        match reader.advance().unwrap() {
            Found::Record(_, offset) => found.push(offset),
            Found::End { offset, .. } if !reader.find_record(offset).0 => return (found, reader.examined()),
            Found::End { .. } => {}
        }
    }
}

/// Records of a failed append, each a part of the one before, whose checksums are right. A marker of a newer epoch stands
/// before them.
#[test]
fn salvage_of_nested_stale_records_takes_linear_work() {
    let len = 1 << 18;
    let marker = RecordHeader {
        kind: RecordKind::Marker,
        epoch: 1,
        payload_len: 0,
        first_seq: 1,
        count: 0,
        durable_lag: 0,
    };
    let at = |index: usize| FIRST + index as u64;
    let mut body = vec![0; len];
    // The last one first: the checksum of a payload covers the headers in it.
    for index in (1..len / RECORD_HEADER_LEN).map(|i| i * RECORD_HEADER_LEN).rev() {
        let payload_len = u32::try_from(len - index - RECORD_HEADER_LEN).unwrap();
        let stale = RecordHeader { kind: RecordKind::Data, epoch: 0, payload_len, count: 2, ..marker };
        let encoded = stale.encode(ID, at(index), &body[index + RECORD_HEADER_LEN..]);
        body[index..index + RECORD_HEADER_LEN].copy_from_slice(&encoded);
    }
    body[..RECORD_HEADER_LEN].copy_from_slice(&marker.encode(ID, FIRST, &[]));
    let (found, work) = salvage(&file_of(&body));
    assert_eq!(found, [FIRST]);
    assert!(work <= WORK_MAX * len as u64, "{work} for {len} bytes");
}

/// The header of a damaged record says that what has a lower epoch behind it is left from a failed append.
#[test]
fn salvage_takes_no_stale_record_behind_a_damaged_one() {
    let record = |epoch: u8, first_seq: u64, at: usize| {
        let payload = [epoch; 200];
        let payload_len = u32::try_from(payload.len()).unwrap();
        let kind = RecordKind::Data;
        let header = RecordHeader { kind, epoch, payload_len, first_seq, count: 5, durable_lag: 0 };
        let place = FIRST + at as u64;
        [&header.encode(ID, place, &payload)[..], &payload].concat()
    };
    let len = RECORD_HEADER_LEN + 200;
    let mut body = [record(0, 1, 0), record(1, 6, len), record(0, 11, 2 * len)].concat();
    body[len + RECORD_HEADER_LEN + 9] ^= 1;
    assert_eq!(salvage(&file_of(&body)).0, [FIRST]);
}

/// Values that imitate a log at their place: headers that claim the rest of the file, alone or with whole records between.
#[test]
fn salvage_of_nested_headers_takes_linear_work() {
    let len = 1 << 20;
    for between in [0, 40] {
        let mut body = vec![0; len];
        let mut at = 0;
        while at + 1000 < len {
            let mut put = |payload: &[u8], claimed: Option<usize>| {
                let payload_len = claimed.unwrap_or(len - 1000 - at);
                let header = RecordHeader {
                    kind: RecordKind::Data,
                    epoch: 0,
                    payload_len: u32::try_from(payload_len).unwrap(),
                    first_seq: 1,
                    count: 2,
                    durable_lag: 0,
                };
                let encoded = header.encode(ID, FIRST + at as u64, payload);
                body[at..at + RECORD_HEADER_LEN].copy_from_slice(&encoded);
                body[at + RECORD_HEADER_LEN..][..payload.len()].copy_from_slice(payload);
                at += RECORD_HEADER_LEN + payload.len();
            };
            put(&[], None);
            if between > 0 {
                put(&vec![7; between], Some(between));
            }
        }
        let (found, work) = salvage(&file_of(&body));
        assert_eq!(found, [], "all of them are in a value");
        assert!(work <= WORK_MAX * len as u64, "{work} for {len} bytes, {between} between");
    }
}

/// A value can be part of a log. Its bytes are no records of this log, even if the value is damaged.
#[test]
fn salvage_takes_nothing_from_inside_of_a_damaged_value() {
    let env = SimEnv::new(1);
    let mut writer = writer(&env);
    let first = append(&mut writer, 1, &[1; 100]);
    let at = writer.offset();
    let inner = at + RECORD_HEADER_LEN as u64 + 50;
    let imitation = RecordHeader {
        kind: RecordKind::Data,
        epoch: 0,
        payload_len: 100,
        first_seq: 900,
        count: 5,
        durable_lag: 0,
    };
    let mut value = vec![9; 500];
    value[50..82].copy_from_slice(&imitation.encode(ID, inner, &[9; 100]));
    append(&mut writer, 5, &value);
    let behind = append(&mut writer, 5, &[3; 300]);
    assert_eq!(salvage(&env).0, [first, at, behind]);
    change(&env, |bytes| bytes[index(at) + 40] ^= 1);
    assert_eq!(salvage(&env).0, [first, behind]);
    // The damage of a short record says nothing of what follows.
    let short = append(&mut writer, 1, &[4; 60]);
    let last = append(&mut writer, 5, &[5; 60]);
    change(&env, |bytes| bytes[index(short) + 5] ^= 0xff);
    assert_eq!(salvage(&env).0, [first, behind, last]);
}

/// The header of a damaged record proves the number, the epoch and the place of what follows.
#[test]
fn salvage_takes_the_short_records_behind_a_damaged_value() {
    let env = SimEnv::new(1);
    let mut writer = writer(&env);
    let first = append(&mut writer, 1, &[1; 100]);
    let damaged = append(&mut writer, 5, &[2; 300]);
    let also_damaged = append(&mut writer, 5, &[3; 300]);
    let shorts: Vec<_> = (0..3).map(|_| append(&mut writer, 1, &[4; 60])).collect();
    assert!(shorts.windows(2).all(|two| two[1] - two[0] == 60 + SHORT_HEADER_LEN as u64), "they are short");
    let last = append(&mut writer, 5, &[5; 60]);
    change(&env, |bytes| bytes[index(damaged) + 200] ^= 1);
    let found = [first, also_damaged, shorts[0], shorts[1], shorts[2], last];
    assert_eq!(salvage(&env).0, found);
    change(&env, |bytes| bytes[index(also_damaged) + 200] ^= 1);
    let found = [first, shorts[0], shorts[1], shorts[2], last];
    assert_eq!(salvage(&env).0, found);
    // Behind a lost header, too.
    change(&env, |bytes| bytes[index(damaged) + 3] ^= 1);
    assert_eq!(salvage(&env).0, found);
    // Where none of them is whole, the next long one is found.
    change(&env, |bytes| bytes[index(shorts[0]) + 20] ^= 1);
    assert_eq!(salvage(&env).0, [first, last]);
}

/// The bytes are looked at a mebibyte at a time.
#[test]
fn a_header_across_two_windows_is_found() {
    const WINDOW: u64 = 1 << 20;
    let header_len = RECORD_HEADER_LEN as u64;
    for before in 0..=header_len + 1 {
        let env = SimEnv::new(1);
        let mut writer = writer(&env);
        append(&mut writer, 2, &vec![1; index(WINDOW - before - FIRST - header_len)]);
        let offset = append(&mut writer, 2, &[2; 100]);
        assert_eq!(offset, WINDOW - before);
        drop(writer);
        change(&env, |bytes| bytes[index(FIRST)..index(FIRST + header_len)].fill(0));
        let found: Vec<_> = search(&env).0.iter().map(|found| (found.offset, found.is_whole)).collect();
        assert_eq!(found, [(offset, true)], "{before} bytes before the end of the window");
    }
}
