//! Tests on a simulated disk: what survives a power cut.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use pleach::env::{CrashPolicy, Env, Fault, FaultKind, SimEnv};

use crate::batch::Batch;
use crate::*;

pub(crate) fn options_on(env: &Arc<impl Env + 'static>) -> OptionsHandle {
    let mut options = OptionsHandle::default();
    options.create_if_missing = true;
    options.other_env = Some(Arc::clone(env) as Arc<dyn Env>);
    options
}

pub(crate) fn open(options: &OptionsHandle) -> Result<Box<Database>, String> {
    let mut error = std::ptr::null_mut();
    // SAFETY: the name is a C string.
    let db = unsafe { leveldb_open(options, c"/db".as_ptr(), Some(&mut error)) };
    db.ok_or_else(|| taken(error))
}

/// The text of an error, freed.
fn taken(error: *mut c_char) -> String {
    // SAFETY: it is a C string from `malloc`.
    unsafe {
        let text = std::ffi::CStr::from_ptr(error).to_string_lossy().into_owned();
        leveldb_free(error.cast());
        text
    }
}

fn succeeds(call: impl FnOnce(ErrorSlot<'_>)) {
    let mut error = std::ptr::null_mut();
    call(Some(&mut error));
    assert!(error.is_null(), "{}", taken(error));
}

pub(crate) fn put(db: &Database, key: &[u8], value: &[u8], sync: bool) {
    let mut writes = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(&mut writes, sync.into());
    // SAFETY: key and value are there.
    succeeds(|error| unsafe {
        leveldb_put(db, &writes, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len(), error);
    });
}

pub(crate) fn keys(db: &Database) -> Vec<Vec<u8>> {
    let mut iterator = leveldb_create_iterator(db, &leveldb_readoptions_create());
    let mut keys = Vec::new();
    leveldb_iter_seek_to_first(&mut iterator);
    while leveldb_iter_valid(&iterator) == 1 {
        let mut len = 0;
        let key = leveldb_iter_key(&iterator, &mut len);
        // SAFETY: the iterator lends so many bytes.
        keys.push(unsafe { std::slice::from_raw_parts(key.cast(), len) }.to_vec());
        leveldb_iter_next(&mut iterator);
    }
    succeeds(|error| leveldb_iter_get_error(&iterator, error));
    keys
}

/// The keys that a power cut at this moment leaves.
fn keys_after_a_power_cut(env: &Arc<SimEnv>) -> Vec<Vec<u8>> {
    let image = env.crash_image(CrashPolicy::DurableOnly, 1);
    keys(&open(&options_on(&image)).unwrap())
}

#[test]
fn what_is_synced_survives_a_power_cut() {
    let env = SimEnv::new(1);
    let db = open(&options_on(&env)).unwrap();
    put(&db, b"a", b"1", true);
    assert_eq!(keys_after_a_power_cut(&env), [b"a"]);
    put(&db, b"b", b"1", false);
    assert_eq!(keys_after_a_power_cut(&env), [b"a"], "or this test would notice nothing");
    let mut writes = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(&mut writes, 1);
    // SAFETY: the key is there.
    succeeds(|error| unsafe { leveldb_delete(&db, &writes, b"a".as_ptr().cast(), 1, error) });
    assert_eq!(keys_after_a_power_cut(&env), [b"b"]);
    let mut batch = Batch::default();
    // SAFETY: key and value are there.
    unsafe { leveldb_writebatch_put(&mut batch, b"c".as_ptr().cast(), 1, b"1".as_ptr().cast(), 1) };
    succeeds(|error| leveldb_write(&db, &writes, &batch, error));
    assert_eq!(keys_after_a_power_cut(&env), [b"b", b"c"]);
    leveldb_close(Some(db));
}

#[test]
fn a_synced_batch_without_records_makes_earlier_writes_durable() {
    let env = SimEnv::new(1);
    let db = open(&options_on(&env)).unwrap();
    put(&db, b"a", b"1", false);
    let mut writes = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(&mut writes, 1);
    succeeds(|error| leveldb_write(&db, &writes, &Batch::default(), error));
    assert_eq!(keys_after_a_power_cut(&env), [b"a"]);
    leveldb_close(Some(db));
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
    c"test.Reverse".as_ptr()
}

fn has(db: &Database, key: &[u8]) -> bool {
    let mut len = 0;
    let mut error = std::ptr::null_mut();
    // SAFETY: the key is there, the value comes from `malloc`.
    let value = unsafe {
        leveldb_get(
            db,
            &leveldb_readoptions_create(),
            key.as_ptr().cast(),
            key.len(),
            &mut len,
            Some(&mut error),
        )
    };
    assert!(error.is_null(), "{}", taken(error));
    // SAFETY: as above.
    unsafe { leveldb_free(value.cast()) };
    !value.is_null()
}

#[test]
fn walks_and_gets_agree_after_a_write_that_fails() {
    let kinds = [FaultKind::Eio, FaultKind::NoSpace, FaultKind::SyncFails, FaultKind::FailsYetDone];
    let mut failed = 0;
    for (kind, delay) in kinds.into_iter().flat_map(|kind| (0..6).map(move |delay| (kind, delay))) {
        let env = SimEnv::new(1);
        let mut options = options_on(&env);
        // SAFETY: the functions need no state.
        let reversed =
            unsafe { leveldb_comparator_create(std::ptr::null_mut(), nothing, compare_reverse_bytes, name) };
        leveldb_options_set_comparator(&mut options, Some(&reversed));
        let db = open(&options).unwrap();
        for key in [b"a", b"c", b"e"] {
            put(&db, key, b"1", true);
        }
        env.set_fault(Some(Fault { at_op: env.op_count() + delay, kind }));
        let mut writes = leveldb_writeoptions_create();
        leveldb_writeoptions_set_sync(&mut writes, 1);
        let mut batch = Batch::default();
        // SAFETY: the keys and the value are there.
        unsafe {
            leveldb_writebatch_put(&mut batch, b"b".as_ptr().cast(), 1, b"2".as_ptr().cast(), 1);
            leveldb_writebatch_delete(&mut batch, b"c".as_ptr().cast(), 1);
        }
        for _ in 0..3 {
            let mut error = std::ptr::null_mut();
            leveldb_write(&db, &writes, &batch, Some(&mut error));
            if !error.is_null() {
                failed += 1;
                assert!(taken(error).starts_with("IO error: "));
            }
        }
        let walked = keys(&db);
        assert!(walked.is_sorted_by(|a, b| a > b));
        for key in [b"a", b"b", b"c", b"e"] {
            assert_eq!(has(&db, key), walked.iter().any(|walked| walked == key), "{kind:?} {delay} {key:?}");
        }
        leveldb_close(Some(db));
        let image = env.crash_image(CrashPolicy::Everything, 1);
        options.other_env = Some(image);
        let walked = keys(&open(&options).unwrap());
        assert!(walked == [b"e", b"c", b"a"] || walked == [b"e", b"b", b"a"], "{kind:?} {delay}: {walked:?}");
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn a_full_disk_is_an_io_error_and_reads_go_on() {
    let env = SimEnv::new(1);
    let db = open(&options_on(&env)).unwrap();
    put(&db, b"first", b"1", false);
    env.set_capacity(env.used_space() + (16 << 20));
    let mut random = fastrand::Rng::with_seed(1);
    let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(100_000).collect();
    let full = (0..1000_u16).find_map(|n| {
        let mut error = std::ptr::null_mut();
        let (key, writes) = (n.to_le_bytes(), leveldb_writeoptions_create());
        // SAFETY: key and value are there.
        unsafe {
            leveldb_put(
                &db,
                &writes,
                key.as_ptr().cast(),
                2,
                value.as_ptr().cast(),
                value.len(),
                Some(&mut error),
            );
        }
        (!error.is_null()).then(|| taken(error))
    });
    let full = full.expect("the disk is full at some time");
    assert!(full.starts_with("IO error: "), "{full}");
    assert!(has(&db, b"first"));
    leveldb_close(Some(db));
    let db = open(&options_on(&env)).unwrap();
    assert!(has(&db, b"first"));
    leveldb_close(Some(db));
}
