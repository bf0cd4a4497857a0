//! Identifiers that several layers share.

use std::fmt;

/// Number of a file in the store's directory: log segments, SSTs and manifests draw from one counter, and a number is
/// never used twice in the life of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

impl FileId {
    /// The number in a file's name; `None` unless `digits` are those that [`fmt::Display`] writes.
    pub fn parse(digits: &str) -> Option<Self> {
        let id = Self(digits.parse().ok()?);
        (id.to_string() == digits).then_some(id)
    }
}

impl fmt::Display for FileId {
    /// At least six digits, as in the file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}
