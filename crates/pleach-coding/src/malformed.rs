//! A decoder's error about malformed bytes; the decoder knows no file.

use std::fmt;

/// Bytes that violate the format; the layer that knows the file makes an error of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where in the decoded bytes.
    pub offset: usize,
    /// The expectation.
    pub expected: &'static str,
}

impl Malformed {
    /// At `offset` something else stands than what is `expected`.
    pub fn new(offset: usize, expected: &'static str) -> Self {
        Self { offset, expected }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at byte {}", self.expected, self.offset)
    }
}

impl std::error::Error for Malformed {}
