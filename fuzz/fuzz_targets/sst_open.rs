//! Changes to a good SST.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use pleach_env::{Env, FileId, SimEnv, failpoint};
use pleach_fuzz::{DIR, Input};
use pleach_table::{
    Codec, CursorMode, FrameCache, IndexChoice, Sst, SstBuilder, SstCursor, SstOptions, ValueKind, key_hash,
};

/// Each codec with each kind of index. Of the compressed blocks, the places are lines. Then the same with columnar blocks.
static GOOD: LazyLock<Vec<(Vec<u8>, EntryOf)>> = LazyLock::new(|| {
    use IndexChoice::{Learned, Separators};
    let entries = [(put as EntryOf, 4), (pointer as EntryOf, 5), (number as EntryOf, 6)];
    let all = entries.into_iter().flat_map(|(entry, version)| {
        let codecs = [Codec::None, Codec::Lz4].into_iter();
        codecs.flat_map(move |codec| [Separators, Learned].map(|index| (entry, version, codec, index)))
    });
    all.map(|(entry, version, codec, index)| (build(entry, version, codec, index), entry)).collect()
});

/// Key, kind and value of an entry.
type EntryOf = fn(u32) -> (Vec<u8>, ValueKind, Vec<u8>);

/// The checks that may be switched off.
const CHECKS: [&str; 4] = ["", "sst.block.crc", "sst.tail.crc", "sst.footer.crc"];

fn put(i: u32) -> (Vec<u8>, ValueKind, Vec<u8>) {
    let value = format!("{i} ").repeat(i as usize % 150).into_bytes();
    (format!("key {i:05}").into_bytes(), ValueKind::Put, value)
}

fn pointer(i: u32) -> (Vec<u8>, ValueKind, Vec<u8>) {
    let key = format!("key {i:05}.q~{}", "x".repeat(i as usize / 200)).into_bytes();
    match i % 40 {
        39 => (key, ValueKind::Tombstone, Vec::new()),
        step => (key, ValueKind::ValuePointer, vec![1 + (i / 100) as u8, step as u8, (i % 64) as u8]),
    }
}

fn number(i: u32) -> (Vec<u8>, ValueKind, Vec<u8>) {
    let key = format!("key {i:05}").into_bytes();
    match i % 40 {
        39 => (key, ValueKind::Tombstone, Vec::new()),
        _ => (key, ValueKind::Put, i.to_le_bytes().to_vec()),
    }
}

const ENTRIES: u32 = 300;

fn build(entry: EntryOf, version: u8, codec: Codec, index: IndexChoice) -> Vec<u8> {
    let env = SimEnv::new(1);
    let machine: Arc<dyn Env> = env.clone();
    env.create_dir_all(Path::new(DIR)).expect("a directory");
    let path = Path::new(DIR).join("000001.sst");
    let options = SstOptions { codec, filter_bits_per_key: 10.0, index, ..SstOptions::default() };
    let mut builder = SstBuilder::create(&machine, &path, FileId(1), options).expect("a builder");
    for (key, kind, value) in (0..ENTRIES).map(entry) {
        builder.add(&key, kind, &value, key_hash(0, &key)).expect("an entry");
    }
    builder.finish().expect("an SST");
    let bytes = env.read_file(&path).expect("it was written");
    assert!((codec, version) == (Codec::None, 4) || bytes[bytes.len() - 60] == version, "the format version");
    bytes
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (mut file, entry) = GOOD[usize::from(input.byte()) % GOOD.len()].clone();
    let check = CHECKS[usize::from(input.byte()) % CHECKS.len()];
    input.damage(&mut file);
    let env = SimEnv::new(1);
    let machine: Arc<dyn Env> = env.clone();
    let path = Path::new(DIR).join("000001.sst");
    env.write_file(&path, &file);
    failpoint::with_skipped(check, || {
        let Ok(sst) = Sst::open(&machine, &path, FileId(1), None, FrameCache::new(64 << 10), false) else {
            return;
        };
        let sst = Arc::new(sst);
        for (key, kind, value) in (0..ENTRIES).step_by(7).map(entry) {
            if let Ok(found) = sst.get(&key, key_hash(0, &key)) {
                let right =
                    found.is_some_and(|(found, block, place)| found == kind && block.get(place) == Some(&value[..]));
                assert!(right || !check.is_empty(), "a wrong answer");
            }
        }
        let mut cursor = SstCursor::new(Arc::clone(&sst), CursorMode::Cached);
        let (mut moved, mut steps) = (cursor.seek_first(), 0);
        while moved.is_ok() && cursor.valid() {
            if check.is_empty() {
                let found = (cursor.key().to_vec(), cursor.kind(), cursor.value().to_vec());
                assert_eq!(found, entry(steps), "a wrong answer");
            }
            steps += 1;
            assert!(steps < 1 << 20, "a scan ends");
            moved = cursor.next();
        }
        let _any_answer = sst.verify(|key| key_hash(0, key));
    });
});
