//! A data block of any bytes, in an SST of one block.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use pleach_env::{Env, FileId, SimEnv, failpoint};
use pleach_fuzz::{DIR, Input};
use pleach_table::{
    Codec, CursorMode, FrameCache, Sst, SstBuilder, SstCursor, SstOptions, SstSummary, ValueKind, key_hash,
};

/// What the block has.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Puts in rows.
    Rows,
    /// Pointers in columns.
    Pointers,
    /// Packed keys and short values in columns.
    Packed,
}

const FORMS: [Form; 3] = [Form::Rows, Form::Pointers, Form::Packed];

/// An SST of one block, and what the manifest would know of it, for each codec and form.
static GOOD: LazyLock<Vec<(Vec<u8>, SstSummary)>> = LazyLock::new(|| {
    let codecs = [Codec::None, Codec::Lz4].into_iter();
    codecs.flat_map(|codec| FORMS.map(|form| build(codec, form))).collect()
});

fn key(form: Form, i: u32) -> String {
    match form {
        Form::Rows | Form::Packed => format!("key {i:03}"),
        Form::Pointers => format!("key {}", char::from(b'!' + 2 * i as u8)),
    }
}

fn build(codec: Codec, form: Form) -> (Vec<u8>, SstSummary) {
    let env = SimEnv::new(1);
    let machine: Arc<dyn Env> = env.clone();
    env.create_dir_all(Path::new(DIR)).expect("a directory");
    let path = Path::new(DIR).join("000001.sst");
    let options = SstOptions { codec, filter_bits_per_key: 0.0, ..SstOptions::default() };
    let mut builder = SstBuilder::create(&machine, &path, FileId(1), options).expect("a builder");
    for i in 0..32u32 {
        let key = key(form, i);
        let value = format!("{i} ").repeat(20);
        let (kind, value) = match (form, i) {
            (Form::Rows, _) => (ValueKind::Put, value.as_bytes()),
            (_, 9) => (ValueKind::Tombstone, &[][..]),
            (Form::Pointers, _) => (ValueKind::ValuePointer, &[7, (i * 5 % 64) as u8, 99][..]),
            (Form::Packed, _) => (ValueKind::Put, &[i as u8, 7, 7][..]),
        };
        builder.add(key.as_bytes(), kind, value, key_hash(0, key.as_bytes())).expect("an entry");
    }
    let summary = builder.finish().expect("an SST");
    let bytes = env.read_file(&path).expect("it was written");
    let version = [2, 5, 6][form as usize];
    assert_eq!(bytes[bytes.len() - 60], version, "the format version");
    (bytes, summary)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let which = usize::from(input.byte()) % GOOD.len();
    let ((file, summary), form) = (&GOOD[which], FORMS[which % FORMS.len()]);
    let mut file = file.clone();
    let env = SimEnv::new(1);
    let machine: Arc<dyn Env> = env.clone();
    let path = Path::new(DIR).join("000001.sst");
    env.write_file(&path, &file);
    let sst = Sst::open(&machine, &path, FileId(1), Some(summary), FrameCache::new(64 << 10), false)
        .expect("it opens");
    let sst = Arc::new(sst);
    let (offset, len) = sst.block_extent(0);
    let (start, end) = (offset as usize, (offset + u64::from(len)) as usize);
    if input.byte() % 2 == 0 {
        let with = input.bytes(len as usize);
        file[start..start + with.len()].copy_from_slice(with);
    } else {
        let mut block = file[start..end].to_vec();
        input.damage(&mut block);
        block.resize(len as usize, 0);
        file[start..end].copy_from_slice(&block);
    }
    env.write_file(&path, &file);
    failpoint::with_skipped("sst.block.crc", || {
        if let Ok(block) = sst.read_block(0) {
            for i in 0..32u32 {
                let key = key(form, i);
                let found = sst.get_in_block(&block, key.as_bytes(), key_hash(0, key.as_bytes()));
                if let Some((_, place)) = found {
                    assert!(place.bytes(&block).len() <= block.len(), "a value lies in its block");
                }
            }
        }
        for mode in [CursorMode::Cached, CursorMode::Streaming { forget: false }] {
            let mut cursor = SstCursor::new(Arc::clone(&sst), mode);
            let mut steps = 0;
            let mut moved = cursor.seek_first();
            while moved.is_ok() && cursor.valid() {
                assert!(!cursor.key().is_empty());
                steps += 1;
                assert!(steps < 1 << 17, "a scan ends");
                moved = cursor.next();
            }
            let mut moved = cursor.seek_last();
            while moved.is_ok() && cursor.valid() {
                steps += 1;
                assert!(steps < 1 << 18, "a scan ends");
                moved = cursor.prev();
            }
            let _any_answer = cursor.seek(b"key 01");
            let _any_answer = cursor.seek_before(b"key 02");
        }
        let _any_answer = sst.verify(|key| key_hash(0, key));
    });
});
