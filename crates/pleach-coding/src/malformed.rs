//! The error of a decoder, which knows bytes but not their file.

use std::fmt;

/// Bytes that violate the format. The layer that knows the file turns it into an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where in the decoded bytes.
    pub offset: usize,
    /// What the format demands there.
    pub expected: &'static str,
    /// The number that stands there instead, if it helps.
    pub found: Option<u64>,
}

impl Malformed {
    /// The bytes at `offset` are not what is `expected`.
    pub fn new(offset: usize, expected: &'static str) -> Self {
        Self { offset, expected, found: None }
    }

    /// The same, with the number found.
    #[must_use]
    pub fn found(self, number: impl Into<u64>) -> Self {
        Self { found: Some(number.into()), ..self }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)?;
        self.found.map_or(Ok(()), |number| write!(f, ", found {number}"))
    }
}

impl std::error::Error for Malformed {}
