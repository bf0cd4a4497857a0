//! Entries that wait for their block: keys, values and what the layouts need to know of them.

use std::ops::RangeInclusive;

use pleach_coding::varint_len;

use super::columns::Pointer;
use crate::hash::tag_of;
use crate::value_kind::ValueKind;

/// A waiting entry.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    /// Where its key begins in the bytes; its value follows.
    start: usize,
    key_len: u32,
    value_len: u32,
    pub(super) kind: ValueKind,
    pub(super) tag: u8,
}

impl Waiting {
    pub(super) fn new(start: usize, key: &[u8], kind: ValueKind, value_len: usize, hash: u64) -> Self {
        let key_len = u32::try_from(key.len()).expect("checked by the SST builder");
        let value_len = u32::try_from(value_len).expect("checked by the SST builder");
        Self { start, key_len, value_len, kind, tag: tag_of(hash) }
    }

    pub(super) fn value_word(self) -> u32 {
        self.value_len << 2 | u32::from(self.kind.number())
    }

    /// Its length in rows without a prefix, tag and offset included. In a block with a prefix it is at most this minus the
    /// prefix's length.
    pub(super) fn row_len(self) -> usize {
        let lengths = varint_len(self.key_len.into()) + varint_len(self.value_word().into());
        3 + lengths + self.key_len as usize + self.value_len as usize
    }
}

/// The waiting entries, in key order.
#[derive(Default)]
pub(super) struct WaitingEntries {
    bytes: Vec<u8>,
    list: Vec<Waiting>,
    /// Of each entry, the pointer that is its value. Empty if no block may be columnar.
    pointers: Vec<Option<Pointer>>,
    may_be_columnar: bool,
}

/// What an entry is in a columnar block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apart {
    Pointer(Pointer),
    /// A value of so many bytes.
    Value(usize),
    Tombstone,
}

/// Values above this are never in columns (arbitrary): what columns save of an entry is a small part of it.
const VALUE_LEN_MAX: u32 = 64;

impl WaitingEntries {
    pub(super) fn new(may_be_columnar: bool) -> Self {
        Self { may_be_columnar, ..Self::default() }
    }

    pub(super) fn push(&mut self, key: &[u8], kind: ValueKind, value: &[u8], hash: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.list.push(Waiting::new(start, key, kind, value.len(), hash));
        if self.may_be_columnar {
            self.pointers.push(if kind == ValueKind::ValuePointer { Pointer::decode(value) } else { None });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Their bytes, at most as they take in a block.
    pub(super) fn bytes_len(&self) -> usize {
        self.bytes.len() + 5 * self.list.len()
    }

    pub(super) fn get(&self, i: usize) -> Waiting {
        self.list[i]
    }

    pub(super) fn first(&self, entries: usize) -> &[Waiting] {
        &self.list[..entries]
    }

    /// The keys of these entries.
    pub(super) fn keys(&self, range: RangeInclusive<usize>) -> impl Iterator<Item = &[u8]> {
        range.map(|i| self.key(i))
    }

    #[inline]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        let entry = self.list[i];
        &self.bytes[entry.start..][..entry.key_len as usize]
    }

    pub(super) fn value(&self, i: usize) -> &[u8] {
        let entry = self.list[i];
        &self.bytes[entry.start + entry.key_len as usize..][..entry.value_len as usize]
    }

    /// What entry `i` is in a columnar block; `None` if no such block can hold it.
    #[inline]
    pub(super) fn apart(&self, i: usize) -> Option<Apart> {
        let pointer = *self.pointers.get(i)?;
        let entry = self.list[i];
        match (entry.kind, entry.value_len) {
            (ValueKind::ValuePointer, _) => pointer.map(Apart::Pointer),
            (ValueKind::Put, len) if len <= VALUE_LEN_MAX => Some(Apart::Value(len as usize)),
            (ValueKind::Tombstone, 0) => Some(Apart::Tombstone),
            _ => None,
        }
    }

    /// Drops the first `entries`. Keeps memory for bytes up to `kept_bytes` if all are gone.
    pub(super) fn drain(&mut self, entries: usize, kept_bytes: usize) {
        if self.may_be_columnar {
            self.pointers.drain(..entries);
        }
        match self.list.get(entries) {
            None => {
                self.list.clear();
                self.bytes.clear();
                self.bytes.shrink_to(kept_bytes);
            }
            Some(next) => {
                let start = next.start;
                self.bytes.drain(..start);
                self.list.drain(..entries);
                self.list.iter_mut().for_each(|entry| entry.start -= start);
            }
        }
    }
}
