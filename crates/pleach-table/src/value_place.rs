//! Where an entry's value is.

use std::ops::Range;

use crate::pointer_bytes::PointerBytes;

/// Where an entry's value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// In the entry's block.
    Block(Range<usize>),
    /// In no one place: a value pointer of a columnar block. These are its bytes.
    Pointer(PointerBytes),
}

impl ValuePlace {
    /// The value's bytes; `block` is the entry's block.
    #[inline]
    pub fn bytes<'a>(&'a self, block: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Block(range) => &block[range.clone()],
            Self::Pointer(bytes) => bytes,
        }
    }
}
