//! Heap memory for direct reads, which need aligned buffers.

use std::ops::{Deref, DerefMut};

use crate::sizes::PAGE;

/// A buffer that starts at a multiple of 4096, unless it is a copy or [`AlignedBuffer::unaligned`].
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + PAGE - 1];
        let start = memory.as_ptr().addr().wrapping_neg() % PAGE;
        Self { memory, start, len }
    }

    /// `len` zeros that start anywhere, for reads that need no alignment.
    pub fn unaligned(len: usize) -> Self {
        Self { memory: vec![0; len], start: 0, len }
    }

    /// The buffer with another length, and with whatever bytes it has. `None` if its memory is shorter.
    pub fn resized(self, len: usize) -> Option<Self> {
        (len <= self.capacity()).then_some(Self { len, ..self })
    }

    /// A copy of `bytes`; it starts anywhere.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        Self { memory: bytes.to_vec(), start: 0, len: bytes.len() }
    }

    /// How long the buffer can be.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.len() - self.start
    }

    /// Makes the buffer `len` bytes long, whatever they are.
    ///
    /// Requires: `len` is at most the capacity.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "nothing here makes the memory grow");
        self.len = len;
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

impl std::fmt::Debug for AlignedBuffer {
    /// Never prints data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}
