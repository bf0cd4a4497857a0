//! Heap memory for direct reads, which need aligned buffers.

use std::ops::{Deref, DerefMut};

use crate::sizes::PAGE;

/// A buffer that starts at a multiple of 4096.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `len` zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + PAGE - 1];
        let start = memory.as_ptr().addr().wrapping_neg() % PAGE;
        Self { memory, start, len }
    }

    /// Makes the buffer begin `skip` bytes later and have `len` bytes.
    pub(crate) fn narrow(mut self, skip: usize, len: usize) -> Self {
        assert!(skip + len <= self.len, "a part of the buffer");
        self.start += skip;
        self.len = len;
        self
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
