//! Panics, nulls and lengths that cannot be.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use pleach::env::{
    Dir, Env, File, FileLock, Job, JobHandle, LockMode, MemEnv, Metadata, OpenFiles, OpenOptions, Site,
    Waiter,
};
use pleach_capi::*;

use crate::support::*;

thread_local! {
    /// Whether calls of this thread panic.
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// A machine whose calls panic on a thread that wants it.
struct PanickingEnv(MemEnv);

macro_rules! panicking_env {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Env for PanickingEnv {
            $(fn $name(&self, $($argument: $type),*) -> $answer {
                assert!(!ARMED.get(), "a planted panic");
                self.0.$name($($argument),*)
            })*
        }
    };
}

panicking_env! {
    absolute(path: &Path) -> io::Result<PathBuf>;
    create_dir_all(path: &Path) -> io::Result<()>;
    list_dir(path: &Path) -> io::Result<Vec<(String, Metadata)>>;
    sync_dir(path: &Path, site: Site) -> io::Result<()>;
    open_dir(path: &Path) -> io::Result<Arc<dyn Dir>>;
    create_file(path: &Path) -> io::Result<Arc<dyn File>>;
    open_file(path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;
    open_files() -> Arc<OpenFiles>;
    metadata(path: &Path) -> io::Result<Option<Metadata>>;
    rename(from: &Path, to: &Path) -> io::Result<()>;
    remove_file(path: &Path) -> io::Result<()>;
    lock_file(path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>>;
    available_space(path: &Path) -> io::Result<u64>;
    now() -> Duration;
    wall_clock() -> Duration;
    sleep(duration: Duration) -> ();
    parallelism() -> usize;
    random_u64() -> u64;
    spawn_job(name: &str, job: Box<dyn Job>) -> io::Result<JobHandle>;
    waiter() -> Waiter;
}

#[test]
fn a_panic_is_an_error() {
    let options = pleach::Options::new().env(Arc::new(PanickingEnv(MemEnv::new())));
    let options: Box<OptionsHandle> = Box::new(options.into());
    let path = Path::new("/db");
    let store = Store::of(open_with(path, Some(&options)).unwrap());
    store.put(b"k", b"1").unwrap();
    let is_internal = |outcome: Outcome| {
        let failure = outcome.unwrap_err();
        assert_eq!(failure.code, PleachCode::Internal, "{failure:?}");
        assert!(failure.message.contains("a planted panic"), "{failure:?}");
    };
    ARMED.set(true);
    let (c_path, other) = (c_path(path), c"/other");
    is_internal(open_with(path, Some(&options)).map(drop));
    // SAFETY: the paths are C strings.
    unsafe {
        is_internal(outcome(pleach_destroy(c_path.as_ptr(), Some(&options))));
        is_internal(outcome(pleach_repair(c_path.as_ptr(), other.as_ptr(), Some(&options), null_mut())));
    }
    // The close of a store whose last handle is freed.
    ARMED.set(false);
    let second = open_with(Path::new("/second"), Some(&options)).unwrap();
    ARMED.set(true);
    pleach_db_free(Some(second));
    ARMED.set(false);
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of calls")]
fn a_null_is_an_error() {
    let store = Store::in_memory();
    let (db, p) = (Some(&*store.db), Some(&*store.default));
    let (key, len) = parts(b"k");
    let (mut batch, mut value) = (store.batch(), ValueHandle::EMPTY);
    let (mut number, mut wide, mut found) = (0_usize, 0_u64, false);
    let (number, wide, found) = (&raw mut number, &raw mut wide, &raw mut found);
    let path = c"/db".as_ptr();
    let (mut a_db, mut a_p, mut a_cursor) = (null_mut(), null_mut(), null_mut());
    let (mut a_snapshot, mut a_batch, mut names, mut json) = (null_mut(), null_mut(), null_mut(), null_mut());
    // SAFETY: what is not null is there.
    let errors = unsafe {
        [
            pleach_options_set_memory(None, 1 << 20),
            pleach_options_set_in_memory(None, true),
            pleach_options_set_error_if_exists(None, true),
            pleach_db_open(null(), None, &raw mut a_db),
            pleach_db_open(c"".as_ptr(), None, &raw mut a_db),
            pleach_db_open(path, None, null_mut()),
            pleach_db_open_read_only(null(), None, &raw mut a_db),
            pleach_db_close(None),
            pleach_db_default_partition(None, &raw mut a_p),
            pleach_db_default_partition(db, null_mut()),
            pleach_db_create_partition(db, null(), &raw mut a_p),
            pleach_db_create_partition(db, c"\xff".as_ptr(), &raw mut a_p),
            pleach_db_find_partition(db, null(), &raw mut a_p),
            pleach_db_drop_partition(db, None),
            pleach_db_partitions(db, null_mut(), number),
            pleach_db_partitions(None, &raw mut names, number),
            pleach_db_snapshot(None, &raw mut a_snapshot),
            pleach_db_batch(None, &raw mut a_batch),
            pleach_db_sync(None),
            pleach_db_flush(None),
            pleach_db_compact(None),
            pleach_db_verify(None),
            pleach_db_stats_json(None, &raw mut json),
            pleach_repair(null(), path, None, null_mut()),
            pleach_repair(path, null(), None, null_mut()),
            pleach_destroy(null(), None),
            pleach_partition_get(None, None, key, len, &raw mut value),
            pleach_partition_get(p, None, null(), 1, &raw mut value),
            pleach_partition_get(p, None, key, usize::MAX, &raw mut value),
            pleach_partition_get(p, None, key, len, null_mut()),
            pleach_partition_get_copy(p, None, key, len, null_mut(), 1, number, found),
            pleach_partition_get_copy(p, None, key, len, null_mut(), 0, null_mut(), found),
            pleach_partition_get_copy(p, None, key, len, null_mut(), 0, number, null_mut()),
            pleach_partition_contains(p, None, key, len, null_mut()),
            pleach_partition_put(None, key, len, key, len, 0),
            pleach_partition_put(p, null(), 1, key, len, 0),
            pleach_partition_put(p, key, len, null(), 1, 0),
            pleach_partition_put(p, key, len, key, len, 2),
            pleach_partition_delete(p, null(), 1, 0),
            pleach_partition_delete(p, key, len, u32::MAX),
            pleach_partition_delete_range(p, null(), 1, null(), 0, 0),
            pleach_partition_delete_range(p, null(), 0, null(), 1, 0),
            pleach_partition_cursor(None, None, &raw mut a_cursor),
            pleach_partition_cursor(p, None, null_mut()),
            pleach_partition_compact(None),
            pleach_partition_compact_range(p, null(), 1, null(), 0),
            pleach_partition_approximate_size(p, null(), 0, null(), 0, null_mut(), wide),
            pleach_partition_approximate_size(p, null(), 0, null(), 0, wide, null_mut()),
            pleach_partition_stats_json(p, null_mut()),
            pleach_batch_put(None, p, key, len, key, len),
            pleach_batch_put(Some(&mut batch), None, key, len, key, len),
            pleach_batch_put(Some(&mut batch), p, null(), 1, key, len),
            pleach_batch_delete(Some(&mut batch), p, null(), 1),
            pleach_batch_delete_range(Some(&mut batch), p, null(), 1, null(), 0),
            pleach_batch_clear(None),
            pleach_batch_write(None, 0),
            pleach_cursor_status(None),
        ]
    };
    for (number, error) in errors.into_iter().enumerate() {
        let code = outcome(error).err().map(|failure| failure.code);
        assert_eq!(code, Some(PleachCode::InvalidArgument), "call {number}");
    }
    assert_eq!(pleach_batch_count(Some(&batch)), 0);
    assert_eq!(keys(&store.default, None), [b""; 0]);
    assert!(json.is_null() && names.is_null() && value.data.is_null());
}

#[test]
fn a_null_without_an_error_is_nothing() {
    assert_eq!((pleach_error_code(None), pleach_error_is_shortage(None)), (PleachCode::None, false));
    // SAFETY: null is allowed, and the message is a constant C string.
    unsafe {
        assert_eq!(*pleach_error_message(None), 0);
        assert!(pleach_cursor_key(None, null_mut()).is_null());
        assert!(pleach_cursor_value(None, null_mut()).is_null());
        assert!(!pleach_cursor_seek(None, null(), 0) && !pleach_cursor_seek_for_prev(None, null(), 0));
        pleach_value_release(null_mut());
        pleach_free(null_mut());
    }
    assert!(!pleach_cursor_first(None) && !pleach_cursor_last(None));
    assert!(!pleach_cursor_next(None) && !pleach_cursor_prev(None) && !pleach_cursor_valid(None));
    assert_eq!((pleach_batch_count(None), pleach_batch_bytes(None)), (0, 0));
    assert_eq!(pleach_snapshot_sequence_number(None), 0);
    assert!(pleach_partition_name(None).is_null());
    pleach_error_free(None);
    pleach_options_free(None);
    pleach_db_free(None);
    pleach_partition_free(None);
    pleach_snapshot_free(None);
    pleach_batch_free(None);
    pleach_cursor_free(None);
    // A cursor keeps the error of a null key.
    let store = Store::in_memory();
    let mut cursor = cursor(&store.default, None).unwrap();
    // SAFETY: null is an error.
    assert!(!unsafe { pleach_cursor_seek(Some(&mut cursor), null(), 1) });
    assert_eq!(outcome(pleach_cursor_status(Some(&cursor))).unwrap_err().code, PleachCode::InvalidArgument);
}

/// Every function that runs code of the engine catches panics: its body begins with one of the functions that do.
#[test]
fn every_function_catches_panics() {
    let catching = ["report(", "guard(", "set(options", "go(cursor", "open(path", "attempt("];
    let trivial = [
        "pleach_version",
        "pleach_free",
        "pleach_error_code",
        "pleach_error_message",
        "pleach_error_is_shortage",
    ];
    let mut functions = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for function in text.split("extern \"C\" fn ").skip(1) {
            let name = function.split('(').next().unwrap();
            let body = function.split("\n}").next().unwrap().split_once('{').unwrap().1;
            let is_caught = catching.iter().any(|call| body.contains(call));
            assert!(is_caught || trivial.contains(&name) || name == "pleach_partition_name", "{name}");
            functions += 1;
        }
    }
    assert!(functions > 60, "{functions}");
}
