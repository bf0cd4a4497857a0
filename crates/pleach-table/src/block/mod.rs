//! Blocks: the unit of reading, checksum and compression.
//!
//! A stored block is a header of 16 bytes, a payload, and zeros up to its stored length. The *unfolded* form, which
//! frames hold and readers see, is the same with an uncompressed payload. What a data block's payload holds is the
//! business of [`builder`] and [`reader`].
//!
//! # On disk
//! Layout: docs/format/sst.md, block header and data block.

mod builder;
mod header;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use builder::{BlockPacker, Cut, Packing, encode_alone};
pub(crate) use header::{BlockType, Header, check, seal, seal_parts};
pub(crate) use reader::{DataBlock, Layout, Search, validate};
