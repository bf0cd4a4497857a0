//! Tests of record files that need their inside: golden bytes, and the memory a damaged file can take.

use std::path::Path;

use pleach_env::{FileId, SimEnv};

use super::file_header::{FileHeader, HeaderState};
use super::record_header::{LAG_UNKNOWN, RecordHeader};
use super::*;

const KIND: FileKind = FileKind { magic: *b"PLCHTEST", version: 0x0102, name: "test file" };

const OPTIONS: RecordFileOptions = RecordFileOptions {
    kind: KIND,
    id: FileId(1),
    hint: ManifestHint::NONE,
    preallocate: None,
    next_seq: 1,
    durable_seq: 0,
};

/// Where the first record is.
const FIRST: u64 = FILE_HEADER_LEN as u64;

const DATA: RecordHeader =
    RecordHeader { kind: RecordKind::Data, epoch: 0, payload_len: 0, first_seq: 1, count: 1, durable_lag: 0 };

#[test]
fn golden_bytes_of_a_header() {
    let header =
        FileHeader { id: FileId(0x0807), hint: ManifestHint { file: FileId(6), len: 0x0504_0302_0100 } };
    let bytes = header.encode(&KIND);
    assert_eq!(
        hex(&bytes),
        "504c4348544553540201000000000000070800000000000006000000000000000001020304050000\
         00000000000000000000000000000000000000000abbf0b8\
         0000000000000000000000000000000000000000000000000000000000000000"
    );
    let state = FileHeader::decode(&bytes, &KIND, FileId(0x0807), Path::new("x")).unwrap();
    assert!(matches!(state, HeaderState::Whole(found) if found == header));
}

#[test]
fn golden_bytes_of_a_record() {
    let header = RecordHeader {
        kind: RecordKind::Data,
        epoch: 3,
        payload_len: 2,
        first_seq: 0x07_0605_0403_0201,
        count: 0x0d0c_0b0a,
        durable_lag: 0x1110_0f0e,
    };
    let bytes = header.encode(FileId(5), 4096, b"hi");
    assert_eq!(hex(&bytes), "e7b20d501901020304050607020000000a0b0c0d0e0f1011c2d99df5f4dbe14d");
    assert_eq!(RecordHeader::decode(&bytes, None), Ok(header));
    assert_eq!(header.durable_seq(), Some(0x07_0605_0403_0200 - 0x1110_0f0e));
}

#[test]
fn golden_bytes_of_a_short_record() {
    let header = RecordHeader {
        kind: RecordKind::Short,
        epoch: 3,
        payload_len: 258,
        first_seq: 0x07_0605_0403_0201,
        count: 1,
        durable_lag: LAG_UNKNOWN,
    };
    let bytes = header.encode(FileId(5), 4096, &[b'x'; 258]);
    assert_eq!(hex(&bytes[RECORD_HEADER_LEN - header.len()..]), "e51bd0670b02");
    let short = &bytes[RECORD_HEADER_LEN - header.len()..];
    assert_eq!(RecordHeader::decode(short, Some((header.first_seq, header.epoch))), Ok(header));
    assert!(RecordHeader::decode(short, None).is_err(), "nothing precedes it");
    assert!(RecordHeader::decode(short, Some((SEQ_MAX, 0))).is_err());
    assert!(RecordHeader::decode(&short[..5], Some((1, 0))).is_err());
}

/// Which records of a file are long: the first, and those that make up for what damage could take.
#[test]
fn long_records_tell_what_is_durable() {
    let env = SimEnv::new(1);
    let path = Path::new("file");
    let mut writer = RecordWriter::create(&*env, path, &OPTIONS).unwrap();
    let put = |writer: &mut RecordWriter, count: u32| {
        let mut record = RecordBuf::new();
        record.bytes_mut().extend_from_slice(&[7; 100]);
        let (first_seq, before) = (writer.next_seq(), writer.offset());
        writer.append([Append { record: &mut record, first_seq, count }]).unwrap();
        writer.offset() - before == 100 + RECORD_HEADER_LEN as u64
    };
    let long: Vec<_> = (0..1000).filter(|_| put(&mut writer, 1)).map(|_| ()).collect();
    // About every 16 KiB in 106 kB, and more often at first: at some 0.5, 1, 2, 4, 8, 16 and 32 KiB.
    assert!((9..=14).contains(&long.len()), "{}", long.len());
    assert!(put(&mut writer, 2), "several operations");
    writer.sync("log.sync").unwrap();
    assert!(put(&mut writer, 1), "something else is durable");
    let distances: Vec<_> = (0..100).map(|_| put(&mut writer, 1)).collect();
    let places: Vec<_> = (0..100).filter(|&i| distances[i]).collect();
    assert!(places[0] <= 6 && places.windows(2).all(|w| w[1] <= 2 * w[0] + 6), "{places:?}");
    let (mut reader, _) = RecordReader::open(&*env, path, &KIND, FileId(1)).unwrap();
    for seq in 1..=1000 {
        let Found::Record(header, _) = reader.advance().unwrap() else { panic!("the chain ends at {seq}") };
        assert_eq!((header.first_seq, reader.payload()), (seq, &[7; 100][..]));
    }
}

#[test]
fn lag_saturates() {
    assert_eq!(RecordHeader::lag(1, 0), 0);
    assert_eq!(RecordHeader::lag(10, 4), 5);
    assert_eq!(RecordHeader::lag(10, 400), 0);
    assert_eq!(RecordHeader::lag(1 << 32, 0), LAG_UNKNOWN);
    assert_eq!(RecordHeader::lag(1 << 40, 0), LAG_UNKNOWN);
}

#[test]
fn headers_out_of_range_are_refused() {
    let good = RecordHeader {
        kind: RecordKind::Data,
        epoch: 0,
        payload_len: 0,
        first_seq: SEQ_MAX - 1,
        count: 1,
        durable_lag: 0,
    };
    assert!(RecordHeader::decode(&good.encode(FileId(1), 64, &[]), None).is_ok());
    let marker = RecordHeader { kind: RecordKind::Marker, first_seq: SEQ_MAX, count: 0, ..good };
    assert!(RecordHeader::decode(&marker.encode(FileId(1), 64, &[]), None).is_ok());
    for bad in [
        RecordHeader { count: 0, ..good },
        RecordHeader { count: 2, ..good },
        RecordHeader { first_seq: 0, ..good },
        RecordHeader { payload_len: u32::try_from(PAYLOAD_LEN_MAX).unwrap() + 1, ..good },
        RecordHeader { count: 1, ..marker },
        RecordHeader { payload_len: 1, ..marker },
    ] {
        assert!(RecordHeader::decode(&bad.encode(FileId(1), 64, &[]), None).is_err(), "{bad:?}");
    }
}

#[test]
fn damaged_lengths_cost_no_memory() {
    let env = SimEnv::new(1);
    let path = Path::new("file");
    let mut writer = RecordWriter::create(&*env, path, &OPTIONS).unwrap();
    let mut record = RecordBuf::new();
    record.bytes_mut().resize(RECORD_HEADER_LEN + 5_000_000, 7);
    writer.append([Append { record: &mut record, first_seq: 1, count: 1 }]).unwrap();
    let read = |expected_record: bool| {
        let (mut reader, _) = RecordReader::open(&*env, path, &KIND, FileId(1)).unwrap();
        let found = reader.advance().unwrap();
        assert_eq!(matches!(found, Found::Record(..)), expected_record);
        let mut records = 0;
        if !expected_record {
            reader.search(0, &mut |later| records += usize::from(later.is_whole)).unwrap();
        }
        assert_eq!(records, 0);
        reader.memory()
    };
    assert!(read(true) >= 5_000_000);
    // Another payload under the same checksum, then lengths near the true one and beyond the file.
    writer.file().write_all_at(&[8], 1_000_000).unwrap();
    assert!(read(false) <= 2 << 20);
    for payload_len in [4_999_999, 5_000_001, 1 << 30, u32::MAX] {
        let header = RecordHeader { payload_len, ..DATA };
        writer.file().write_all_at(&header.encode(FileId(1), FIRST, &[]), FIRST).unwrap();
        assert!(read(false) <= 2 << 20);
    }
}

#[test]
fn a_stamp_counts_only_with_its_checksum_and_in_its_file() {
    let stamp = Stamp { durable_len: 0x0807_0605_0403_0201 };
    let mut start = vec![0; FILE_HEADER_LEN];
    assert_eq!(Stamp::decode(&start, FileId(5)), None);
    start[64..].copy_from_slice(&stamp.encode(FileId(5)));
    assert_eq!(hex(&start[64..]), "010203040506070800000000000000000000000000000000000000002f1cea4e");
    assert_eq!(Stamp::decode(&start, FileId(5)), Some(stamp));
    assert_eq!(Stamp::decode(&start, FileId(6)), None);
    assert_eq!(Stamp::decode(&start[..95], FileId(5)), None);
    for at in 64..96 {
        start[at] ^= 1;
        assert_eq!(Stamp::decode(&start, FileId(5)), None, "byte {at}");
        start[at] ^= 1;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
}
