//! What scans and reads of many keys read besides what they need: its damage is no error of theirs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Db, Error, ErrorKind, Options, Range};

use crate::rig::setup::DIR;
use crate::rig::tasks::block_on;

const KEYS: u64 = 12_000;

fn key(n: u64) -> String {
    format!("user{n:06}")
}

/// 1000 bytes, unlike those of any other key.
fn value(n: u64) -> Vec<u8> {
    format!("<{n:06}>.").repeat(112).as_bytes()[..1000].to_vec()
}

fn options(env: &Arc<SimEnv>, direct: bool) -> Options {
    let options = Options::new().memory(64 << 20).memtable_bytes(16 << 20).compression(false);
    options.direct_reads(direct).env(Arc::<SimEnv>::clone(env))
}

/// A machine with a store of one run of 12 MB.
fn machine(direct: bool) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(1);
    let db = filled(&options(&env, direct));
    (env, db)
}

fn filled(options: &Options) -> Db {
    let db = options.clone().open(DIR).unwrap();
    (0..KEYS).for_each(|n| db.default_partition().put(key(n), value(n)).unwrap());
    db.flush().unwrap();
    db.compact().unwrap();
    db
}

/// Opens the store again, so that no block is cached.
fn reopened(env: &Arc<SimEnv>, db: Db, direct: bool) -> Db {
    db.close().unwrap();
    options(env, direct).open(DIR).unwrap()
}

/// The file with the value of a key, and the value's place in it.
fn place(env: &SimEnv, n: u64) -> (PathBuf, u64) {
    let value = value(n);
    let paths = env.file_names(Path::new(DIR)).into_iter().map(|name| Path::new(DIR).join(name));
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "sst")) {
        let bytes = env.read_file(&path).unwrap();
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            return (path, at as u64);
        }
    }
    panic!("no file has key {n}")
}

/// How a range is read.
#[derive(Clone, Copy, Debug)]
struct Form {
    up: bool,
    in_chunks: bool,
    expected: u64,
}

fn forms() -> impl Iterator<Item = Form> {
    [true, false].into_iter().flat_map(|up| {
        [true, false].into_iter().flat_map(move |in_chunks| {
            [0, 100].into_iter().map(move |expected| Form { up, in_chunks, expected })
        })
    })
}

/// Takes entries of a range: how many there were, and the error that ended it.
fn take(mut range: Range, form: Form, count: usize) -> (usize, Option<Error>) {
    range = range.expect_entries(form.expected);
    let mut taken = 0;
    if form.in_chunks {
        let mut chunks = if form.up { range.into_chunks(10) } else { range.into_chunks_back(10) };
        while taken < count {
            match block_on(chunks.next_chunk()) {
                Ok(Some(chunk)) => taken += chunk.len(),
                Ok(None) => break,
                Err(error) => return (taken, Some(error)),
            }
        }
        return (taken, None);
    }
    while taken < count {
        match if form.up { range.next() } else { range.next_back() } {
            Some(Ok(_)) => taken += 1,
            Some(Err(error)) => return (taken, Some(error)),
            None => break,
        }
    }
    (taken, None)
}

/// The scan of a form that begins at the key `n`.
fn range(db: &Db, form: Form, n: u64) -> Range {
    let partition = db.default_partition();
    if form.up { partition.range(key(n).as_str()..) } else { partition.range(..=key(n).as_str()) }
}

/// Teaches the partition how long its scans are: about so long.
fn learn(db: &Db, length: usize) {
    let form = Form { up: true, in_chunks: false, expected: 0 };
    // One scan in 16 is noted.
    for n in 0..16 * 12 {
        assert!(take(range(db, form, n), form, length).1.is_none());
    }
}

/// What is wrong with a byte of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Unreadable,
    Changed,
}

/// Damages a byte, unless it is damaged already. A changed byte is changed back by a second call.
fn damage(env: &SimEnv, path: &Path, at: u64, kind: Damage) {
    match kind {
        Damage::Unreadable => env.add_unreadable(path, at..at + 1),
        Damage::Changed => {
            let mut bytes = env.read_file(path).unwrap();
            bytes[usize::try_from(at).unwrap()] ^= 1;
            env.write_file(path, &bytes);
        }
    }
}

#[test]
fn a_damaged_byte_fails_only_the_scans_that_reach_it() {
    let mut places = (0..).zip([20, 70, 150, 230].into_iter().cycle());
    for direct in [true, false] {
        let (env, mut db) = machine(direct);
        for (kind, learned, form) in [Damage::Unreadable, Damage::Changed].into_iter().flat_map(|kind| {
            [0, 40, 600].into_iter().flat_map(move |learned| forms().map(move |form| (kind, learned, form)))
        }) {
            db = reopened(&env, db, direct);
            if learned > 0 {
                learn(&db, learned);
            }
            let (number, behind) = places.next().expect("there are always more");
            let from = 1_500 + number * 97;
            let (path, at) = place(&env, if form.up { from + behind } else { from - behind });
            damage(&env, &path, at, kind);
            let context = format!("{kind:?}, {form:?}, direct: {direct}, learned {learned}, {behind} behind");
            // Blocks hold fewer than 8 of the entries.
            let short = usize::try_from(behind).unwrap() - 18;
            let (taken, error) = take(range(&db, form, from), form, short);
            assert!(taken >= short && error.is_none(), "{context}: {error:?}");
            let (taken, error) = take(range(&db, form, from), form, short + 100);
            let error = error.unwrap_or_else(|| panic!("{context}: no error"));
            assert!((short..=short + 18).contains(&taken), "{context}: {taken} entries");
            let expected = if kind == Damage::Unreadable { ErrorKind::Io } else { ErrorKind::Corruption };
            assert_eq!((error.kind(), error.path()), (expected, Some(&*path)), "{context}");
            let offset = error.offset().unwrap();
            assert!(offset <= at && at < offset + 8192, "{context}: {error}, but {at} is damaged");
            env.clear_faults();
            if kind == Damage::Changed {
                damage(&env, &path, at, kind);
            }
            let (taken, error) = take(range(&db, form, from), form, short + 100);
            assert!(taken >= short + 100 && error.is_none(), "{context}: {error:?}");
        }
    }
}

/// So that a scan which goes on until it comes to the byte does not read everything before it several times.
#[test]
fn a_damaged_byte_costs_a_scan_a_read_for_each_block_before_it() {
    for direct in [true, false] {
        let (env, mut db) = machine(direct);
        for form in forms() {
            db = reopened(&env, db, direct);
            learn(&db, 600);
            let from = 5_000;
            // Both in the first window of 256 KiB or behind it.
            let (path, at) = place(&env, if form.up { from + 180 } else { from - 180 });
            env.add_unreadable(&path, at..at + 1);
            let (reads, bytes) = (env.read_count(), env.read_bytes());
            assert!(take(range(&db, form, from), form, 400).1.is_some());
            let (reads, bytes) = (env.read_count() - reads, env.read_bytes() - bytes);
            assert!(reads <= 100, "{reads} reads, {form:?}, direct: {direct}");
            assert!(bytes <= 1_200 << 10, "{bytes} bytes, {form:?}, direct: {direct}");
            env.clear_faults();
        }
    }
}

#[test]
fn scans_within_bounds_read_no_byte_twice() {
    for direct in [true, false] {
        let (env, mut db) = machine(direct);
        for (learned, form) in
            [0, 40, 600].into_iter().flat_map(|learned| forms().map(move |form| (learned, form)))
        {
            db = reopened(&env, db, direct);
            if learned > 0 {
                learn(&db, learned);
            }
            for (from, len) in [(2_000, 1), (4_000, 60), (6_000, 1_000)] {
                let before = env.read_bytes();
                let bounds = key(from)..key(from + len);
                let range = db.default_partition().range(bounds.start.as_str()..bounds.end.as_str());
                assert_eq!(take(range, form, usize::MAX).0 as u64, len);
                let bytes = env.read_bytes() - before;
                // A block at both ends, and one more where the seek ends in a neighbour.
                let bytes_max = len * 1_030 + (16 << 10);
                assert!(bytes <= bytes_max, "{bytes} bytes of {len} entries, {form:?}, {direct}, {learned}");
            }
        }
    }
}

/// Bytes read by the scan of a form over `count` entries from the key `n`.
fn bytes_of(env: &SimEnv, db: &Db, form: Form, n: u64, count: usize) -> u64 {
    let before = env.read_bytes();
    assert!(take(range(db, form, n), form, count).1.is_none());
    env.read_bytes() - before
}

#[test]
fn a_guess_reads_little_for_nothing() {
    for direct in [true, false] {
        let (env, mut db) = machine(direct);
        for up in [true, false] {
            let form = Form { up, in_chunks: false, expected: 0 };
            db = reopened(&env, db, direct);
            learn(&db, 100);
            let one = bytes_of(&env, &db, form, 2_000, 1);
            // The page cache may have the blocks, so only direct reads trust the guess before the walk begins.
            assert!(
                if direct { (64 << 10..160 << 10).contains(&one) } else { one <= 4 << 10 },
                "{one} bytes"
            );
            // Behind the usual length, windows grow from the smallest.
            let longer = bytes_of(&env, &db, form, 4_000, 150);
            assert!(longer <= 300 << 10, "{longer} bytes of 150 KB, {form:?}, direct: {direct}");
        }
    }
}

#[test]
fn descending_scans_are_as_long_as_scans_before_them() {
    let (env, db) = machine(true);
    let db = reopened(&env, db, true);
    let form = Form { up: false, in_chunks: true, expected: 0 };
    (0..16 * 12).for_each(|n| assert!(take(range(&db, form, n + 200), form, 100).1.is_none()));
    let reads = env.read_count();
    assert!(take(range(&db, form, 5_000), form, 100).1.is_none());
    let reads = env.read_count() - reads;
    assert!(reads <= 3, "{reads} reads");
}

/// A seek ends a scan and begins another, so the page of two entries is learned and not the whole walk.
#[test]
fn a_range_that_seeks_teaches_the_lengths_between_its_seeks() {
    let (env, db) = machine(true);
    let db = reopened(&env, db, true);
    for _ in 0..16 * 12 {
        let mut range = db.default_partition().iter();
        for n in 0..50 {
            range.seek(key(n * 5));
            assert_eq!(range.by_ref().take(2).map(Result::unwrap).count(), 2);
        }
    }
    let one = bytes_of(&env, &db, Form { up: true, in_chunks: false, expected: 0 }, 5_000, 1);
    assert!(one <= 8 << 10, "{one} bytes");
}

/// The first key of the second file.
fn first_of_second_file(env: &SimEnv) -> u64 {
    let first = place(env, 0).0;
    let (mut low, mut high) = (0, KEYS);
    while low < high {
        let middle = u64::midpoint(low, high);
        if place(env, middle).0 == first { low = middle + 1 } else { high = middle }
    }
    assert!(low < KEYS, "there are two files");
    low
}

#[test]
fn a_scan_that_goes_on_in_the_next_file_reads_as_within_one() {
    for direct in [true, false] {
        let env = SimEnv::new(1);
        let mut db = filled(&options(&env, direct).sst_bytes(5 << 20));
        let border = first_of_second_file(&env);
        // Learned and expected lengths; entries before the border and in all; reads and bytes at most.
        for (learned, expected, before, count, reads_max, bytes_max) in [
            (0, 100, 80, 100, 3, 128 << 10),
            (100, 0, 110, 130, 5, 192 << 10),
            (0, 0, 600, 1_000, 10, 1_200 << 10),
        ] {
            for form in forms().filter(|form| form.expected == expected) {
                db = reopened(&env, db, direct);
                if learned > 0 {
                    learn(&db, learned);
                }
                let reads = env.read_count();
                let from = if form.up { border - before } else { border + before };
                let bytes = bytes_of(&env, &db, form, from, count);
                let reads = env.read_count() - reads;
                let context = format!("{count} entries, {form:?}, direct: {direct}");
                assert!(
                    reads <= reads_max && bytes <= bytes_max,
                    "{reads} reads, {bytes} bytes of {context}"
                );
            }
        }
    }
}

#[test]
fn a_scan_over_cached_blocks_reads_little_behind_them() {
    // The second scan goes on behind the entries that it expects.
    let form = Form { up: true, in_chunks: false, expected: 100 };
    for direct in [true, false] {
        let (env, db) = machine(direct);
        let db = reopened(&env, db, direct);
        let first = bytes_of(&env, &db, form, 2_000, 100);
        let second = bytes_of(&env, &db, form, 2_000, 120);
        assert!(first > 100 << 10 && second <= 24 << 10, "{first} bytes, then {second}");
    }
}

/// Point reads cache what a scan has in flight. The scan goes on reading ahead behind it.
#[test]
fn windows_whose_blocks_are_cached_meanwhile_give_way_to_others() {
    for (direct, up) in [(true, true), (true, false), (false, true), (false, false)] {
        let (env, db) = machine(direct);
        let db = reopened(&env, db, direct);
        let partition = db.default_partition();
        let mut range = partition.range(key(2_000).as_str()..=key(9_000).as_str());
        let mut step = || (if up { range.next_entry() } else { range.next_back_entry() }).unwrap().is_some();
        assert!((0..1_000).all(|_| step()));
        let mut ahead = if up { 3_000..4_000 } else { 7_000..8_000 };
        assert!(ahead.all(|n| partition.get(key(n)).unwrap().is_some()));
        assert!((0..1_000).all(|_| step()));
        let (reads, waits) = (env.read_count(), env.read_wait_count());
        assert!((0..3_000).all(|_| step()));
        let (reads, waits) = (env.read_count() - reads, env.read_wait_count() - waits);
        assert!((10..20).contains(&reads) && waits <= reads / 2, "{waits} waits of {reads} reads");
    }
}

#[test]
fn scans_of_a_section_read_nothing_of_its_neighbours() {
    let env = SimEnv::new(2);
    let partitions = || ["a", "b", "c"];
    let db = options(&env, true).open(DIR).unwrap();
    for name in partitions() {
        let partition = db.partition(name).unwrap();
        (0..40).for_each(|n| partition.put(key(n), value(n)).unwrap());
    }
    db.flush().unwrap();
    let mut db = db;
    for form in forms() {
        db = reopened(&env, db, true);
        let partition = db.find_partition(partitions()[1]).unwrap();
        let before = env.read_bytes();
        let expected = if form.expected > 0 { 10_000 } else { 0 };
        assert_eq!(take(partition.iter(), Form { expected, ..form }, usize::MAX).0, 40);
        let bytes = env.read_bytes() - before;
        assert!(bytes <= 56 << 10, "{bytes} bytes of 40 KB, {form:?}");
    }
}

#[test]
fn bytes_between_blocks_that_share_a_read_fail_no_key() {
    for direct in [true, false] {
        let (env, db) = machine(direct);
        let db = reopened(&env, db, direct);
        let partition = db.default_partition();
        for from in [1_000, 2_000, 3_000, 4_000] {
            // Their blocks are read together, and the one between them.
            let keys = || [0, 8, 9, 60, 61, 62].map(|n| key(from + n));
            let (path, at) = place(&env, from + 4);
            env.add_unreadable(&path, at..at + 1);
            let found = partition.get_many(keys()).unwrap();
            assert!(found.iter().all(Option::is_some));
            let error = partition.get_many(keys().into_iter().chain([key(from + 4)])).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)));
            assert!(error.offset().is_some_and(|offset| offset <= at && at < offset + 8192), "{error}");
            env.clear_faults();
            assert!(partition.get(key(from + 4)).unwrap().is_some());
        }
    }
}
