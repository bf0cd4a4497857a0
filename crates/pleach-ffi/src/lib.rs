//! Parts that the interfaces for C share: panics that become values ([`guard`], [`caught`]), bytes and strings that come from C
//! ([`bytes`], [`c_string`]), and copies that C frees ([`copy`], [`copy_string`]).

#![expect(unsafe_code, reason = "memory of C")]

mod memory;
mod panics;

pub use memory::{allocate, bytes, c_string, copy, copy_string};
pub use panics::{caught, guard};
