//! WiredTiger from Rust: a safe cover over the system's library, and a store of rows for key reshaping.
//!
//! [`Connection`] and [`Session`] cover what the benchmark and the store need of WiredTiger, by a small shim in C.
//! [`WiredTigerStore`] is a `pleach_reshape` store of rows over them. Where the library is not installed, the crate is empty.

#[cfg(wiredtiger)]
mod connection;
#[cfg(wiredtiger)]
mod ffi;
#[cfg(wiredtiger)]
mod store;

#[cfg(wiredtiger)]
pub use connection::{Connection, Direction, Session, Statistic, version};
#[cfg(wiredtiger)]
pub use store::{Log, WiredTigerOptions, WiredTigerStore};
