//! LevelDB's C interface (`c.h` of LevelDB 1.23) over Pleach: `libpleach_leveldb.so`, which programs link, preload, or install
//! as `libleveldb.so.1`. The C++ interface is `adapters/leveldb`, which links this crate.
//!
//! docs/leveldb.md tells what becomes of each option.
//!
//! # Rules
//! - No panic leaves a function: it becomes an error, or the answer for nothing found.
//! - Nothing happens when the library is loaded: no thread, no signal handler. Programs may fork before they open a store.
//! - What is returned to be freed by the caller comes from `malloc`.
//! - Each function's contract is that of `c.h`; a safety section would repeat it.

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(clippy::missing_safety_doc, reason = "c.h states the contract of each function")]
#![expect(missing_docs, reason = "c.h documents the functions")]

mod batch;
mod comparator;
mod database;
mod filter_policy;
mod for_cxx;
mod handles;
mod iterator;
mod key_form;
mod manage;
mod options;
mod order;
mod ordered;
mod process;
mod properties;
mod repair;
mod status;
#[cfg(test)]
mod tests;

pub use batch::*;
pub use comparator::*;
pub use database::*;
pub use filter_policy::*;
pub use for_cxx::*;
pub use handles::*;
pub use iterator::*;
pub use manage::*;
pub use options::*;
pub use status::ErrorSlot;
