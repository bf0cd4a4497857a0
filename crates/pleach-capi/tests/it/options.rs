//! Options: each is honoured or refused; opens, repair and removal of stores.

use std::path::Path;

use pleach_capi::*;

use crate::support::*;

fn options() -> Box<OptionsHandle> {
    pleach_options_create().unwrap()
}

type Setter = fn(&mut OptionsHandle) -> Option<Box<ErrorHandle>>;

fn code<T>(outcome: Outcome<T>) -> PleachCode {
    outcome.err().unwrap().code
}

#[test]
fn missing_and_existing_stores() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut wanted = options();
    outcome(pleach_options_set_create_if_missing(Some(&mut wanted), false)).unwrap();
    assert_eq!(code(open_with(&path, Some(&wanted))), PleachCode::NotFound);
    let mut new = options();
    outcome(pleach_options_set_error_if_exists(Some(&mut new), true)).unwrap();
    let store = Store::of(open_with(&path, Some(&new)).unwrap());
    store.put(b"k", b"1").unwrap();
    assert_eq!(code(open_with(&path, Some(&wanted))), PleachCode::Conflict);
    store.close().unwrap();
    drop(store);
    let exists = open_with(&path, Some(&new)).err().unwrap();
    assert!(
        exists.code == PleachCode::InvalidArgument && exists.message.contains("error_if_exists"),
        "{exists:?}"
    );
    drop(open_with(&path, Some(&wanted)).unwrap());
    // Two readers; neither writes.
    let c_path = c_path(&path);
    // SAFETY: the path is a C string.
    let reader = || handle(|db| unsafe { pleach_db_open_read_only(c_path.as_ptr(), None, db) }).unwrap();
    let readers = [Store::of(reader()), Store::of(reader())];
    for reader in &readers {
        assert_eq!(reader.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(code(reader.put(b"k", b"2")), PleachCode::Io);
    }
}

#[test]
fn every_option_is_taken_and_unknown_values_are_refused() {
    let mut all = options();
    let o = &mut *all;
    for error in [
        pleach_options_set_in_memory(Some(&mut *o), true),
        pleach_options_set_create_if_missing(Some(&mut *o), true),
        pleach_options_set_error_if_exists(Some(&mut *o), true),
        pleach_options_set_memory(Some(&mut *o), 8 << 20),
        pleach_options_set_memtable_bytes(Some(&mut *o), 1 << 20),
        pleach_options_set_compression(Some(&mut *o), PleachCompression::Lz4 as u32),
        pleach_options_set_direct_reads(Some(&mut *o), false),
        pleach_options_set_shape(Some(&mut *o), PleachShape::Leveled as u32),
        pleach_options_set_compaction_threads(Some(&mut *o), 1),
        pleach_options_set_compaction_bytes_per_second(Some(&mut *o), 1 << 30),
        pleach_options_set_filter_bits_per_key(Some(&mut *o), 8.0),
        pleach_options_set_learned_index(Some(&mut *o), PleachLearnedIndex::Never as u32),
        pleach_options_set_separate_at(Some(&mut *o), 0),
        pleach_options_set_space_target(Some(&mut *o), 1.5),
        pleach_options_set_conversion(Some(&mut *o), PleachConversion::Always as u32),
    ] {
        outcome(error).unwrap();
    }
    let store = Store::of(open_with(Path::new("/in/memory"), Some(&all)).unwrap());
    // SAFETY: the place is there.
    let stats = text(|json| unsafe { pleach_db_stats_json(Some(&store.db), json) }).unwrap();
    assert!(stats.contains("\"memory_bytes\":8388608"), "{stats}");
    drop(store);

    let o = &mut *all;
    for error in [
        pleach_options_set_compression(Some(&mut *o), 2),
        pleach_options_set_shape(Some(&mut *o), 3),
        pleach_options_set_learned_index(Some(&mut *o), 3),
        pleach_options_set_conversion(Some(&mut *o), u32::MAX),
    ] {
        assert_eq!(code(outcome(error)), PleachCode::InvalidArgument);
    }
    // Out of range: the open says so.
    let out_of_range: [Setter; 5] = [
        |o| pleach_options_set_memory(Some(o), 1),
        |o| pleach_options_set_memtable_bytes(Some(o), 1),
        |o| pleach_options_set_compaction_threads(Some(o), 65),
        |o| pleach_options_set_filter_bits_per_key(Some(o), f32::NAN),
        |o| pleach_options_set_space_target(Some(o), -1.0),
    ];
    for set in out_of_range {
        let mut wanted = options();
        outcome(set(&mut wanted)).unwrap();
        assert_eq!(code(open_with(Path::new("/not/made"), Some(&wanted))), PleachCode::InvalidArgument);
    }
}

#[test]
fn a_store_in_memory_lives_as_long_as_its_options() {
    let mut wanted = options();
    outcome(pleach_options_set_in_memory(Some(&mut wanted), true)).unwrap();
    let path = Path::new("/in/memory");
    Store::of(open_with(path, Some(&wanted)).unwrap()).put(b"k", b"").unwrap();
    assert!(!path.exists());
    assert_eq!(keys(&Store::of(open_with(path, Some(&wanted)).unwrap()).default, None), [b"k"]);
    outcome(pleach_options_set_error_if_exists(Some(&mut wanted), true)).unwrap();
    assert_eq!(code(open_with(path, Some(&wanted))), PleachCode::InvalidArgument);
    outcome(pleach_options_set_in_memory(Some(&mut wanted), true)).unwrap();
    drop(open_with(path, Some(&wanted)).unwrap());
}

#[test]
fn error_if_exists_looks_where_the_store_is() {
    let env = std::sync::Arc::new(pleach::env::MemEnv::new());
    let mut wanted: Box<OptionsHandle> = Box::new(pleach::Options::new().env(env).into());
    outcome(pleach_options_set_error_if_exists(Some(&mut wanted), true)).unwrap();
    let path = Path::new("/db");
    drop(open_with(path, Some(&wanted)).unwrap());
    assert_eq!(code(open_with(path, Some(&wanted))), PleachCode::InvalidArgument);
}

#[test]
fn repair_and_destroy() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let (c_old, c_new) = (c_path(&old), c_path(&new));
    // SAFETY: the paths are C strings.
    let repair = || text(|json| unsafe { pleach_repair(c_old.as_ptr(), c_new.as_ptr(), None, json) });
    // SAFETY: as above.
    let destroy = || outcome(unsafe { pleach_destroy(c_old.as_ptr(), None) });
    assert_eq!((code(repair()), code(destroy())), (PleachCode::NotFound, PleachCode::NotFound));
    let mut report = std::ptr::NonNull::dangling().as_ptr();
    // SAFETY: as above; a null path is refused.
    let refused = outcome(unsafe { pleach_repair(std::ptr::null(), c_new.as_ptr(), None, &raw mut report) });
    assert_eq!((code(refused), report.is_null()), (PleachCode::InvalidArgument, true));
    let store = Store::of(open_with(&old, None).unwrap());
    store.put(b"k", b"1").unwrap();
    assert_eq!((code(repair()), code(destroy())), (PleachCode::Conflict, PleachCode::Conflict));
    store.close().unwrap();
    drop(store);
    std::fs::remove_file(old.join("CURRENT")).unwrap();
    assert_eq!(code(open_with(&old, None)), PleachCode::Corruption);
    let report: serde_json::Value = serde_json::from_str(&repair().unwrap()).unwrap();
    assert_eq!((&report["entries"], &report["is_clean"]), (&1.into(), &false.into()));
    assert!(report["damage"][0].as_str().unwrap().contains("CURRENT is missing"), "{report}");
    assert!(report["guessed"].is_null(), "the manifest is there: {report}");
    assert_eq!(keys(&Store::of(open_with(&new, None).unwrap()).default, None), [b"k"]);
    assert_eq!(code(repair()), PleachCode::InvalidArgument);
    destroy().unwrap();
    assert_eq!(std::fs::read_dir(&old).unwrap().count(), 0);
}
