//! Blocks: the unit of reading, checksum and compression.
//!
//! A stored block is a header of 16 bytes, a payload, and zeros up to its stored length. Frames and readers hold the same with
//! an uncompressed payload. The payload of a data block has one of two layouts: [`rows`], for entries of any kind, and
//! [`columns`], for value pointers and short values. The [`packer`] takes the smaller one for each block. Readers see
//! both as a [`DataBlock`].
//!
//! # On disk
//! Layout: docs/format/sst.md, block header, data block and columnar block.

mod columns;
mod fill;
mod header;
mod packer;
mod rows;
mod search;
#[cfg(test)]
mod tests;
mod view;
mod waiting;

pub(crate) use header::{BlockType, DATA_TYPES, Header, check, seal, seal_parts};
pub(crate) use packer::{BlockPacker, Cut, Packing};
pub(crate) use rows::encode_alone;
pub(crate) use search::Search;
pub(crate) use view::{DataBlock, Layout, Suffix, validate};
