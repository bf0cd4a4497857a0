//! The form in which a store has the caller's keys: as they are, or so that their order is the reverse one.
//!
//! The library knows the reverse order of bytes by its comparator's name, so it does not need the caller's function to sort.
//! Writes and reads encode the keys of such a store, and iterators decode them.
//!
//! # On disk
//! The entries are in a partition whose name begins with [`KeyForm::partition_prefix`] and ends with the comparator's name. The
//! form of a reversed key: docs/format/reversed-keys.md.

use std::borrow::Cow;
use std::ffi::CStr;

use pleach::Cursor;
use pleach::limits::KEY_LEN_MAX;
use pleach_coding::{decode_reversed, encode_reversed};

use crate::comparator::Comparator;
use crate::status::{Kind, Result, Status};

/// The name of the comparator with the reverse order of bytes. It is RocksDB's, which stores it in its files, so its meaning
/// cannot change.
pub(crate) const REVERSE_BYTEWISE: &str = "rocksdb.ReverseBytewiseComparator";

/// [`REVERSE_BYTEWISE`] as a C string.
pub(crate) const REVERSE_BYTEWISE_C: &CStr = c"rocksdb.ReverseBytewiseComparator";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// As the caller gave it.
    Plain,
    /// By [`encode_reversed`].
    Reversed,
}

impl KeyForm {
    pub(crate) const ALL: [KeyForm; 2] = [KeyForm::Plain, KeyForm::Reversed];

    /// The form for the comparator of this name.
    pub(crate) fn of_comparator(name: &str) -> Self {
        if name == REVERSE_BYTEWISE { KeyForm::Reversed } else { KeyForm::Plain }
    }

    /// What the name of a partition with keys of this form begins with. Never changed.
    pub(crate) fn partition_prefix(self) -> &'static str {
        match self {
            KeyForm::Plain => "comparator:",
            KeyForm::Reversed => "reversed:",
        }
    }

    /// The key as it is stored. It may be too long to be; then no such key can be put, but it has a place in the order.
    #[inline]
    pub(crate) fn encode(self, key: &[u8]) -> Cow<'_, [u8]> {
        match self {
            KeyForm::Plain => Cow::Borrowed(key),
            KeyForm::Reversed => Cow::Owned(encoded(key)),
        }
    }

    /// The same for a key that is written.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long.
    #[inline]
    pub(crate) fn encode_for_write(self, key: &[u8]) -> Result<Cow<'_, [u8]>> {
        let form = self.encode(key);
        // A plain one is looked at by the write itself. A run of zeros is short in its form, but iterators return the key.
        if self == KeyForm::Reversed && key.len().max(form.len()) > KEY_LEN_MAX {
            return Err(too_long(key.len(), form.len()));
        }
        Ok(form)
    }
}

fn encoded(key: &[u8]) -> Vec<u8> {
    let mut form = Vec::new();
    encode_reversed(key, &mut form);
    form
}

#[cold]
fn too_long(len: usize, form_len: usize) -> Status {
    let message = format!(
        "the key has {len} bytes, {form_len} as it is stored for the reverse order; a key has at most {KEY_LEN_MAX}"
    );
    Status::new(Kind::InvalidArgument, message)
}

/// Whether `comparator` has the order that its name promises, by its answers for pairs of short keys.
///
/// # Errors
/// `InvalidArgument` if not: the function would be passed over, and the caller would get another order than its own.
pub(crate) fn check_reverse(comparator: &Comparator) -> Result<()> {
    // In the order of bytes: prefixes, bytes at the edges, a difference behind eight bytes.
    let ascending: [&[u8]; 14] = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\xff",
        b"\x01",
        b"A",
        b"a",
        b"a\0",
        b"aa",
        b"ab",
        b"abcdefgh",
        b"abcdefghi",
        b"\x7f",
        b"\x80\xff",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            if comparator.compare(a, b) != j.cmp(&i) {
                return Err(Status::new(
                    Kind::InvalidArgument,
                    format!(
                        "{REVERSE_BYTEWISE}: the comparator of this name does not have the reverse order of bytes"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// A walk over reversed keys. Each is decoded when the walk comes to it.
pub(crate) struct ReversedWalk {
    cursor: Cursor,
    /// The key that the cursor is on, unless it is on none, or on bytes that are no key.
    key: Option<Vec<u8>>,
    /// Memory for the next key.
    spare: Vec<u8>,
}

impl ReversedWalk {
    pub(crate) fn new(cursor: Cursor) -> Self {
        Self { cursor, key: None, spare: Vec::new() }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// As [`Cursor::value`].
    pub(crate) fn value(&self) -> pleach::Result<Option<&[u8]>> {
        if self.key.is_some() { self.cursor.value() } else { Ok(None) }
    }

    /// Moves the cursor, and decodes the key that it then is on.
    pub(crate) fn go(&mut self, by: impl FnOnce(&mut Cursor) -> pleach::Result<bool>) -> Result<()> {
        if let Some(key) = self.key.take() {
            self.spare = key;
        }
        by(&mut self.cursor)?;
        if let Some(form) = self.cursor.key() {
            self.spare.clear();
            decode_reversed(form, KEY_LEN_MAX, &mut self.spare).map_err(|malformed| {
                let message = format!(
                    "a stored key of {} bytes is not one of the reverse order: at byte {}: {malformed}",
                    form.len(),
                    malformed.offset
                );
                Status::new(Kind::Corruption, message)
            })?;
            self.key = Some(std::mem::take(&mut self.spare));
        }
        Ok(())
    }
}
