//! Parts that the interfaces for C share: panics that become values ([`guard`], [`caught`]), bytes and strings that come from C
//! ([`bytes`], [`c_string`]), copies that C frees ([`copy`], [`copy_string`]), and which threads may use a handle
//! ([`assert_shared`], [`assert_movable`]).

#![expect(unsafe_code, reason = "memory of C")]

mod memory;
mod panics;
mod threads;

pub use memory::{allocate, bytes, c_string, copy, copy_string};
pub use panics::{caught, guard};
pub use threads::{assert_movable, assert_shared};
