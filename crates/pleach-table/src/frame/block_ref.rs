//! A reader's hold on a block.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::buffer::AlignedBuffer;
use super::slab::Pin;
use crate::value_place::ValuePlace;

/// The bytes of a block, which stay in memory while this exists: a pinned run of frames, or memory of its own.
///
/// It is cheap to clone. It may outlive the SST and the cache that it came from.
#[derive(Clone)]
pub struct BlockRef(Home);

#[derive(Clone)]
enum Home {
    Frames(Pin),
    Heap(Arc<AlignedBuffer>),
}

impl BlockRef {
    #[inline]
    pub(super) fn framed(pin: Pin) -> Self {
        Self(Home::Frames(pin))
    }

    /// Bytes outside the cache.
    pub fn heap(bytes: AlignedBuffer) -> Self {
        Self(Home::Heap(Arc::new(bytes)))
    }

    /// The buffer of [`BlockRef::heap`], if this is the only reference to it.
    pub fn into_buffer(self) -> Option<AlignedBuffer> {
        match self.0 {
            Home::Frames(_) => None,
            Home::Heap(bytes) => Arc::into_inner(bytes),
        }
    }

    /// Bytes that have the value at `place` of this block, and where they have it.
    pub(crate) fn with_place(self, place: &ValuePlace) -> (Self, Range<usize>) {
        match place {
            ValuePlace::Block(range) => (self, range.clone()),
            ValuePlace::Pointer(bytes) => (Self::heap(AlignedBuffer::copy_of(bytes)), 0..bytes.len()),
        }
    }

    /// Whether it occupies frames of the cache.
    pub fn is_cached(&self) -> bool {
        matches!(self.0, Home::Frames(_))
    }
}

impl Deref for BlockRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Home::Frames(pin) => pin,
            Home::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockRef").field("len", &self.len()).field("cached", &self.is_cached()).finish()
    }
}
