//! A separated value that was read and proved, in the memory that it was read or unpacked into.

use std::ops::Range;

use pleach_table::AlignedBuffer;

/// See the module's text.
pub(crate) enum ProvedValue {
    /// At a place of what was read.
    InBuffer(AlignedBuffer, Range<usize>),
    Unpacked(Vec<u8>),
}

impl ProvedValue {
    /// The value.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::InBuffer(buffer, range) => &buffer[range.clone()],
            Self::Unpacked(bytes) => bytes,
        }
    }
}

/// Where `part` lies in `buffer`; `None` if it lies elsewhere.
pub(crate) fn range_in(buffer: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(buffer.as_ptr().addr())?;
    (start + part.len() <= buffer.len()).then(|| start..start + part.len())
}
