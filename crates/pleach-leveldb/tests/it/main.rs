//! The C functions as a C program calls them. `adapters/leveldb` compares them with LevelDB's own, and runs the suites of others.

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(clippy::unnecessary_box_returns, reason = "handles are boxes")]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, on the real machine")]

mod callbacks;
mod compaction;
mod damage;
mod forks;
mod iterators;
mod reversed;
mod store;
mod support;
