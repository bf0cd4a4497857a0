//! Value files: what is written is found, and nothing else.

use pleach_env::SimEnv;

use super::super::builder::{MovedFileBuilder, ValueFileBuilder};
use super::super::stored::ValuePacker;
use super::*;

const PARTITION: PartitionId = PartitionId(3);

fn env() -> Arc<dyn Env> {
    SimEnv::new(1)
}

/// Every third value repeats, so that it can be packed.
fn value(number: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    let len = if number.is_multiple_of(17) { rng.usize(..20_000) } else { rng.usize(..900) };
    if number.is_multiple_of(3) {
        return number.to_le_bytes().into_iter().cycle().take(len).collect();
    }
    (0..len).map(|_| rng.u8(..)).collect()
}

/// Checksum and stored form of a value.
fn stored(packs: bool, key: (PartitionId, &[u8]), value: &[u8]) -> Vec<u8> {
    let mut packer = ValuePacker::default();
    let (checksum, stored) = ValuePacker::store(packs.then_some(&mut packer), key, value);
    [&checksum[..], stored].concat()
}

fn add(builder: &mut ValueFileBuilder, stored: &[u8]) -> ValuePointer {
    let (checksum, stored) = stored.split_at(CHECKSUM_LEN);
    builder.add(checksum, stored).unwrap()
}

fn open(env: &Arc<dyn Env>, id: u64, kind: HomeKind, len: u64) -> Result<ValueFile> {
    let home = ValueHome::new(FileId(id), kind, len, Arc::default());
    ValueFile::open(env, &home.path(Path::new("/")), &home, false)
}

fn read(file: &ValueFile, pointer: ValuePointer, key: &[u8]) -> Result<Arc<[u8]>> {
    let span = file.span(pointer)?;
    Ok(file.take(pointer, (PARTITION, key), &span, file.read(&span))?.bytes().into())
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// Copies some values; a file of them, and their pointers.
fn copied(env: &Arc<dyn Env>, id: u64, count: u64) -> (u64, Vec<ValuePointer>) {
    let mut builder = ValueFileBuilder::create(env, Path::new("/"), FileId(id)).unwrap();
    let add = |n| add(&mut builder, &stored(true, (PARTITION, &key(n)), &value(n)));
    let pointers: Vec<_> = (0..count).map(add).collect();
    let is_packed = |(number, pointer): (u64, &ValuePointer)| (pointer.len as usize) < value(number).len();
    assert!((0..).zip(&pointers).filter(|pair| is_packed(*pair)).count() as u64 > count / 4);
    (builder.finish("values.sync").unwrap(), pointers)
}

#[test]
fn copied_values_are_found_by_their_pointers() {
    let env = env();
    let (len, pointers) = copied(&env, 7, 200);
    let file = open(&env, 7, HomeKind::Values, len).unwrap();
    for (number, pointer) in (0..).zip(&pointers) {
        assert_eq!(*read(&file, *pointer, &key(number)).unwrap(), *value(number));
    }
    let error = read(&file, pointers[3], &key(4)).unwrap_err();
    assert_eq!((error.path(), error.offset()), (Some(&*file.path), Some(pointers[3].offset)));
    let out = ValuePointer { offset: len, ..pointers[3] };
    assert!(read(&file, out, &key(3)).unwrap_err().to_string().contains("out of the file"));
    let header = ValuePointer { offset: 8, ..pointers[3] };
    assert!(read(&file, header, &key(3)).unwrap_err().to_string().contains("out of the file"));
}

#[test]
fn moved_values_are_found_by_their_old_pointers() {
    let env = env();
    let sources: Vec<_> = [5, 6, 9].map(|id| (id, copied(&env, id, 300))).into_iter().collect();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut builder = MovedFileBuilder::create(&env, Path::new("/"), FileId(12)).unwrap();
    let mut moved = Vec::new();
    let mut left = Vec::new();
    for (id, (len, pointers)) in &sources {
        let file = open(&env, *id, HomeKind::Values, *len).unwrap();
        for (number, pointer) in (0..).zip(pointers) {
            if rng.u8(..3) == 0 {
                left.push((*pointer, number));
                continue;
            }
            file.read_each([*pointer].into_iter(), &mut |pointer, stored| builder.add(pointer, stored))
                .unwrap();
            moved.push((*pointer, number));
        }
    }
    let len = builder.finish("moved.sync").unwrap();
    let file = open(&env, 12, HomeKind::Moved, len).unwrap();
    for (pointer, number) in &moved {
        assert_eq!(*read(&file, *pointer, &key(*number)).unwrap(), *value(*number));
    }
    for (pointer, number) in left {
        let error = read(&file, pointer, &key(number)).unwrap_err();
        assert_eq!(
            (error.kind(), error.path()),
            (ErrorKind::Corruption, Some(&*file.path)),
            "it was not moved"
        );
    }
    // The error of a value that is not the key's names the place in this file, and the old one.
    let bytes = bytes_of(&env, 12);
    for (pointer, number) in moved.iter().step_by(7) {
        let error = read(&file, *pointer, b"another").unwrap_err();
        let (at, expected) =
            (error.offset().unwrap(), stored(true, (PARTITION, &key(*number)), &value(*number)));
        let found = &bytes[usize::try_from(at).unwrap()..][..expected.len()];
        assert!(error.path() == Some(&*file.path) && found == expected, "{error}");
        assert!(
            error.to_string().contains(&format!(", moved from {} of segment", pointer.offset)),
            "{error}"
        );
    }
    let values: u64 = moved.iter().map(|(pointer, _)| pointer.bytes()).sum();
    assert!(file.memory() as u64 <= values / 256 + 200, "{} bytes for {values}", file.memory());

    // A second move, from the file of moved values.
    let mut builder = MovedFileBuilder::create(&env, Path::new("/"), FileId(13)).unwrap();
    let again: Vec<_> = moved.iter().filter(|(pointer, _)| pointer.segment == FileId(6)).collect();
    let pointers = again.iter().map(|(pointer, _)| *pointer);
    file.read_each(pointers, &mut |pointer, stored| builder.add(pointer, stored)).unwrap();
    let len = builder.finish("moved.sync").unwrap();
    let file = open(&env, 13, HomeKind::Moved, len).unwrap();
    for (pointer, number) in again {
        assert_eq!(*read(&file, *pointer, &key(*number)).unwrap(), *value(*number));
    }
    assert!(read(&file, moved[0].0, &key(moved[0].1)).is_err(), "another segment");
}

#[test]
fn every_changed_byte_is_an_error_or_changes_no_answer() {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = Arc::<SimEnv>::clone(&sim);
    let mut builder = MovedFileBuilder::create(&env, Path::new("/"), FileId(12)).unwrap();
    let mut pointers = Vec::new();
    for number in 0..40u64 {
        let offset = 100 + 700 * number;
        let stored = stored(number.is_multiple_of(2), (PARTITION, &key(number)), &[b'v'; 300]);
        let len = u32::try_from(stored.len() - CHECKSUM_LEN).unwrap();
        let pointer = ValuePointer { segment: FileId(4 + number / 20), offset, len };
        builder.add(pointer, &stored).unwrap();
        pointers.push(pointer);
    }
    let len = builder.finish("moved.sync").unwrap();
    let path = crate::file_names::values_path(Path::new("/"), FileId(12));
    let original = env.open_file(&path, pleach_env::OpenOptions::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    original.read_exact_at(&mut bytes, 0).unwrap();
    let file = env.open_file(&path, pleach_env::OpenOptions { write: true, direct: false }).unwrap();
    let mut errors = 0;
    for at in 0..bytes.len() {
        for flipped in [bytes[at] ^ 1, bytes[at] ^ 0x80, 0, 0xff] {
            file.write_all_at(&[flipped], at as u64).unwrap();
            if let Ok(file) = open(&env, 12, HomeKind::Moved, len) {
                for (number, pointer) in (0..).zip(&pointers) {
                    match read(&file, *pointer, &key(number)) {
                        Ok(found) => assert_eq!(*found, [b'v'; 300]),
                        Err(_) => errors += 1,
                    }
                }
            } else {
                errors += 1;
            }
        }
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    }
    assert!(errors > bytes.len(), "changes are noticed");
    for shorter in (0..len).rev() {
        file.set_len(shorter).unwrap();
        assert!(open(&env, 12, HomeKind::Moved, len).is_err());
    }
}

#[test]
fn hostile_tables_take_no_memory_and_do_not_panic() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..20_000 {
        let table: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
        if let Some(parts) = decode_table(&table, 5_000) {
            assert!(parts.iter().all(|part| part.end <= 5_000 && !part.anchors.is_empty()));
        }
    }
    assert_eq!(decode_table(&[1, 0xff, 0xff, 0xff, 0x7f, 1, 1], 5_000), None, "a forged count");
    assert_eq!(decode_table(&[], 5_000), None);
}

fn bytes_of(env: &Arc<dyn Env>, id: u64) -> Vec<u8> {
    let path = crate::file_names::values_path(Path::new("/"), FileId(id));
    let file = env.open_file(&path, pleach_env::OpenOptions::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// The worked examples of docs/format/values.md.
#[test]
fn stored_bytes_of_value_files_are_fixed() {
    let env = env();
    let mut builder = ValueFileBuilder::create(&env, Path::new("/"), FileId(12)).unwrap();
    let pointer = add(&mut builder, &stored(true, (PartitionId(1), b"carol"), b"a third"));
    assert_eq!(pointer, ValuePointer { segment: FileId(12), offset: 64, len: 7 });
    builder.finish("values.sync").unwrap();
    let copied = b"PLCHVAL1\x01\0\0\0\x01\0\0\0\x0c\0\0\0\0\0\0\0\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x4c\x3f\x2a\x4b\
        \xc6\xa6\x4a\x01a third";
    assert_eq!(bytes_of(&env, 12).escape_ascii().to_string(), copied.escape_ascii().to_string());

    let mut builder = MovedFileBuilder::create(&env, Path::new("/"), FileId(14)).unwrap();
    for (segment, offset, key, value) in [
        (7, 137, &b"alice"[..], &b"a picture"[..]),
        (7, 400, b"bob", b"another"),
        (12, 64, b"carol", b"a third"),
    ] {
        let stored = stored(true, (PartitionId(1), key), value);
        let len = u32::try_from(value.len()).unwrap();
        builder.add(ValuePointer { segment: FileId(segment), offset, len }, &stored).unwrap();
    }
    builder.finish("moved.sync").unwrap();
    let moved = b"PLCHVAL1\x01\0\0\0\x02\0\0\0\x0e\0\0\0\0\0\0\0\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x3e\x50\xf3\xaf\
        \0\x09\x9e\xdf\x15\x51a picture\x87\x02\x07\x1f\x3c\x30\x02another\
        \0\x07\xc6\xa6\x4a\x01a third\
        \x07\x01\x89\x01\0\x0c\x01\x40\x1d\x09\0\0\0\x58\x99\xcf\x21PLCHMOVD";
    assert_eq!(bytes_of(&env, 14).escape_ascii().to_string(), moved.escape_ascii().to_string());
}

/// A file of another kind or version, or of another number.
#[test]
fn another_header_is_refused() {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = Arc::<SimEnv>::clone(&sim);
    let (len, _) = copied(&env, 7, 3);
    let path = crate::file_names::values_path(Path::new("/"), FileId(7));
    let bytes = sim.read_file(&path).unwrap();
    let error_of = |change: &dyn Fn(&mut [u8])| {
        let mut header: [u8; HEADER_LEN] = bytes[..HEADER_LEN].try_into().unwrap();
        change(&mut header);
        let crc = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        sim.write_file(&path, &[&header, &bytes[HEADER_LEN..]].concat());
        let error = open(&env, 7, HomeKind::Values, len).err().expect("it is refused");
        let of_any_kind = kind_of(&*env, &path, FileId(7)).expect_err("a repair refuses it, too");
        assert_eq!((error.path(), error.kind()), (Some(&*path), of_any_kind.kind()));
        error.kind()
    };
    assert_eq!(error_of(&|header| header[8] = 2), ErrorKind::Unsupported);
    for kind in [HomeKind::Segment, HomeKind::Gone] {
        assert_eq!(error_of(&|header| header[12] = kind as u8), ErrorKind::Corruption, "kind {kind:?}");
    }
    for at in [0, 12, 16, 24, 40, 59] {
        assert_eq!(error_of(&|header| header[at] ^= 4), ErrorKind::Corruption, "byte {at}");
    }
}
