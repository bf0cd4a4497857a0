//! Block indexes of Pleach: which block of an SST can hold a key. Pure computation, no input or output.
//!
//! An [`IndexBuilder`] gets every block boundary while the SST is written and returns an [`Index`]. [`Index::find`] returns
//! the block. The SST's index block stores the index ([`Index::encode`], [`Index::decode`]); its layout is in
//! docs/format/sst.md.
//!
//! There are two kinds. *Separators* store a string between each two blocks. A *learned* index stores no keys: it encodes
//! a key as a number ([SNBC]) and finds the block by a model of the boundaries. The builder trains a model and takes it if it
//! needs no more bytes than separators would ([`IndexChoice`]). A finished index of separators can be replaced in memory by a
//! model that is learned from them ([`Index::learn_from_separators`]). A model is smaller if blocks end in the right places:
//! [`Cuts`] says where.
//!
//! [`GreedyPlr`] is the model of another paper, which predicts with an error and leaves the search to the caller. SSTs do not
//! use it.
//!
//! An index promises for every key, present or absent, that it is above the last key of the block before the one found, and
//! below the first key of the block behind. The reader compares keys, so a wrong index of a damaged file costs time or
//! hides a key: then a reader may find an older version of it in another file.
//!
//! [SNBC]: https://arxiv.org/abs/2012.12501

mod cut;
mod encoders;
mod from_separators;
mod greedy_plr;
mod index;
mod learned;
mod model;
mod separators;
mod snbc;
#[cfg(test)]
mod test_keys;

pub use cut::{Cuts, GIVEN_UP_MAX};
pub use encoders::Encoders;
pub use greedy_plr::GreedyPlr;
pub use index::{Index, IndexBuilder, IndexChoice, IndexKind, Obstacle, SearchStage};
