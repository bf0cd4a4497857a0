//! The functions as a C program calls them, and programs in C.

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(clippy::unnecessary_box_returns, reason = "handles are boxes")]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, on the real machine")]

mod c_programs;
mod cursors;
mod failures;
mod handles;
mod options;
mod reads_and_writes;
mod support;
