//! The key at a cursor, built from its block's prefix and its entry's suffix.
//!
//! Short keys are stored inline: a cursor allocates nothing for them, and one instruction copies a short suffix.

use std::ops::Range;

use crate::block::Suffix;

/// Longest key that is stored inline.
const INLINE_LEN: usize = 64;
/// Suffixes up to this length are copied as a chunk, with the bytes behind them.
const CHUNK: usize = 16;

/// The buffer.
#[derive(Clone)]
pub(super) struct KeyBuffer {
    inline: [u8; INLINE_LEN],
    /// The whole key, if it is longer.
    long: Vec<u8>,
    len: usize,
}

impl KeyBuffer {
    pub(super) fn new() -> Self {
        Self { inline: [0; INLINE_LEN], long: Vec::new(), len: 0 }
    }

    /// The key.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self.inline.get(..self.len) {
            Some(key) => key,
            None => &self.long,
        }
    }

    /// Starts the key with `prefix`.
    pub(super) fn set_prefix(&mut self, prefix: &[u8]) {
        if let Some(start) = self.inline.get_mut(..prefix.len()) {
            start.copy_from_slice(prefix);
        }
        self.long.clear();
        self.len = prefix.len();
    }

    /// Replaces the part of the key behind the prefix by `suffix` of `block`.
    ///
    /// Requires: `prefix` is the prefix set last.
    #[inline]
    pub(super) fn set_suffix(&mut self, prefix: &[u8], block: &[u8], suffix: &Suffix) {
        match suffix {
            Suffix::Block(range) => self.set_part(prefix, block, range.clone()),
            Suffix::Unpacked { bytes, len } => self.set_part(prefix, bytes, 0..*len),
        }
    }

    /// As [`KeyBuffer::set_suffix`], to `bytes[suffix]`.
    #[inline]
    fn set_part(&mut self, prefix: &[u8], bytes: &[u8], suffix: Range<usize>) {
        let (at, len) = (prefix.len(), suffix.len());
        self.len = at + len;
        if len <= CHUNK
            && let Some(from) = bytes.get(suffix.start..).and_then(|rest| rest.first_chunk::<CHUNK>())
            && let Some(to) = self.inline.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<CHUNK>())
        {
            *to = *from;
        } else if let Some(to) = self.inline.get_mut(at..at + len) {
            to.copy_from_slice(&bytes[suffix]);
        } else {
            self.long.clear();
            self.long.extend_from_slice(prefix);
            self.long.extend_from_slice(&bytes[suffix]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_come_back() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut key = KeyBuffer::new();
        for prefix_len in [0, 1, 40, 47, 48, 49, 63, 64, 65, 100] {
            let prefix = vec![7; prefix_len];
            key.set_prefix(&prefix);
            for len in [0, 1, 15, 16, 17, 23, 24, 60, 64, 65, 100, 3] {
                for start in [0, 90, 200 - len] {
                    key.set_suffix(&prefix, &bytes, &Suffix::Block(start..start + len));
                    assert_eq!(key.bytes(), [&prefix, &bytes[start..start + len]].concat());
                }
            }
        }
    }
}
