//! Records of a memtable: one per key, and one per version of it.
//!
//! ```text
//! key record      latest version: u64 (atomic) | key length: u32 | key bytes | zeros to 8
//! version record  older version: u64 | sequence number << 8 | kind: u64 | value length: u32 | [place] | value | zeros to 8
//! place           segment: u64 | offset: u32 | stored length: u32; only of a value that is to be separated (kind value pointer)
//! links           milestone before: u64 | milestone far before: u64, in front of a milestone's version record
//! ```
//!
//! The first version directly follows its key, so a lookup of a key written once reads adjacent cache lines. An overwrite
//! adds a version record and stores its reference in the key's `latest` word; neither tree nor index changes.
//!
//! A large value lies in a chunk of its own, after its place, the header of its version record and space for links. Its key
//! record is in another chunk.
//!
//! References take 48 bits. The 16 bits above hold, in `latest`, the number of overwrites modulo 2^16; in `older`, the
//! mark of a milestone; in the first link, the rank of the second one.
//!
//! # Invariants
//! 1. A word's reference names a finished record of the kind that the word is for, in the arena of the same memtable. A
//!    word is published only after its record is finished. The functions below rely on it for the references that they get.
//!
//! # Cost
//! Every sixteenth version of a key is a *milestone*. Its links lead to the milestone before it and to one far before, so
//! a snapshot finds its version in a logarithmic number of steps. A key with fewer overwrites has no links.
//!
//! # Origin
//! The links of milestones: E. W. Myers, "An applicative random-access stack", 1983. The second link of a milestone
//! passes `2^k - 1` others; where the last two links have equal lengths, the next one passes both.

#![expect(unsafe_code, reason = "records are read from the arena's memory")]

use std::sync::atomic::{AtomicU64, Ordering};

use pleach_coding::u32_at;
use pleach_env::FileId;
use pleach_env::memory::RegionBytes;
use pleach_log::SeqNo;
use pleach_table::ValueKind;

use super::arena::{Arena, ArenaRef, ArenaWriter, Claim, Unshared};

const KEY_HEADER: usize = 12;
const VERSION_HEADER: usize = 20;
const LINKS: usize = 16;

/// Overwrites from one milestone to the next: few enough to walk one by one, and enough that the links cost little
/// (arbitrary). It divides 2^16, the modulus of the number of overwrites.
const MILESTONE_EVERY: u64 = 16;

/// Bytes of a [`Place`].
pub(crate) const PLACE_LEN: usize = 16;

/// Bytes before a value in a chunk of its own: links, which only a milestone uses, the header of the version, and the place,
/// which only a separated value uses. Without a place, links and header begin later.
pub(crate) const LARGE_FRONT: usize = LINKS + VERSION_HEADER + PLACE_LEN;

/// Where in the log a value is that is to be separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: FileId,
    /// Of the value's checksum.
    pub(crate) offset: u32,
    /// Bytes of the value there, without its checksum: fewer than here if it is packed.
    pub(crate) len: u32,
}

/// What a new version holds.
#[derive(Clone, Copy)]
pub(super) struct NewVersion<'a> {
    pub(super) seq: SeqNo,
    pub(super) kind: ValueKind,
    /// Of a value pointer.
    pub(super) place: Option<Place>,
    pub(super) value: &'a [u8],
}

impl NewVersion<'_> {
    /// Bytes of the version record.
    fn len(&self) -> usize {
        VERSION_HEADER + self.place.map_or(0, |_| PLACE_LEN) + self.value.len()
    }
}

const REF_BITS: u32 = 48;
const MILESTONE: u64 = 1 << 63;

/// One version of a key.
#[derive(Clone, Copy)]
pub(super) struct VersionView<'a> {
    pub(super) seq: SeqNo,
    pub(super) kind: ValueKind,
    pub(super) value: &'a [u8],
    /// The place of the value's bytes, for a handle that outlives the borrow.
    pub(super) value_at: ArenaRef,
    /// The place of the record.
    at: ArenaRef,
    older: u64,
}

/// Adds a record for a key that the memtable does not hold, with its first version.
pub(super) fn add_key(arena: &mut ArenaWriter<'_>, key: &[u8], new: NewVersion<'_>) -> ArenaRef {
    let len = footprint_of_key(key.len()) + new.len();
    arena.allocate(len, |at, bytes| write_key_with_version(at, bytes, key, new))
}

/// The record of [`add_key`], before it is sure that the memtable does not hold the key.
pub(super) fn prepare_key(claim: &mut Claim<'_>, key: &[u8], new: NewVersion<'_>) -> Unshared {
    let len = footprint_of_key(key.len()) + new.len();
    claim.allocate(len, |at, bytes| write_key_with_version(at, bytes, key, new))
}

/// As [`add_version`], where a record was prepared for a key of this length, which has got another record since. The version
/// stays in its place; links take the place of the prepared key.
///
/// # Safety
/// The record was prepared with a claim of this arena.
#[cold]
pub(super) unsafe fn add_prepared_version(
    arena: &mut ArenaWriter<'_>,
    key_at: ArenaRef,
    prepared: Unshared,
    key_len: usize,
) {
    let version_at = footprint_of_key(key_len);
    extend(arena, key_at, |arena, older, links| {
        let finish = |at: ArenaRef, bytes: &mut [u8]| {
            let (front, version) = bytes.split_at_mut(version_at);
            if let Some(links) = links {
                write_links(&mut front[version_at - LINKS..], links);
            }
            version[..8].copy_from_slice(&older.to_le_bytes());
            at.plus(version_at)
        };
        // SAFETY: as the caller promises.
        unsafe { arena.finish(prepared, finish) }
    });
}

/// Adds a version to the key whose record is at `key_at` and makes it the latest.
pub(super) fn add_version(arena: &mut ArenaWriter<'_>, key_at: ArenaRef, new: NewVersion<'_>) {
    extend(arena, key_at, |arena, older, links| match links {
        None => arena.allocate(new.len(), |_, bytes| write_version(bytes, older, new)),
        Some(links) => add_milestone(arena, older, links, new),
    });
}

/// Adds a record for a key that the memtable does not hold. Its first version is `value`, in a chunk of its own.
pub(super) fn add_large_key(
    arena: &mut ArenaWriter<'_>,
    key: &[u8],
    seq: SeqNo,
    place: Option<Place>,
    value: RegionBytes,
) -> ArenaRef {
    let version = adopt_version(arena, 0, [0; 2], (seq, place), value);
    arena.allocate(footprint_of_key(key.len()), |_, head| write_key(head, version, key))
}

/// As [`add_version`] of a put whose value is in a chunk of its own.
pub(super) fn add_large_version(
    arena: &mut ArenaWriter<'_>,
    key_at: ArenaRef,
    seq: SeqNo,
    place: Option<Place>,
    value: RegionBytes,
) {
    extend(arena, key_at, |arena, older, links| {
        adopt_version(arena, older, links.unwrap_or_default(), (seq, place), value)
    });
}

/// Makes the version record that `add` writes the latest one of a key. `add` gets the word `older` and, for a milestone,
/// its links.
#[inline]
fn extend(
    arena: &mut ArenaWriter<'_>,
    key_at: ArenaRef,
    add: impl FnOnce(&mut ArenaWriter<'_>, u64, Option<[u64; 2]>) -> ArenaRef,
) {
    let latest = latest(arena.arena(), key_at);
    let word = latest.load(Ordering::Relaxed);
    let older = word & ((1 << REF_BITS) - 1);
    let overwrites = (word >> REF_BITS) + 1;
    let at = if overwrites.is_multiple_of(MILESTONE_EVERY) {
        let links = milestone_links(arena.arena(), older);
        add(arena, older | MILESTONE, Some(links))
    } else {
        add(arena, older, None)
    };
    latest.store(at.to_word() | overwrites << REF_BITS, Ordering::Release);
}

fn adopt_version(
    arena: &mut ArenaWriter<'_>,
    older: u64,
    links: [u64; 2],
    (seq, place): (SeqNo, Option<Place>),
    value: RegionBytes,
) -> ArenaRef {
    let value_len = value.bytes().len();
    let unused = if place.is_some() { 0 } else { PLACE_LEN };
    let at = arena.adopt(value.into_region(), |bytes| {
        let (front, version) = bytes[unused..].split_at_mut(LINKS);
        write_links(front, links);
        let kind = if place.is_some() { ValueKind::ValuePointer } else { ValueKind::Put };
        write_version_header(version, older, seq, kind, value_len);
        if let Some(place) = place {
            write_place(&mut version[VERSION_HEADER..], place);
        }
    });
    at.plus(unused + LINKS)
}

#[cold]
fn add_milestone(arena: &mut ArenaWriter<'_>, older: u64, links: [u64; 2], new: NewVersion<'_>) -> ArenaRef {
    let at = arena.allocate(LINKS + new.len(), |_, bytes| {
        let (front, version) = bytes.split_at_mut(LINKS);
        write_links(front, links);
        write_version(version, older, new);
    });
    at.plus(LINKS)
}

/// The links of the milestone that follows the version at `older`.
#[cold]
fn milestone_links(arena: &Arena, older: u64) -> [u64; 2] {
    let before = milestone_before(arena, older);
    before.map_or([0; 2], |before| Links::of(arena, before).next(arena, before).words())
}

fn write_links(front: &mut [u8], links: [u64; 2]) {
    front[..8].copy_from_slice(&links[0].to_le_bytes());
    front[8..].copy_from_slice(&links[1].to_le_bytes());
}

/// The newest milestone among the versions from `word` on: at most [`MILESTONE_EVERY`] steps away.
fn milestone_before(arena: &Arena, mut word: u64) -> Option<ArenaRef> {
    while let Some(at) = reference(word) {
        word = version(arena, at).older;
        if word & MILESTONE != 0 {
            return Some(at);
        }
    }
    None
}

/// The links before a milestone.
struct Links {
    /// The milestone before.
    before: Option<ArenaRef>,
    /// The milestone that is `2^rank - 1` milestones before.
    far: Option<ArenaRef>,
    rank: u64,
}

impl Links {
    fn of(arena: &Arena, milestone: ArenaRef) -> Self {
        // SAFETY: links lie before a milestone, in its allocation; they hold no atomic word (invariant 1).
        let bytes = unsafe { arena.bytes(milestone.minus(LINKS), LINKS) };
        let before = read_u64(&bytes[..8]);
        Self { before: reference(before), far: reference(read_u64(&bytes[8..])), rank: before >> REF_BITS }
    }

    /// The links of the milestone that follows the one at `own`. `self` are the links of `own`.
    fn next(&self, arena: &Arena, own: ArenaRef) -> Self {
        let before = Some(own);
        if let Some(far) = self.far {
            let beyond = Self::of(arena, far);
            if beyond.rank == self.rank {
                return Self { before, far: beyond.far, rank: self.rank + 1 };
            }
        }
        Self { before, far: before, rank: 1 }
    }

    fn words(&self) -> [u64; 2] {
        let word = |at: Option<ArenaRef>| at.map_or(0, ArenaRef::to_word);
        [word(self.before) | self.rank << REF_BITS, word(self.far)]
    }
}

#[inline]
#[expect(clippy::host_endian_bytes, reason = "a word in memory, which atomic loads read")]
fn write_key(head: &mut [u8], latest: ArenaRef, key: &[u8]) {
    head[..8].copy_from_slice(&latest.to_word().to_ne_bytes());
    head[8..KEY_HEADER].copy_from_slice(&len_u32(key.len()).to_le_bytes());
    head[KEY_HEADER..KEY_HEADER + key.len()].copy_from_slice(key);
}

#[inline]
fn write_key_with_version(at: ArenaRef, bytes: &mut [u8], key: &[u8], new: NewVersion<'_>) {
    let version_at = footprint_of_key(key.len());
    let (head, version) = bytes.split_at_mut(version_at);
    write_key(head, at.plus(version_at), key);
    write_version(version, 0, new);
}

#[inline]
fn write_version(bytes: &mut [u8], older: u64, new: NewVersion<'_>) {
    let NewVersion { seq, kind, place, value } = new;
    write_version_header(bytes, older, seq, kind, value.len());
    let mut value_at = VERSION_HEADER;
    if let Some(place) = place {
        write_place(&mut bytes[VERSION_HEADER..], place);
        value_at += PLACE_LEN;
    }
    bytes[value_at..value_at + value.len()].copy_from_slice(value);
}

#[cold]
fn write_place(bytes: &mut [u8], place: Place) {
    bytes[..8].copy_from_slice(&place.segment.0.to_le_bytes());
    bytes[8..12].copy_from_slice(&place.offset.to_le_bytes());
    bytes[12..PLACE_LEN].copy_from_slice(&place.len.to_le_bytes());
}

/// The place of a value that is to be separated.
pub(super) fn place(arena: &Arena, value_at: ArenaRef) -> Place {
    // SAFETY: the version record of such a value has its place in front of it (invariant 1).
    let bytes = unsafe { arena.bytes(value_at.minus(PLACE_LEN), PLACE_LEN) };
    Place { segment: FileId(read_u64(&bytes[..8])), offset: u32_at(bytes, 8), len: u32_at(bytes, 12) }
}

#[inline]
fn write_version_header(bytes: &mut [u8], older: u64, seq: SeqNo, kind: ValueKind, value_len: usize) {
    bytes[..8].copy_from_slice(&older.to_le_bytes());
    bytes[8..16].copy_from_slice(&(seq << 8 | u64::from(kind.number())).to_le_bytes());
    bytes[16..VERSION_HEADER].copy_from_slice(&len_u32(value_len).to_le_bytes());
}

/// The reference in the lower bits of a word.
#[inline]
fn reference(word: u64) -> Option<ArenaRef> {
    ArenaRef::from_word(word & ((1 << REF_BITS) - 1))
}

/// The key of a key record.
#[inline]
pub(super) fn key(arena: &Arena, key_at: ArenaRef) -> &[u8] {
    // SAFETY: a key record has its length and as many bytes after its atomic word (invariant 1).
    unsafe {
        let len = read_u32(arena.bytes(key_at.plus(8), 4));
        arena.bytes(key_at.plus(KEY_HEADER), len)
    }
}

/// Prefetches the beginning of a key record, and the key from its byte `from` on.
#[inline]
pub(super) fn prefetch_key(arena: &Arena, key_at: ArenaRef, from: usize) {
    arena.prefetch(key_at, 0);
    arena.prefetch(key_at, KEY_HEADER + from);
}

/// The word of a key record that holds the reference of its latest version.
#[inline]
fn latest(arena: &Arena, key_at: ArenaRef) -> &AtomicU64 {
    // SAFETY: a key record begins with this word at a multiple of 8; no other function accesses it (invariant 1).
    unsafe { arena.word(key_at) }
}

/// The bytes of a value whose place and length a [`VersionView`] gave.
#[inline]
pub(super) fn value(arena: &Arena, at: ArenaRef, len: usize) -> &[u8] {
    // SAFETY: a version record has as many bytes there, without an atomic word (invariant 1).
    unsafe { arena.bytes(at, len) }
}

/// The newest version of a key that is not newer than `visible`.
#[inline]
pub(super) fn visible_version(arena: &Arena, key_at: ArenaRef, visible: SeqNo) -> Option<VersionView<'_>> {
    let newest = version(arena, reference(latest(arena, key_at).load(Ordering::Acquire))?);
    if newest.seq <= visible { Some(newest) } else { older_version(arena, newest, visible).0 }
}

/// From a version newer than `visible`, the newest version not newer than it, and the number of steps to it.
#[cold]
fn older_version<'a>(
    arena: &'a Arena,
    mut view: VersionView<'a>,
    visible: SeqNo,
) -> (Option<VersionView<'a>>, u32) {
    let mut steps = 0;
    while view.seq > visible {
        let linked = if view.older & MILESTONE == 0 { None } else { newer_link(arena, &view, visible) };
        let Some(at) = linked.or_else(|| reference(view.older)) else { return (None, steps) };
        view = version(arena, at);
        steps += 1;
    }
    (Some(view), steps)
}

/// Of the milestones that the links of `milestone` lead to, the farthest that is newer than `visible`.
fn newer_link(arena: &Arena, milestone: &VersionView<'_>, visible: SeqNo) -> Option<ArenaRef> {
    let links = Links::of(arena, milestone.at);
    [links.far, links.before].into_iter().flatten().find(|&at| version(arena, at).seq > visible)
}

#[inline]
fn version(arena: &Arena, at: ArenaRef) -> VersionView<'_> {
    // SAFETY: a version record begins with its header, which holds no atomic word (invariant 1).
    let header = unsafe { arena.bytes(at, VERSION_HEADER) };
    let tagged = read_u64(&header[8..16]);
    let len = read_u32(&header[16..VERSION_HEADER]);
    let kind =
        ValueKind::from_number((tagged & 0xff) as u8).expect("kinds in memory were written by add_key");
    let place_len = if kind == ValueKind::ValuePointer { PLACE_LEN } else { 0 };
    let value_at = at.plus(VERSION_HEADER + place_len);
    VersionView {
        seq: tagged >> 8,
        kind,
        value: value(arena, value_at, len),
        value_at,
        at,
        older: read_u64(&header[..8]),
    }
}

/// Bytes that a new key with one version takes. A further version takes no more, even with links: a key record has at least
/// [`LINKS`] bytes.
pub(super) fn footprint(key_len: usize, value_len: usize) -> usize {
    footprint_of_key(key_len) + (VERSION_HEADER + value_len).next_multiple_of(8)
}

/// The most arena bytes that a key takes when its value is in a chunk of its own.
pub(super) fn footprint_of_key(key_len: usize) -> usize {
    (KEY_HEADER + key_len).next_multiple_of(8)
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

const _: () = assert!(KEY_HEADER.next_multiple_of(8) >= LINKS && (1 << 16) % MILESTONE_EVERY == 0);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pleach_env::memory::RegionPool;

    use super::super::arena::Footprint;
    use super::*;

    fn put(seq: SeqNo, value: &[u8]) -> NewVersion<'_> {
        NewVersion { seq, kind: ValueKind::Put, place: None, value }
    }

    /// Versions have the odd numbers from 1 on.
    fn overwritten(arena: &Arena, versions: u64) -> ArenaRef {
        let bytes = footprint(3, 8) * usize::try_from(versions).unwrap();
        // SAFETY: the test has no other writer.
        let mut writer = unsafe { arena.writer() };
        assert!(writer.reserve(Footprint {
            bytes,
            record_max: footprint(3, 8),
            records: 1,
            ..Footprint::default()
        }));
        let mut seqs = (0..versions).map(|n| (2 * n + 1, (2 * n + 1).to_le_bytes()));
        let (seq, value) = seqs.next().unwrap();
        let key_at = add_key(&mut writer, b"key", put(seq, &value));
        for (seq, value) in seqs {
            add_version(&mut writer, key_at, put(seq, &value));
        }
        key_at
    }

    #[test]
    fn any_version_of_a_key_overwritten_often_is_found_in_few_steps() {
        // More than 2^16, so that the count of overwrites has wrapped around.
        let all = [1, 2, 16, 17, 33, 300, 150_000];
        for versions in all.into_iter().take(if cfg!(miri) { 5 } else { 7 }) {
            let arena = Arena::new(Arc::new(RegionPool::new(1 << 20, 1))).unwrap();
            let key_at = overwritten(&arena, versions);
            let latest = latest(&arena, key_at).load(Ordering::Relaxed);
            let newest = version(&arena, reference(latest).unwrap());
            let mut steps_max = 0;
            for visible in 0..=2 * versions {
                let expected = visible.div_ceil(2) * 2;
                let found = visible_version(&arena, key_at, visible);
                assert_eq!(found.map(|v| v.seq), expected.checked_sub(1), "{visible} of {versions}");
                assert!(found.is_none_or(|v| v.value == v.seq.to_le_bytes()));
                steps_max = steps_max.max(older_version(&arena, newest, visible).1);
            }
            let milestones = versions / MILESTONE_EVERY;
            let bound = 2 * MILESTONE_EVERY + 3 * u64::from((milestones + 1).ilog2());
            assert!(
                u64::from(steps_max) <= bound,
                "{steps_max} steps among {versions} versions, not {bound}"
            );
        }
    }
}
