//! State words of all frames of a slab. Only the slab knows what they mean.

#![expect(
    unsafe_code,
    reason = "the memory is the system's, so that a large slab costs nothing before it is used"
)]

use std::ops::Deref;

use pleach_env::memory::Region;
use pleach_env::sync::atomic::AtomicU32;

/// The state of a frame, and the extent of the run that it heads. All zeros is a free frame.
#[repr(C)]
pub(super) struct Frame {
    pub(super) state: AtomicU32,
    /// Of a head: bytes in use in the lower half, frames after the first in the upper half. Written under the lock.
    pub(super) extent: AtomicU32,
}

/// See the module's text.
pub(super) struct Frames {
    /// Zeroed; the system gives it at its first use.
    memory: Region,
    len: usize,
}

impl Frames {
    /// So many free frames.
    ///
    /// Requires: at least one.
    pub(super) fn try_new(len: usize) -> Option<Self> {
        Some(Self { memory: Region::try_new_lazy(len * size_of::<Frame>())?, len })
    }
}

impl Deref for Frames {
    type Target = [Frame];

    #[inline]
    fn deref(&self) -> &[Frame] {
        // SAFETY: the region is ours, aligned to 4096, zeroed (any bytes are a valid frame) and `len` frames long.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().cast(), self.len) }
    }
}
