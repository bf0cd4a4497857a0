//! Integration tests of the store, and the rigs that prove its promises: docs/testing.md.

mod basics;
mod crash;
mod faults;
mod model;
mod rig;
