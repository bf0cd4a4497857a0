//! Whether RocksDB reads by io_uring: it asks the program (`uring.c`).

#![expect(unsafe_code, reason = "the answer is a function in C, because the linker drops one in Rust")]

unsafe extern "C" {
    safe fn bench_peers_allow_io_uring(allowed: bool);
}

/// Lets RocksDB use io_uring, or forbids it. Call it before a store is opened.
pub(super) fn allow(allowed: bool) {
    bench_peers_allow_io_uring(allowed);
}
