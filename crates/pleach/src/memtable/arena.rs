//! Append-only memory of a memtable: byte records that are written once by the one writer, then shared with readers.
//!
//! A record is named by an [`ArenaRef`] and stays where it is until the arena is dropped. The memtable's tree and hash
//! index publish references with release stores, so a reader that has loaded one sees the record's bytes.
//!
//! # Invariants
//! 1. *Written before shared*: the bytes of an allocation change only between [`Arena::allocate`] and the moment the
//!    writer publishes its reference; after that only its atomic words change. The memtable keeps this by handing out
//!    references only from finished records.
//! 2. *In bounds*: every reference points to an allocation of this arena. References never come from disk.
//!
//! # Concurrency
//! One writer at a time (the commit leader); any number of readers, lock-free.

#![expect(
    unsafe_code,
    reason = "records are shared with readers while the writer appends others beside them"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use pleach_env::memory::{Region, RegionPool, prefetch};

/// Chunks an arena can have, those of large values not counted. A memtable is sealed after about 256 of them; a batch adds
/// at most [`SHARED_CHUNKS_MAX`] times 4/3, or one for each GiB of its footprint.
const CHUNKS: usize = 1024;

/// Large values that a batch can have.
pub(crate) const LARGE_PER_BATCH: usize = 256;

/// Chunks for large values, behind the others. A memtable is full when more than [`LARGE_PER_BATCH`] of them are taken. The
/// rest is for one more group: of one batch, or in the rigs of many with few large values.
const LARGE_CHUNKS: usize = 4 * LARGE_PER_BATCH;

/// Longest chunk: an offset in a chunk has 32 bits.
const CHUNK_LEN_MAX: usize = 2 << 30;

/// Largest footprint that is reserved: more than any batch has (`crate::limits` checks), and far from what the chunks
/// can hold.
pub(crate) const FOOTPRINT_MAX: usize = 64 << 30;

/// A batch of more regions than this gets a chunk of its own length, so that chunks do not run out. Up to here it takes
/// regions from the pool, whose pages are there already.
const SHARED_CHUNKS_MAX: usize = 64;

/// Where a record lies: chunk number in the upper half, byte offset in the lower. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaRef(u64);

impl ArenaRef {
    /// The reference as a word for an atomic slot; it fits in 48 bits.
    pub(crate) fn to_word(self) -> u64 {
        self.0
    }

    /// The reference a slot holds, `None` when it is empty.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// The place `bytes` further on in the same allocation.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// The place `bytes` before in the same allocation.
    pub(crate) fn minus(self, bytes: usize) -> Self {
        Self(self.0 - bytes as u64)
    }
}

/// Memory that allocations will take: what [`Arena::reserve`] makes sure of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Bytes of all allocations, each rounded up to 8.
    pub(crate) bytes: usize,
    /// The largest of them.
    pub(crate) record_max: usize,
    /// How many they are.
    pub(crate) records: usize,
    /// Bytes of values with regions of their own, the fronts of those included.
    pub(crate) large_bytes: usize,
}

/// About what a key takes of the tree: 16 bytes, in leaves that are two thirds full.
const TREE_BYTES_PER_KEY: usize = 24;

impl Footprint {
    /// About how many bytes a memtable takes for it, its tree included.
    pub(crate) fn bytes_in_memtable(self) -> usize {
        self.bytes + self.large_bytes + TREE_BYTES_PER_KEY * self.records
    }

    /// The sum of both.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            record_max: self.record_max.max(other.record_max),
            records: self.records + other.records,
            large_bytes: self.large_bytes + other.large_bytes,
        }
    }
}

/// The arena. See the module's text.
pub(crate) struct Arena {
    /// Filled in order of their numbers. Those behind the current one are reserved for what comes.
    chunks: Box<[OnceLock<Region>; CHUNKS + LARGE_CHUNKS]>,
    /// Where chunks come from and go to.
    pool: Arc<RegionPool>,
    /// Written by the writer only: number of the current chunk and the bytes used in it.
    current: AtomicUsize,
    used: AtomicUsize,
    /// Bytes of the chunks before the current one, and of large values.
    passed: AtomicUsize,
    /// Number of large values.
    large: AtomicUsize,
    /// Bytes of all chunks.
    reserved: AtomicUsize,
}

/// Bytes in front of the first record: reference 0 means none.
const START: usize = 8;

impl Arena {
    /// An arena that grows by the pool's regions, or by larger ones where a batch needs them; `None` without memory for
    /// its table of chunks.
    pub(crate) fn new(pool: Arc<RegionPool>) -> Option<Self> {
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(CHUNKS + LARGE_CHUNKS).ok()?;
        chunks.resize_with(CHUNKS + LARGE_CHUNKS, OnceLock::new);
        let Ok(chunks) = chunks.into_boxed_slice().try_into() else {
            unreachable!("the slice has that many elements")
        };
        Some(Self {
            chunks,
            pool,
            current: AtomicUsize::new(0),
            used: AtomicUsize::new(START),
            passed: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
        })
    }

    /// Bytes taken from the system.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes given out, with what was left over at the ends of chunks.
    pub(crate) fn used(&self) -> usize {
        self.passed.load(Ordering::Relaxed) + self.used.load(Ordering::Relaxed)
    }

    /// Writer: makes sure that the next allocations, as far as `footprint` covers them, need no more memory. Returns
    /// whether the system gave it; if not, the arena is as usable as before.
    #[inline]
    pub(crate) fn reserve(&self, footprint: Footprint) -> bool {
        let chunk = self.chunks[self.current.load(Ordering::Relaxed)].get();
        let has_room = chunk.is_some_and(|c| footprint.bytes <= c.len() - self.used.load(Ordering::Relaxed));
        has_room || self.reserve_chunks(footprint)
    }

    #[cold]
    fn reserve_chunks(&self, footprint: Footprint) -> bool {
        let Footprint { bytes, record_max, .. } = footprint;
        if bytes > FOOTPRINT_MAX {
            return false;
        }
        let mut index = self.current.load(Ordering::Relaxed);
        let in_current = self.chunks[index].get().map(|c| c.len() - self.used.load(Ordering::Relaxed));
        let mut room = in_current.unwrap_or(0);
        index += usize::from(in_current.is_some());
        // A record that does not fit leaves less than its length unused at the end of the chunk before.
        while room < bytes {
            let Some(slot) = self.chunks[..CHUNKS].get(index) else { return false };
            let Some(len) = slot.get().map(Region::len).or_else(|| self.add_chunk(index, footprint)) else {
                return false;
            };
            if len >= bytes + START {
                return true;
            }
            room += len.saturating_sub(record_max + START);
            index += 1;
        }
        true
    }

    /// Writer: the length of the new chunk `index`, made for allocations of `footprint`; `None` without memory.
    #[cold]
    fn add_chunk(&self, index: usize, footprint: Footprint) -> Option<usize> {
        let region_len = self.pool.region_len();
        let bytes = footprint.bytes + START;
        let shares = bytes <= region_len
            || (footprint.record_max <= region_len / 4 && bytes <= SHARED_CHUNKS_MAX * region_len);
        let chunk = if shares { self.pool.try_take()? } else { Region::try_new(bytes.min(CHUNK_LEN_MAX))? };
        let len = chunk.len();
        self.reserved.fetch_add(len, Ordering::Relaxed);
        let is_new = self.chunks[index].set(chunk).is_ok();
        debug_assert!(is_new, "one writer, and the slot was empty");
        Some(len)
    }

    /// Space for `len` bytes, aligned to 8, holding anything, which `fill` (told its place) writes before anybody else
    /// can know of it.
    ///
    /// Requires: one caller at a time, and a reservation that covers it.
    pub(crate) fn allocate(&self, len: usize, fill: impl FnOnce(ArenaRef, &mut [u8])) -> ArenaRef {
        let len = len.next_multiple_of(8);
        let mut index = self.current.load(Ordering::Relaxed);
        let mut start = self.used.load(Ordering::Relaxed);
        let chunk = loop {
            let chunk =
                self.chunks[index].get().expect("the memory of a batch is reserved before it is logged");
            if start + len <= chunk.len() {
                break chunk;
            }
            self.passed.fetch_add(chunk.len(), Ordering::Relaxed);
            index += 1;
            start = 0;
        };
        self.current.store(index, Ordering::Relaxed);
        self.used.store(start + len, Ordering::Relaxed);
        let at = ArenaRef(((index as u64) << 32) | start as u64);
        // SAFETY: `start + len <= chunk.len()` by the check above; the range was never handed out before, because
        // `used` only grows and there is one writer, so nobody else reads or writes it (invariant 1).
        fill(at, unsafe { std::slice::from_raw_parts_mut(chunk.start().as_ptr().add(start), len) });
        at
    }

    /// Writer: makes `region` a chunk with one allocation, all of it, which `fill` completes before anybody else can know of
    /// it.
    ///
    /// Requires: one caller at a time, and that the arena was not full of large values when the group was let in.
    pub(crate) fn adopt(&self, region: Region, fill: impl FnOnce(&mut [u8])) -> ArenaRef {
        let (start, len) = (region.start(), region.len());
        // SAFETY: the region is ours alone until it is published below, and `len` bytes long.
        fill(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) });
        let large = self.large.load(Ordering::Relaxed);
        let is_new = self.chunks[CHUNKS + large].set(region).is_ok();
        debug_assert!(is_new, "one writer, and the slot was empty");
        self.large.store(large + 1, Ordering::Relaxed);
        self.reserved.fetch_add(len, Ordering::Relaxed);
        self.passed.fetch_add(len, Ordering::Relaxed);
        ArenaRef(((CHUNKS + large) as u64) << 32)
    }

    /// Whether another batch might find too few chunks for its large values.
    pub(crate) fn is_full_of_large(&self) -> bool {
        self.large.load(Ordering::Relaxed) > LARGE_PER_BATCH
    }

    /// The `len` bytes at `at`.
    ///
    /// Requires: they lie inside one published allocation and hold no atomic word.
    #[inline]
    pub(crate) fn bytes(&self, at: ArenaRef, len: usize) -> &[u8] {
        let (chunk, offset) = self.locate(at, len);
        // SAFETY: in bounds by `locate`; published bytes are never written again (invariant 1).
        unsafe { std::slice::from_raw_parts(chunk.start().as_ptr().add(offset), len) }
    }

    /// The atomic word at `at`.
    ///
    /// Requires: `at` is a multiple of 8 and every access to these 8 bytes goes through this function.
    #[inline]
    pub(crate) fn word(&self, at: ArenaRef) -> &AtomicU64 {
        let (chunk, offset) = self.locate(at, 8);
        debug_assert_eq!(offset % 8, 0);
        // SAFETY: in bounds by `locate`, aligned because chunks are and `offset` is a multiple of 8; the word is only
        // ever accessed as an atomic (requirement above).
        unsafe { AtomicU64::from_ptr(chunk.start().as_ptr().add(offset).cast()) }
    }

    /// Asks for the cache line at `at` to be fetched.
    #[inline]
    pub(crate) fn prefetch(&self, at: ArenaRef) {
        let (chunk, offset) = self.locate(at, 1);
        prefetch(chunk.start().as_ptr().wrapping_add(offset));
    }

    #[inline]
    fn locate(&self, at: ArenaRef, len: usize) -> (&Region, usize) {
        let offset = (at.0 & 0xffff_ffff) as usize;
        let chunk = self.chunks[(at.0 >> 32) as usize].get().expect("references point to chunks that exist");
        assert!(offset + len <= chunk.len(), "references point into their chunk");
        (chunk, offset)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.iter_mut().filter_map(OnceLock::take) {
            self.pool.give_back(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(chunk_len: usize) -> Arena {
        Arena::new(Arc::new(RegionPool::new(chunk_len, 2))).unwrap()
    }

    /// Reserves for one record of `len` bytes, and allocates it.
    fn allocate(arena: &Arena, len: usize, byte: u8) -> ArenaRef {
        let bytes = len.next_multiple_of(8);
        assert!(arena.reserve(Footprint { bytes, record_max: bytes, records: 1, ..Footprint::default() }));
        arena.allocate(len, |_, b| b.fill(byte))
    }

    #[test]
    fn records_keep_their_bytes_while_others_are_added() {
        let arena = arena(256);
        let refs: Vec<_> = (0u8..100).map(|i| allocate(&arena, usize::from(i) + 1, i)).collect();
        for (i, at) in (0u8..).zip(refs) {
            assert_eq!(arena.bytes(at, usize::from(i) + 1), vec![i; usize::from(i) + 1]);
        }
    }

    #[test]
    fn a_record_larger_than_a_chunk_gets_its_own() {
        let arena = arena(64);
        let large = allocate(&arena, 10_000, 7);
        let small = allocate(&arena, 8, 1);
        assert_eq!(arena.bytes(large, 10_000), vec![7; 10_000]);
        assert_eq!(arena.bytes(small, 8), [1; 8]);
        assert!(arena.reserved() >= 10_000);
    }

    #[test]
    fn words_are_atomic_and_start_as_written() {
        let arena = arena(64);
        let at = allocate(&arena, 16, 0);
        arena.word(at).store(5, Ordering::Release);
        assert_eq!(arena.word(at).load(Ordering::Acquire), 5);
        assert_eq!(arena.word(at.plus(8)).load(Ordering::Acquire), 0);
    }

    /// Allocates records of random lengths up to their reservation, again and again.
    #[test]
    fn a_reservation_covers_records_of_any_lengths() {
        let mut rng = fastrand::Rng::with_seed(11);
        for region_len in [64, 4096, 64 << 10] {
            let mut arena = arena(region_len);
            for round in 0..100 {
                if round % 8 == 0 {
                    arena = self::arena(region_len); // As a memtable is sealed: chunks are enough for some batches.
                }
                let len_max = [16, 200, 5_000][rng.usize(..3)];
                let lens: Vec<_> = (0..rng.usize(1..400)).map(|_| rng.usize(1..=len_max)).collect();
                let rounded = || lens.iter().map(|len| len.next_multiple_of(8));
                let (bytes, record_max) = (rounded().sum(), rounded().max().unwrap_or(0));
                assert!(arena.reserve(Footprint {
                    bytes,
                    record_max,
                    records: lens.len(),
                    ..Footprint::default()
                }));
                let reserved = arena.reserved();
                let refs: Vec<_> = lens.iter().map(|&len| arena.allocate(len, |_, b| b.fill(9))).collect();
                assert_eq!(arena.reserved(), reserved, "nothing more is taken from the system");
                assert!(lens.iter().zip(refs).all(|(&len, at)| arena.bytes(at, len).iter().all(|&b| b == 9)));
                assert!(arena.used() <= reserved);
            }
        }
    }

    #[test]
    fn memory_that_is_not_there_is_refused_and_harms_nothing() {
        let arena = arena(64);
        assert!(!arena.reserve(Footprint {
            bytes: 1 << 60,
            record_max: 1 << 59,
            records: 2,
            ..Footprint::default()
        }));
        let at = allocate(&arena, 24, 3);
        assert_eq!(arena.bytes(at, 24), [3; 24]);
    }
}
