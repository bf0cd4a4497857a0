//! A value that shares its cache line with no other.

use std::ops::{Deref, DerefMut};

/// Keeps what one thread changes apart from what others read, or change, at the same time: otherwise each change takes the line
/// from the others' caches, and their next access waits for it (some 100 ns). 128 bytes, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct OwnLine<T>(pub T);

impl<T> Deref for OwnLine<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for OwnLine<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
