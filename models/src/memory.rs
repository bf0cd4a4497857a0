//! Memory of the system.

use std::ptr::NonNull;

/// Zeroed memory.
pub struct Region(Box<[u64]>);

impl Region {
    pub fn try_new_lazy(len: usize) -> Option<Self> {
        Some(Self(vec![0; len.div_ceil(8)].into()))
    }

    pub fn start(&self) -> NonNull<u8> {
        NonNull::from(&*self.0).cast()
    }

    pub fn len(&self) -> usize {
        self.0.len() * 8
    }
}

pub fn prefetch(_address: *const u8) {}

/// Makes the bytes zero, as pages that were given back.
pub fn discard(pages: &mut [u8]) {
    pages.fill(0);
}
