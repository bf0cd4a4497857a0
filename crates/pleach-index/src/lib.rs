//! Block indexes of Pleach: which block of an SST can hold a key. Pure computation, no input or output.
//!
//! An [`IndexBuilder`] gets every block boundary while the SST is written and returns an [`Index`]. [`Index::find`] returns
//! the block. The SST's index block stores the index ([`Index::encode`], [`Index::decode`]); its layout is in
//! docs/format/sst.md.
//!
//! An index names the right block for every key in the SST, and some block for other keys. The reader compares keys, so a
//! wrong index of a damaged file costs time or hides a key, but never yields a wrong value.

mod index;

pub use index::{Index, IndexBuilder};
