//! Blocks: the unit of reading, checksum and compression.
//!
//! A stored block is a header of 16 bytes, a payload, and zeros up to its stored length. Frames and
//! readers hold the same with an uncompressed payload. [`builder`] and [`reader`] define the payload of a data block.
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
