//! Damaged, forged and foreign bytes: an error or the right answer, never anything else.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{ErrorKind, FileId, Result, failpoint};
use pleach_table::{Codec, CursorMode, FrameCache, IndexChoice, Sst, SstCursor, SstOptions, ValueKind};
use proptest::prelude::*;

use crate::support::{
    Entries, FILE, PATH, apart, build, eight_bytes, get, hash, learned, machine, numbered, open, options,
    pages, version_of,
};

/// Reads everything in all ways; whatever is found without an error must be right.
fn read_everything(sst: &Arc<Sst>, entries: &Entries) -> Result<()> {
    for (key, expected) in entries {
        if let Some(found) = get(sst, key)? {
            assert!(found == *expected, "a wrong value");
        }
    }
    for mode in [CursorMode::Cached, CursorMode::Streaming { forget: false }] {
        let mut cursor = SstCursor::new(sst.clone(), mode);
        let mut seen = 0;
        cursor.seek_first()?;
        while cursor.valid() {
            let (kind, value) = &entries[cursor.key()];
            assert!(cursor.kind() == *kind && cursor.value() == value, "a wrong entry");
            seen += 1;
            cursor.next()?;
        }
        assert_eq!(seen, entries.len(), "an entry is missing without an error");
    }
    sst.verify(hash)
}

/// Whether the damage was noticed, by opening with or without a summary or by reading.
fn noticed(bytes: &[u8], entries: &Entries, options: SstOptions) -> bool {
    let (sim, env) = machine();
    let summary = build(&env, entries, options);
    sim.write_file(Path::new(PATH), bytes);
    let mut noticed = true;
    for summary in [None, Some(&summary)] {
        let result =
            open(&env, summary, &FrameCache::new(1 << 20)).and_then(|sst| read_everything(&sst, entries));
        match result {
            Ok(()) => noticed = false,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error}");
                assert_eq!(error.path(), Some(Path::new(PATH)));
            }
        }
    }
    noticed
}

/// Each codec with each kind of index.
fn all_options() -> [SstOptions; 4] {
    [options(Codec::None), options(Codec::Lz4), learned(), SstOptions { codec: Codec::Lz4, ..learned() }]
}

/// With LZ4, one block and separators, or seven blocks and a model; the places of seven are lines.
fn small(options: SstOptions) -> (Entries, Vec<u8>) {
    let has_lines = options.codec == Codec::Lz4 && options.index == IndexChoice::Learned;
    let mut entries = numbered(60, if has_lines { 1600 } else { 100 });
    entries.insert(b"a/deleted".to_vec(), (ValueKind::Tombstone, Vec::new()));
    entries.insert(b"a/elsewhere".to_vec(), (ValueKind::ValuePointer, vec![9; 16]));
    let (sim, env) = machine();
    build(&env, &entries, options);
    let bytes = sim.read_file(Path::new(PATH)).unwrap();
    assert_eq!(bytes[bytes.len() - 60] == 4, has_lines, "the format version");
    (entries, bytes)
}

/// Small SSTs of all kinds: [`small`] ones, one of a columnar block with numbers, one with keys of different lengths, and two
/// with packed keys, of short values and of pointers.
fn samples() -> Vec<(SstOptions, Entries, Vec<u8>)> {
    let rows = all_options().map(|options| {
        let (entries, bytes) = small(options);
        (options, entries, bytes)
    });
    let hexadecimal = (0..150u64).map(|i| format!("{:08x}", i * i * 7919).into_bytes());
    let columns = [
        (apart(eight_bytes(150)), options(Codec::None), 5),
        (apart(pages(80)), options(Codec::Lz4), 5),
        (numbered(150, 8), options(Codec::None), 6),
        (apart(hexadecimal), options(Codec::Lz4), 6),
    ];
    let columns = columns.map(|(entries, options, version)| {
        let (sim, env) = machine();
        build(&env, &entries, options);
        let bytes = sim.read_file(Path::new(PATH)).unwrap();
        assert_eq!(version_of(&bytes), version);
        (options, entries, bytes)
    });
    rows.into_iter().chain(columns).collect()
}

#[test]
fn every_changed_byte_is_noticed() {
    for (options, entries, good) in samples() {
        let mut rng = fastrand::Rng::with_seed(5);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << rng.u8(..8);
            assert!(noticed(&bytes, &entries, options), "byte {at} of {}", good.len());
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    for options in all_options() {
        let (entries, good) = small(options);
        for len in (0..good.len()).step_by(13).chain(good.len() - 80..good.len()) {
            assert!(noticed(&good[..len], &entries, options), "{len} of {} bytes", good.len());
        }
    }
}

#[test]
fn zeroed_sectors_are_noticed() {
    for options in all_options() {
        let (entries, good) = small(options);
        for start in (0..good.len()).step_by(512) {
            let mut bytes = good.clone();
            let end = bytes.len().min(start + 512);
            bytes[start..end].fill(0);
            assert!(bytes == good || noticed(&bytes, &entries, options), "bytes from {start}");
        }
        assert!(noticed(&vec![0; good.len()], &entries, options));
    }
}

#[test]
fn a_block_from_another_place_is_noticed() {
    let entries = numbered(200, 100);
    let (sim, env) = machine();
    build(&env, &entries, options(Codec::None));
    let mut bytes = sim.read_file(Path::new(PATH)).unwrap();
    bytes.copy_within(0..4096, 4096);
    assert!(noticed(&bytes, &entries, options(Codec::None)));
}

#[test]
fn a_stale_file_is_not_taken_for_the_one_that_the_summary_describes() {
    let (sim, env) = machine();
    let old = numbered(200, 100);
    build(&env, &old, options(Codec::None));
    let stale = sim.read_file(Path::new(PATH)).unwrap();
    env.remove_file(Path::new(PATH)).unwrap();
    let mut new = old.clone();
    new.values_mut().next().unwrap().1[0] ^= 1;
    new.insert(b"zzz".to_vec(), (ValueKind::Put, vec![1]));
    let summary = build(&env, &new, options(Codec::None));
    sim.write_file(Path::new(PATH), &stale);
    let error = open(&env, Some(&summary), &FrameCache::new(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(open(&env, None, &FrameCache::new(0)).is_ok());
    let other = Sst::open(&env, Path::new(PATH), FileId(FILE.0 + 1), None, FrameCache::new(0), false);
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn a_cursor_does_not_go_on_behind_damage() {
    let (sim, env) = machine();
    let entries = numbered(2000, 100);
    let summary = build(&env, &entries, options(Codec::None));
    let mut bytes = sim.read_file(Path::new(PATH)).unwrap();
    bytes[20 * 4096 + 100] ^= 1;
    sim.write_file(Path::new(PATH), &bytes);
    let sst = open(&env, Some(&summary), &FrameCache::new(1 << 20)).unwrap();
    for mode in [CursorMode::Cached, CursorMode::Streaming { forget: true }] {
        let mut cursor = SstCursor::new(sst.clone(), mode);
        cursor.seek_first().unwrap();
        let mut seen = 0;
        let error = loop {
            assert!(cursor.valid());
            seen += 1;
            if let Err(error) = cursor.next() {
                break error;
            }
        };
        assert_eq!(error.offset(), Some(20 * 4096));
        assert!(
            entries.keys().nth(seen).is_some_and(|key| sst.block_for(key) == 20),
            "all before it was seen"
        );
        assert!(!cursor.valid());
        assert!(cursor.next().is_err());
        assert!(cursor.seek_last().is_err());
    }
}

/// With checksums out of the way, whatever the bytes say must be survived. Run with each check skipped in turn.
fn survive(bytes: &[u8], entries: &Entries) {
    let (sim, env) = machine();
    sim.write_file(Path::new(PATH), bytes);
    let Ok(sst) = open(&env, None, &FrameCache::new(1 << 20)) else { return };
    for key in entries.keys() {
        let _any = get(&sst, key);
    }
    for mode in [CursorMode::Cached, CursorMode::Streaming { forget: false }] {
        let mut cursor = SstCursor::new(sst.clone(), mode);
        let _any = cursor.seek_first();
        while cursor.valid() && cursor.next().is_ok() {}
        let mut cursor = SstCursor::new(sst.clone(), mode);
        let _any = cursor.seek_last();
        while cursor.valid() && cursor.prev().is_ok() {}
    }
    let _any = sst.verify(hash);
}

#[test]
fn forged_bytes_behind_good_checksums_are_survived() {
    for (_, entries, good) in samples() {
        let mut rng = fastrand::Rng::with_seed(6);
        for site in ["sst.block.crc", "sst.footer.crc", "sst.tail.crc"] {
            for at in 0..good.len() {
                let mut bytes = good.clone();
                bytes[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1]).unwrap();
                failpoint::with_skipped(site, || survive(&bytes, &entries));
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        survive(&bytes, &Entries::new());
    }

    #[test]
    fn scrambled_ssts_are_survived(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        sample in 0usize..6,
        site in 0usize..3,
    ) {
        let (_, entries, mut bytes) = samples().swap_remove(sample);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let site = ["sst.block.crc", "sst.footer.crc", "sst.tail.crc"][site];
        failpoint::with_skipped(site, || survive(&bytes, &entries));
    }
}

#[test]
fn damage_passes_when_its_check_is_skipped() {
    let (entries, good) = small(options(Codec::None));
    let (sim, env) = machine();
    let summary = build(&env, &entries, options(Codec::None));
    let tail_at = usize::try_from(summary.file_len - u64::from(summary.tail_len)).unwrap();
    // A byte of a value, one of the last line of the filter, and the checksum of the footer.
    let places =
        [("sst.block.crc", 3900), ("sst.tail.crc", tail_at + 16 + 8), ("sst.footer.crc", good.len() - 64)];
    for (site, at) in places {
        let mut bytes = good.clone();
        bytes[at] ^= 0x20;
        sim.write_file(Path::new(PATH), &bytes);
        let read = || {
            let sst = open(&env, None, &FrameCache::new(0))?;
            (0..sst.blocks()).try_for_each(|no| sst.read_block(no).map(drop))
        };
        assert!(read().is_err(), "{site} notices");
        if site != "sst.tail.crc" {
            failpoint::with_skipped(site, || assert!(read().is_ok(), "without {site} the damage passes"));
        }
    }
}
