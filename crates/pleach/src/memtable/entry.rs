//! Records of a memtable: one per key, and one per version of it.
//!
//! ```text
//! key record      latest version: u64 (atomic) | key length: u32 | key bytes | zeros to 8
//! version record  older version: u64 | sequence number << 8 | kind: u64 | value length: u32 | value bytes | zeros to 8
//! ```
//!
//! The first version is laid directly behind its key, so that a lookup of a key written once touches adjacent lines.
//! An overwrite adds a version record and swings the key's `latest` word to it: neither tree nor index changes.

use std::sync::atomic::Ordering;

use pleach_log::SeqNo;
use pleach_table::ValueKind;

use super::arena::{Arena, ArenaRef};

const KEY_HEADER: usize = 12;
const VERSION_HEADER: usize = 20;

/// One version of a key, as found in a memtable.
#[derive(Clone, Copy)]
pub(crate) struct VersionView<'a> {
    pub(crate) seq: SeqNo,
    pub(crate) kind: ValueKind,
    pub(crate) value: &'a [u8],
    /// Where the value's bytes lie, for a handle that outlives the borrow.
    pub(crate) value_at: ArenaRef,
    older: u64,
}

/// Adds a record for a key that the memtable does not hold, with its first version.
pub(super) fn add_key(arena: &Arena, key: &[u8], seq: SeqNo, kind: ValueKind, value: &[u8]) -> ArenaRef {
    let key_len = (KEY_HEADER + key.len()).next_multiple_of(8);
    arena.allocate(key_len + VERSION_HEADER + value.len(), |at, bytes| {
        let (head, version) = bytes.split_at_mut(key_len);
        head[..8].copy_from_slice(&at.plus(key_len).to_word().to_ne());
        head[8..KEY_HEADER].copy_from_slice(&len_u32(key.len()).to_le_bytes());
        head[KEY_HEADER..KEY_HEADER + key.len()].copy_from_slice(key);
        write_version(version, 0, seq, kind, value);
    })
}

/// Adds a version to the key whose record is at `key_at` and makes it the latest.
pub(super) fn add_version(arena: &Arena, key_at: ArenaRef, seq: SeqNo, kind: ValueKind, value: &[u8]) {
    let latest = arena.word(key_at);
    let older = latest.load(Ordering::Relaxed);
    let at = arena
        .allocate(VERSION_HEADER + value.len(), |_, bytes| write_version(bytes, older, seq, kind, value));
    latest.store(at.to_word(), Ordering::Release);
}

fn write_version(bytes: &mut [u8], older: u64, seq: SeqNo, kind: ValueKind, value: &[u8]) {
    bytes[..8].copy_from_slice(&older.to_le_bytes());
    bytes[8..16].copy_from_slice(&(seq << 8 | u64::from(kind.number())).to_le_bytes());
    bytes[16..VERSION_HEADER].copy_from_slice(&len_u32(value.len()).to_le_bytes());
    bytes[VERSION_HEADER..VERSION_HEADER + value.len()].copy_from_slice(value);
}

/// The key of a key record.
#[inline]
pub(super) fn key(arena: &Arena, key_at: ArenaRef) -> &[u8] {
    let len = read_u32(arena.bytes(key_at.plus(8), 4));
    arena.bytes(key_at.plus(KEY_HEADER), len)
}

/// The newest version of a key that is not newer than `visible`.
#[inline]
pub(super) fn visible_version(arena: &Arena, key_at: ArenaRef, visible: SeqNo) -> Option<VersionView<'_>> {
    let mut word = arena.word(key_at).load(Ordering::Acquire);
    while let Some(at) = ArenaRef::from_word(word) {
        let view = version(arena, at);
        if view.seq <= visible {
            return Some(view);
        }
        word = view.older;
    }
    None
}

#[inline]
fn version(arena: &Arena, at: ArenaRef) -> VersionView<'_> {
    let header = arena.bytes(at, VERSION_HEADER);
    let tagged = read_u64(&header[8..16]);
    let len = read_u32(&header[16..VERSION_HEADER]);
    let value_at = at.plus(VERSION_HEADER);
    VersionView {
        seq: tagged >> 8,
        kind: ValueKind::from_number((tagged & 0xff) as u8).expect("kinds in memory were written by add_key"),
        value: arena.bytes(value_at, len),
        value_at,
        older: read_u64(&header[..8]),
    }
}

/// Bytes a new key with one version takes.
pub(super) fn footprint(key_len: usize, value_len: usize) -> usize {
    (KEY_HEADER + key_len).next_multiple_of(8) + (VERSION_HEADER + value_len).next_multiple_of(8)
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("lengths are checked against limits before they reach a memtable")
}

#[inline]
fn read_u32(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
}

#[inline]
fn read_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

trait NativeBytes {
    fn to_ne(self) -> [u8; 8];
}

impl NativeBytes for u64 {
    /// The word as an atomic access will read it; it never leaves memory.
    #[expect(clippy::host_endian_bytes, reason = "an in-memory word that is later read by an atomic load")]
    fn to_ne(self) -> [u8; 8] {
        self.to_ne_bytes()
    }
}
