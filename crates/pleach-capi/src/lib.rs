//! Pleach's interface for C: `include/pleach.h`, which `cargo xtask header` writes from the comments here. Bindings for other
//! languages stand on it. docs/capi.md is for those who use it.
//!
//! # Rules
//! - No panic leaves a function: it becomes an error with the code `PLEACH_CODE_INTERNAL`, or the answer for nothing.
//! - Nothing happens when the library is loaded: no thread, no signal handler. Programs may fork before they open a store.
//! - A handle is a box. It holds all that it needs, so handles may be freed in any order, before or after the close.
//! - What can fail returns an error or null. A null that is not allowed is an error where the function can report one, and
//!   nothing or `false` elsewhere.
//! - An enumeration of C is a number that may be anything: it is checked, and the unknown is an error.
//! - Each function's contract is its comment, which stands in the header; a safety section would repeat it.

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(clippy::unnecessary_box_returns, reason = "handles are boxes")]
#![expect(clippy::missing_safety_doc, reason = "the comment of each function states its contract")]

mod arguments;
mod batch;
mod cursor;
mod db;
mod error;
mod manage;
mod options;
mod partition;
mod snapshot;
mod value;

pub use batch::*;
pub use cursor::*;
pub use db::*;
pub use error::*;
pub use manage::*;
pub use options::*;
pub use partition::*;
pub use snapshot::*;
pub use value::*;
