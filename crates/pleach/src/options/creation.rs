//! Whether an open creates a store, opens one that exists, or both.

use super::Options;

/// What an open does with a store that is missing, and with one that exists.
#[derive(Clone, Copy)]
pub(super) struct Creation {
    create_if_missing: bool,
    error_if_exists: bool,
}

impl Default for Creation {
    fn default() -> Self {
        Self { create_if_missing: true, error_if_exists: false }
    }
}

impl Options {
    /// Whether a missing store is created (default: yes) or is an error.
    #[must_use]
    pub fn create_if_missing(mut self, yes: bool) -> Self {
        self.creation.create_if_missing = yes;
        self
    }

    /// Whether a store that exists is an error, `InvalidArgument` (default: no). It is looked for under the store's lock: of
    /// several opens at the same time, one creates the store. Opens for reading only ignore this.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = pleach::Options::new().error_if_exists(true);
    /// options.clone().open(dir.path())?.close()?;
    /// assert_eq!(options.open(dir.path()).err().unwrap().kind(), pleach::ErrorKind::InvalidArgument);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    #[must_use]
    pub fn error_if_exists(mut self, yes: bool) -> Self {
        self.creation.error_if_exists = yes;
        self
    }

    /// Whether a missing store may be created.
    pub(crate) fn may_create(&self) -> bool {
        self.creation.create_if_missing && !self.read_only
    }

    /// Whether a store that exists may be opened.
    pub(crate) fn may_exist(&self) -> bool {
        self.read_only || !self.creation.error_if_exists
    }
}
