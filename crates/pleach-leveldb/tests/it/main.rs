//! The C functions as a C program calls them. `adapters/leveldb` compares them with LevelDB's own, and runs the suites of others.

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod store;
mod support;
