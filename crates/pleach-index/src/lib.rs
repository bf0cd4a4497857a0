//! Block indexes of Pleach: which block of an SST can hold a key. Pure computation, no input or output.
//!
//! An [`IndexBuilder`] is told every block boundary while the SST is written and gives an [`Index`]; an [`Index`]
//! answers [`Index::find`] and is stored as bytes in the SST's index block ([`Index::encode`], [`Index::decode`]).
//! The layout of an index block is in docs/format/sst.md.
//!
//! An index may be imprecise for keys that are not in the SST, never for keys that are; and the reader compares keys
//! anyway. A wrong index costs time or hides a key of a damaged file, it never yields a wrong value.

mod index;
mod separators;

pub use index::{Index, IndexBuilder};
pub use separators::{Separators, SeparatorsBuilder};
