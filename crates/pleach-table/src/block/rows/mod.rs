//! Rows: the layout of data blocks for entries of any kind. Each entry has its lengths, its key and its value together.
//!
//! # On disk
//! Layout: docs/format/sst.md, data block.

mod builder;
mod reader;

use crate::sizes::HEADER_LEN;

pub(super) use builder::encode;
pub(crate) use builder::encode_alone;
pub(super) use reader::{RowBlock, RowLayout, validate};

/// Bytes of a block besides its prefix and entries.
pub(super) const FIXED_LEN: usize = HEADER_LEN + 2;
/// Longest prefix: its length has 16 bits.
pub(super) const PREFIX_LEN_MAX: usize = u16::MAX as usize;
