//! What the functions for C cost above the Rust calls: gets that lend, gets that copy, puts, and steps of a cursor, each in turns
//! with the same in Rust. All blocks are cached. The functions are called by pointers that the compiler does not know, as from C.
//!
//! ```sh
//! cargo run --release -p pleach-capi --example cost
//! ```

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    clippy::cast_precision_loss,
    reason = "a program that measures the real machine"
)]

use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Instant;

use pleach::{Durability, Options, Partition};
use pleach_capi::{
    CursorHandle, DbHandle, ErrorHandle, PartitionHandle, SnapshotHandle, ValueHandle, pleach_cursor_first,
    pleach_cursor_key, pleach_cursor_next, pleach_cursor_value, pleach_db_compact,
    pleach_db_default_partition, pleach_db_open, pleach_partition_cursor, pleach_partition_get,
    pleach_partition_get_copy, pleach_partition_put, pleach_value_release,
};

const KEYS: u64 = 500_000;
const VALUE: [u8; 100] = [7; 100];
const ROUNDS: usize = 41;
/// Rounds before those that count: they fill the caches.
const WARM_UP: usize = 8;
const OPERATIONS: u64 = 50_000;

type Key = [u8; 16];

type Failure = Option<Box<ErrorHandle>>;
type Partitions<'a> = Option<&'a PartitionHandle>;
type Snapshots<'a> = Option<&'a SnapshotHandle>;
type Bytes = *const c_void;
type Get = unsafe extern "C" fn(Partitions<'_>, Snapshots<'_>, Bytes, usize, *mut ValueHandle) -> Failure;
type Release = unsafe extern "C" fn(*mut ValueHandle);
type GetCopy = unsafe extern "C" fn(
    Partitions<'_>,
    Snapshots<'_>,
    Bytes,
    usize,
    *mut c_void,
    usize,
    *mut usize,
    *mut bool,
) -> Failure;
type Put = unsafe extern "C" fn(Partitions<'_>, Bytes, usize, Bytes, usize, u32) -> Failure;
type Next = extern "C" fn(Option<&mut CursorHandle>) -> bool;
type Lend = unsafe extern "C" fn(Option<&CursorHandle>, *mut usize) -> Bytes;
type LendMut = unsafe extern "C" fn(Option<&mut CursorHandle>, *mut usize) -> Bytes;

fn key(n: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&((n % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes());
    key
}

/// Pseudorandom keys, other ones for each seed.
fn keys(seed: u64) -> impl Iterator<Item = Key> {
    let mut state = seed;
    (0..OPERATIONS).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        key(state >> 20)
    })
}

/// The default partition of a store, as both interfaces have it, and room for a value.
struct Store {
    rust: Partition,
    c: Box<PartitionHandle>,
    db: Box<DbHandle>,
    buffer: Vec<u8>,
}

fn must(error: Option<Box<ErrorHandle>>) {
    assert!(error.is_none(), "{:?}", error.map(|error| error.message().to_owned()));
}

impl Store {
    fn open(path: &Path, options: Options) -> Self {
        let path = CString::new(path.to_str().expect("a path of UTF-8")).expect("without a zero");
        let (mut db, mut partition) = (null_mut(), null_mut());
        // SAFETY: the arguments are there; handles are boxes.
        unsafe {
            must(pleach_db_open(path.as_ptr(), Some(&options.into()), &raw mut db));
            let db = Box::from_raw(db);
            must(pleach_db_default_partition(Some(&db), &raw mut partition));
            Self { rust: db.db().default_partition(), c: Box::from_raw(partition), db, buffer: vec![0; 128] }
        }
    }
}

fn rust_get(store: &mut Store, seed: u64) {
    for key in keys(seed) {
        let value = store.rust.get(key).expect("a get").expect("the key is there");
        black_box(value[0]);
    }
}

fn c_get(store: &mut Store, seed: u64) {
    let (get, release) = black_box::<(Get, Release)>((pleach_partition_get, pleach_value_release));
    let mut value = ValueHandle::EMPTY;
    for key in keys(seed) {
        // SAFETY: the arguments are there; the value is released before it is used again.
        unsafe {
            must(get(Some(&*store.c), None, key.as_ptr().cast(), key.len(), &raw mut value));
            black_box(*value.data.cast::<u8>());
            release(&raw mut value);
        }
    }
}

fn rust_copy(store: &mut Store, seed: u64) {
    for key in keys(seed) {
        let value = store.rust.get(key).expect("a get").expect("the key is there");
        store.buffer[..value.len()].copy_from_slice(&value);
        black_box(&store.buffer);
    }
}

fn c_copy(store: &mut Store, seed: u64) {
    let get = black_box::<GetCopy>(pleach_partition_get_copy);
    for key in keys(seed) {
        let (mut len, mut found) = (0, false);
        let (start, capacity) = (store.buffer.as_mut_ptr().cast(), store.buffer.len());
        let (len_place, found_place) = (&raw mut len, &raw mut found);
        let (key, key_len) = (key.as_ptr().cast(), key.len());
        // SAFETY: the arguments are there.
        must(unsafe { get(Some(&*store.c), None, key, key_len, start, capacity, len_place, found_place) });
        assert!(found);
        black_box(&store.buffer);
    }
}

fn rust_put(store: &mut Store, seed: u64) {
    for key in keys(seed) {
        store.rust.put_with(key, VALUE, Durability::Buffered).expect("a put");
    }
}

fn c_put(store: &mut Store, seed: u64) {
    let put = black_box::<Put>(pleach_partition_put);
    for key in keys(seed) {
        let (value, value_len) = (VALUE.as_ptr().cast(), VALUE.len());
        // SAFETY: the arguments are there.
        must(unsafe { put(Some(&*store.c), key.as_ptr().cast(), key.len(), value, value_len, 0) });
    }
}

fn rust_steps(store: &mut Store, _: u64) {
    let mut cursor = store.rust.cursor().expect("a cursor");
    let mut is_found = cursor.first().expect("a move");
    for _ in 0..OPERATIONS {
        assert!(is_found);
        black_box((cursor.key(), cursor.value().expect("a value")));
        is_found = cursor.next().expect("a move");
    }
}

fn c_steps(store: &mut Store, _: u64) {
    let (next, key, value) =
        black_box::<(Next, Lend, LendMut)>((pleach_cursor_next, pleach_cursor_key, pleach_cursor_value));
    let mut cursor = null_mut();
    // SAFETY: the arguments are there; a handle is a box.
    let mut cursor = unsafe {
        must(pleach_partition_cursor(Some(&store.c), None, &raw mut cursor));
        Box::from_raw(cursor)
    };
    let mut is_found = pleach_cursor_first(Some(&mut cursor));
    let mut len = 0_usize;
    for _ in 0..OPERATIONS {
        assert!(is_found);
        // SAFETY: the arguments are there.
        unsafe {
            black_box(key(Some(&*cursor), &raw mut len));
            black_box(value(Some(&mut *cursor), &raw mut len));
        }
        is_found = next(Some(&mut *cursor));
    }
}

/// Nanoseconds of an operation.
fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / OPERATIONS as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

type Side = fn(&mut Store, u64);

fn main() -> pleach::Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(dir.path(), Options::new().memory(512 << 20));
    for n in 0..KEYS {
        store.rust.put(key(n), VALUE)?;
    }
    must(pleach_db_compact(Some(&store.db)));
    println!("{:24} {:>10} {:>10} {:>16}", "", "Rust ns", "C ns", "speed C / Rust");
    let rows: [(&str, Side, Side); 4] = [
        ("get, lent", rust_get, c_get),
        ("get, copied", rust_copy, c_copy),
        ("step, key and value", rust_steps, c_steps),
        ("put", rust_put, c_put),
    ];
    for (name, in_rust, in_c) in rows {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..WARM_UP + ROUNDS {
            // Each is the first in every second round.
            for side in [round % 2, 1 - round % 2] {
                let taken = time(|| [in_rust, in_c][side](&mut store, round as u64));
                if round >= WARM_UP {
                    times[side].push(taken);
                }
            }
        }
        let [rust, c] = times.map(|mut times| median(&mut times));
        println!("{name:24} {rust:10.1} {c:10.1} {:16.3}", rust / c);
    }
    Ok(())
}
