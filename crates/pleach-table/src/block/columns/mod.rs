//! Columns: the layout of data blocks whose entries are value pointers, or puts with short values of one length. There may be
//! tombstones among them.
//!
//! Keys stand together, and so do values, or the parts of pointers that are not the same for all entries. Keys of one length need
//! no offsets. If the part of the key behind the prefix has at most eight bytes, keys are searched as numbers: near the place
//! that a line gives. They need no tags. Keys of digits are packed into half as many bytes ([`symbols`]).
//! Separated values of one size that lie in key order take no bytes: their offsets are a base and a stride.
//!
//! A pointer is the three varints of docs/format/values.md. This crate does not follow it. An entry whose value has another
//! form is stored in rows.
//!
//! # On disk
//! Layout: docs/format/sst.md, columnar block.
//!
//! # Origin
//! The key list of `LearnedKV`, section 4.1: keys and positions of values in sorted order. Departures: blocks, so that a reader
//! needs one page of it; keys without their common prefix; the positions that a line predicts are not stored.

mod builder;
mod key_line;
mod key_shape;
mod layout;
mod reader;
mod shape;
mod symbols;
#[cfg(test)]
mod tests;
mod validate;

use pleach_coding::{Decoder, varint_len};

use crate::pointer_bytes::PointerBytes;

pub(super) use builder::encode;
pub(super) use layout::ColumnLayout;
pub(super) use reader::ColumnBlock;
pub(super) use shape::Shape;
pub(super) use validate::validate;

/// Most bits of a part of a pointer.
const BITS_MAX: u32 = 32;
/// Segments are below this, so that a base and a difference do not overflow.
const SEGMENT_END: u64 = 1 << 63;

/// A value pointer as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    segment: u64,
    offset: u32,
    len: u32,
}

impl Pointer {
    /// The pointer of these bytes. `None` if they are not what [`Pointer::encode`] makes of it.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Decoder(bytes);
        let pointer = Self { segment: rest.varint()?, offset: rest.u32()?, len: rest.u32()? };
        let is_shortest = pointer.segment < SEGMENT_END && bytes.len() == pointer.encoded_len();
        (is_shortest && rest.is_empty()).then_some(pointer)
    }

    fn encoded_len(self) -> usize {
        varint_len(self.segment) + varint_len(self.offset.into()) + varint_len(self.len.into())
    }

    #[inline]
    fn encode(self) -> PointerBytes {
        PointerBytes::of_numbers(self.segment, self.offset, self.len)
    }
}
