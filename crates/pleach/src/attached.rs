//! A writer that is there only while the store is open for writing.

use std::ops::{Deref, DerefMut};

/// The writer of the log or of the manifest. A store that is open for reading only has none, and every call that would
/// write is refused before it comes here (`Status::check_writable`).
pub(crate) struct Attached<T>(Option<T>);

impl<T> Attached<T> {
    pub(crate) fn new(writer: T) -> Self {
        Self(Some(writer))
    }

    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn as_ref(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

const REFUSED: &str = "a store that is open for reading only refuses writes before they come to its files";

impl<T> Deref for Attached<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect(REFUSED)
    }
}

impl<T> DerefMut for Attached<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(REFUSED)
    }
}
