//! Integration tests of the store, and the rigs that prove its promises: docs/testing.md.
#![expect(clippy::disallowed_methods, reason = "tests look at the machine's files and clock themselves")]

mod basics;
mod crash;
mod faults;
mod metamorphic;
mod model;
mod rig;
