//! Integration tests of the store.
#![expect(clippy::disallowed_methods, reason = "tests look at the machine's files themselves")]

mod basics;
