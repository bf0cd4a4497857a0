//! The engines of the benchmark behind a few functions of C, for load generators that call a library: sysbench does so from
//! Lua (`sysbench/mix.lua`, which declares the functions).
//!
//! [`peers_open`] opens an engine's store, or takes part in it if this process has it open already (`store`). A session is the
//! access of one thread (`session`). Keys are those of the benchmark's key set `random16` (`keys`).
//!
//! # Rules
//! - No panic leaves a function: it becomes an error.
//! - A function that fails returns null or [`FAILED`]. [`peers_error`] then tells why.
//! - Any number of sessions may be used at the same time, each by the thread that opened it.

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(clippy::missing_safety_doc, reason = "the comment of each function states its contract")]

mod error;
mod functions;
mod keys;
mod session;
mod store;

pub use error::{FAILED, peers_error};
pub use functions::*;
pub use session::PeersSession;
