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

/// Chunks an arena can have. A memtable has about 16, and a batch adds at most as many as it has bytes in chunks.
const CHUNKS: usize = 2048;

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
}

/// The arena. See the module's text.
pub(crate) struct Arena {
    chunks: Box<[OnceLock<Region>; CHUNKS]>,
    /// Where chunks come from and go to.
    pool: Arc<RegionPool>,
    /// Written by the writer only: number of the current chunk and the bytes used in it.
    current: AtomicUsize,
    used: AtomicUsize,
    /// Bytes of all chunks.
    reserved: AtomicUsize,
}

impl Arena {
    /// An arena that grows by the pool's regions (or one of its own for a record that is larger).
    pub(crate) fn new(pool: Arc<RegionPool>) -> Self {
        let chunks: Box<[OnceLock<Region>]> = (0..CHUNKS).map(|_| OnceLock::new()).collect();
        let Ok(chunks) = chunks.try_into() else { unreachable!("the slice has CHUNKS elements") };
        Self {
            chunks,
            pool,
            current: AtomicUsize::new(0),
            used: AtomicUsize::new(8), // Reference 0 means none.
            reserved: AtomicUsize::new(0),
        }
    }

    /// Bytes taken from the system.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes given out, with what was left over at the ends of chunks.
    pub(crate) fn used(&self) -> usize {
        let current = self.current.load(Ordering::Relaxed);
        let in_current = self.chunks[current].get().map_or(0, Region::len);
        self.reserved() - in_current + self.used.load(Ordering::Relaxed).min(in_current)
    }

    /// Space for `len` bytes, aligned to 8, holding anything, which `fill` (told its place) writes before anybody else
    /// can know of it.
    ///
    /// Requires: one caller at a time, and room for another chunk (see `CHUNKS`).
    pub(crate) fn allocate(&self, len: usize, fill: impl FnOnce(ArenaRef, &mut [u8])) -> ArenaRef {
        let len = len.next_multiple_of(8);
        let mut index = self.current.load(Ordering::Relaxed);
        let mut start = self.used.load(Ordering::Relaxed);
        let fits = self.chunks[index]
            .get()
            .map_or(start + len <= self.pool.region_len(), |c| start + len <= c.len());
        if !fits {
            index += 1;
            start = 0;
            assert!(index < CHUNKS, "a memtable is sealed long before its arena is full");
        }
        let chunk = self.chunks[index].get_or_init(|| {
            let fits = start + len <= self.pool.region_len();
            let chunk = if fits { self.pool.take() } else { Region::new(start + len) };
            self.reserved.fetch_add(chunk.len(), Ordering::Relaxed);
            chunk
        });
        self.current.store(index, Ordering::Relaxed);
        self.used.store(start + len, Ordering::Relaxed);
        let at = ArenaRef(((index as u64) << 32) | start as u64);
        // SAFETY: `start + len <= chunk.len()` by the check above; the range was never handed out before, because
        // `used` only grows and there is one writer, so nobody else reads or writes it (invariant 1).
        fill(at, unsafe { std::slice::from_raw_parts_mut(chunk.start().as_ptr().add(start), len) });
        at
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
        Arena::new(Arc::new(RegionPool::new(chunk_len, 2)))
    }

    #[test]
    fn records_keep_their_bytes_while_others_are_added() {
        let arena = arena(256);
        let refs: Vec<_> = (0u8..100)
            .map(|i| arena.allocate(usize::from(i) + 1, |_, b| b[..=usize::from(i)].fill(i)))
            .collect();
        for (i, at) in (0u8..).zip(refs) {
            assert_eq!(arena.bytes(at, usize::from(i) + 1), vec![i; usize::from(i) + 1]);
        }
    }

    #[test]
    fn a_record_larger_than_a_chunk_gets_its_own() {
        let arena = arena(64);
        let large = arena.allocate(10_000, |_, b| b.fill(7));
        let small = arena.allocate(8, |_, b| b.fill(1));
        assert_eq!(arena.bytes(large, 10_000), vec![7; 10_000]);
        assert_eq!(arena.bytes(small, 8), [1; 8]);
        assert!(arena.reserved() >= 10_000);
    }

    #[test]
    fn words_are_atomic_and_start_as_written() {
        let arena = arena(64);
        let at = arena.allocate(16, |_, b| b.fill(0));
        arena.word(at).store(5, Ordering::Release);
        assert_eq!(arena.word(at).load(Ordering::Acquire), 5);
        assert_eq!(arena.word(at.plus(8)).load(Ordering::Acquire), 0);
    }
}
