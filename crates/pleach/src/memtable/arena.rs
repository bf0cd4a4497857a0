//! The arena: append-only memory for a memtable's records.
//!
//! An [`ArenaRef`] names a record, which stays in its place until the arena is dropped. The tree and the hash index publish
//! references with release stores, so a reader that loads a reference also sees the record's bytes.
//!
//! # Invariants
//! 1. *Written before shared*: the bytes of an allocation change only until its reference is shared: until
//!    [`ArenaWriter::allocate`] or [`Unshared::share`] returns it. Afterwards only its atomic words change.
//! 2. *In bounds*: every reference points into an allocation of its memtable's arena. References never come from disk. Only
//!    the modules of the memtable can make one; none leaves them.
//! 3. *Own bytes*: no byte is given to two allocations. At most one [`ArenaWriter`] at a time allocates at the arena's position
//!    ([`Arena::writer`]); the others have a [`Claim`] each, bytes behind which the position has moved on.
//! 4. *Unshared*: nobody but its owner knows the reference in an [`Unshared`].
//!
//! # Concurrency
//! One writer at the position, any number of claims, and any number of readers, lock-free.

#![expect(
    unsafe_code,
    reason = "records are shared with readers while the writer appends others beside them"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use pleach_env::memory::{Region, RegionPool, prefetch, prefetch_to_write};
use pleach_env::sync::OwnLine;

/// Chunks an arena can have, without those of large values. A memtable becomes immutable after about 256 of them. A batch
/// adds at most [`SHARED_CHUNKS_MAX`] times 4/3 chunks, or one for each GiB of its footprint.
const CHUNKS: usize = if cfg!(miri) { 32 } else { 1024 };

/// Large values that a batch can have.
pub(crate) const LARGE_PER_BATCH: usize = 256;

/// Chunks for large values, after the others. A memtable is full when more than [`LARGE_PER_BATCH`] of them are in use. The
/// rest are for one more commit group: a single batch, or, in the rigs, many batches with few large values each.
const LARGE_CHUNKS: usize = if cfg!(miri) { 32 } else { 4 * LARGE_PER_BATCH };

/// Longest chunk: an offset in a chunk has 32 bits.
const CHUNK_LEN_MAX: usize = 2 << 30;

/// Largest footprint that can be reserved: more than any batch has (checked in `operations`), and far less than the chunks
/// can hold.
pub(crate) const FOOTPRINT_MAX: usize = 64 << 30;

/// A batch that needs more regions than this gets one chunk of its own length, so that chunks do not run out. A smaller batch
/// takes regions from the pool, whose pages are already mapped.
const SHARED_CHUNKS_MAX: usize = 64;

/// Bytes of a claim that are prefetched at most (arbitrary).
const PREFETCHED_MAX: usize = 512;

/// Where a record lies: chunk number in the upper half, byte offset in the lower. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArenaRef(u64);

impl ArenaRef {
    /// The reference as a word for an atomic slot; it fits in 48 bits.
    pub(super) fn to_word(self) -> u64 {
        self.0
    }

    /// The reference in a slot; `None` when the slot is empty.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// The place `bytes` after this one in the same allocation.
    pub(super) fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// The place `bytes` before this one in the same allocation.
    pub(super) fn minus(self, bytes: usize) -> Self {
        Self(self.0 - bytes as u64)
    }
}

/// Memory that allocations will take, for [`ArenaWriter::reserve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Bytes of all allocations, each rounded up to 8.
    pub(crate) bytes: usize,
    /// Bytes of the largest allocation.
    pub(crate) record_max: usize,
    /// Number of keys.
    pub(crate) records: usize,
    /// Bytes of the values with regions of their own, with their fronts ([`super::LARGE_FRONT`]).
    pub(crate) large_bytes: usize,
}

/// About the bytes of the tree that a key takes: 16, in leaves that are two thirds full.
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
pub(super) struct Arena {
    /// Filled in the order of their numbers. Chunks after the current one are reserved but unused.
    chunks: Box<[OnceLock<Region>; CHUNKS + LARGE_CHUNKS]>,
    /// Gives the chunks and takes them back.
    pool: Arc<RegionPool>,
    position: OwnLine<Position>,
}

/// Where the arena's free memory begins. Readers use only `Arena::chunks`, and each write changes this.
struct Position {
    /// Number of the current chunk. The writer alone changes this and the counters below.
    current: AtomicUsize,
    /// Bytes used in the current chunk.
    used: AtomicUsize,
    /// Bytes of the chunks before the current one, and of large values.
    passed: AtomicUsize,
    /// Number of large values.
    large: AtomicUsize,
    /// Bytes of all chunks.
    reserved: AtomicUsize,
    /// The end of the last claim that was not used up ([`GivenBack`]); 0 for none. Inserts store it one at a time. Who claims
    /// next takes it, if it ends at the position, and clears it. A word never fits twice: it is stored once, each claim takes
    /// bytes, and so the position does not come back to an older end, except when a claim is undone. Nobody has the bytes of
    /// that one, and what it took back is cleared. If an insert stores while another claim clears, one value is lost, and so are
    /// the bytes that it gave back.
    given_back: AtomicU64,
}

/// Bytes before the first record: reference 0 means none.
const START: usize = 8;

impl Arena {
    /// An arena that grows by regions of the pool, or by larger ones where a batch needs them; `None` without memory for its
    /// table of chunks.
    pub(super) fn new(pool: Arc<RegionPool>) -> Option<Self> {
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(CHUNKS + LARGE_CHUNKS).ok()?;
        chunks.resize_with(CHUNKS + LARGE_CHUNKS, OnceLock::new);
        let Ok(chunks) = chunks.into_boxed_slice().try_into() else {
            unreachable!("the slice has that many elements")
        };
        let position = Position {
            current: AtomicUsize::new(0),
            used: AtomicUsize::new(START),
            passed: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            given_back: AtomicU64::new(0),
        };
        Some(Self { chunks, pool, position: OwnLine(position) })
    }

    /// Where the next claim in `chunk` begins: at `used`, or before what was given back there.
    #[inline]
    fn take_back(&self, chunk: usize, used: usize) -> usize {
        let word = self.position.given_back.load(Ordering::Relaxed);
        if word == 0 {
            return used;
        }
        self.position.given_back.store(0, Ordering::Relaxed);
        let unused = (word & GivenBack::UNUSED_MAX) as usize * 8;
        if word == GivenBack::word(chunk, used - unused.min(used), used) { used - unused } else { used }
    }

    /// The right to allocate at the arena's position.
    ///
    /// # Safety
    /// No other such right to this arena exists (invariant 3).
    #[inline]
    pub(super) unsafe fn writer(&self) -> ArenaWriter<'_> {
        ArenaWriter { arena: self, claim: None }
    }

    /// Bytes taken from the system.
    pub(super) fn reserved(&self) -> usize {
        self.position.reserved.load(Ordering::Relaxed)
    }

    /// Bytes allocated, and bytes left over at the ends of chunks.
    pub(super) fn used(&self) -> usize {
        self.position.passed.load(Ordering::Relaxed) + self.position.used.load(Ordering::Relaxed)
    }

    /// Whether the next batch might find too few chunks for its large values.
    pub(super) fn is_full_of_large(&self) -> bool {
        self.position.large.load(Ordering::Relaxed) > LARGE_PER_BATCH
    }

    /// The `len` bytes at `at`.
    ///
    /// # Safety
    /// They lie in one allocation of this arena whose reference has been published, and hold no atomic word.
    #[inline]
    pub(super) unsafe fn bytes(&self, at: ArenaRef, len: usize) -> &[u8] {
        let (chunk, offset) = self.locate(at, len);
        // SAFETY: `locate` checked the bounds; published bytes never change (invariant 1).
        unsafe { std::slice::from_raw_parts(chunk.start().as_ptr().add(offset), len) }
    }

    /// The atomic word at `at`.
    ///
    /// # Safety
    /// `at` is a multiple of 8 in a published allocation of this arena, and only this function gives access to its 8 bytes.
    #[inline]
    pub(super) unsafe fn word(&self, at: ArenaRef) -> &AtomicU64 {
        let (chunk, offset) = self.locate(at, 8);
        debug_assert_eq!(offset % 8, 0);
        // SAFETY: `locate` checked the bounds; chunks are aligned to 4096 and `offset` to 8; every access is atomic.
        unsafe { AtomicU64::from_ptr(chunk.start().as_ptr().add(offset).cast()) }
    }

    /// Moves the position by an allocation of `len` bytes; returns its chunk and its start.
    #[inline]
    fn take(&self, len: usize) -> (usize, usize) {
        let mut index = self.position.current.load(Ordering::Relaxed);
        let mut start = self.position.used.load(Ordering::Relaxed);
        loop {
            let chunk =
                self.chunks[index].get().expect("the memory of a batch is reserved before it is logged");
            if start + len <= chunk.len() {
                break;
            }
            self.position.passed.fetch_add(chunk.len(), Ordering::Relaxed);
            index += 1;
            start = 0;
        }
        self.position.current.store(index, Ordering::Relaxed);
        self.position.used.store(start + len, Ordering::Relaxed);
        (index, start)
    }

    /// Prefetches the cache line that is so many bytes behind `at`.
    #[inline]
    pub(super) fn prefetch(&self, at: ArenaRef, behind: usize) {
        let (chunk, offset) = self.locate(at, 1);
        prefetch(chunk.start().as_ptr().wrapping_add(offset + behind));
    }

    /// Lets `fill` write `len` bytes from `start` on in a chunk; returns their reference.
    ///
    /// # Safety
    /// They lie in the chunk, and no other thread reads or writes them.
    #[inline]
    unsafe fn fill(
        &self,
        chunk: usize,
        start: usize,
        len: usize,
        fill: impl FnOnce(ArenaRef, &mut [u8]),
    ) -> ArenaRef {
        let memory = self.chunks[chunk].get().expect("allocations are in chunks that exist");
        let at = ArenaRef(((chunk as u64) << 32) | start as u64);
        // SAFETY: as the caller promises.
        fill(at, unsafe { std::slice::from_raw_parts_mut(memory.start().as_ptr().add(start), len) });
        at
    }

    #[inline]
    fn locate(&self, at: ArenaRef, len: usize) -> (&Region, usize) {
        let offset = (at.0 & 0xffff_ffff) as usize;
        let chunk = self.chunks[(at.0 >> 32) as usize].get().expect("references point to chunks that exist");
        assert!(offset + len <= chunk.len(), "references point into their chunk");
        (chunk, offset)
    }
}

/// The right to write to an arena. It is neither `Clone` nor `Copy`, and only the arena makes one.
pub(super) struct ArenaWriter<'a> {
    arena: &'a Arena,
    /// Where allocations come from; `None`: from the arena's position.
    claim: Option<Claim<'a>>,
}

/// Bytes of a chunk that the inserts of one batch may allocate. It is neither `Clone` nor `Copy`.
pub(super) struct Claim<'a> {
    arena: &'a Arena,
    chunk: usize,
    start: usize,
    end: usize,
}

/// A finished allocation that only its owner knows (invariant 4), so that it may change it. It is neither `Clone` nor `Copy`.
pub(super) struct Unshared {
    at: ArenaRef,
    len: u32,
}

impl<'a> ArenaWriter<'a> {
    /// The arena, for reads.
    #[inline]
    pub(super) fn arena(&self) -> &'a Arena {
        self.arena
    }

    /// Claims bytes of the current chunk, a multiple of 8, for another writer; `None` if it has too few.
    #[inline]
    pub(super) fn claim(&mut self, bytes: usize) -> Option<Claim<'a>> {
        debug_assert!(bytes > 0, "a claim of nothing would end where the one before it does");
        let arena = self.arena;
        let chunk = arena.position.current.load(Ordering::Relaxed);
        let region = arena.chunks[chunk].get()?;
        let start = arena.take_back(chunk, arena.position.used.load(Ordering::Relaxed));
        let end = start + bytes;
        if end > region.len() {
            return None;
        }
        arena.position.used.store(end, Ordering::Relaxed);
        prefetch_to_write(region.start().as_ptr().wrapping_add(start), bytes.min(PREFETCHED_MAX));
        Some(Claim { arena, chunk, start, end })
    }

    /// Undoes the newest claim, of which nothing was allocated: the next one begins where it began.
    pub(super) fn undo_claim(&mut self, Claim { arena, chunk, start, end }: Claim<'_>) {
        let Position { current, used, .. } = &*arena.position;
        let is_newest = (current.load(Ordering::Relaxed), used.load(Ordering::Relaxed)) == (chunk, end);
        debug_assert!(std::ptr::eq(self.arena, arena) && is_newest);
        if is_newest {
            used.store(start, Ordering::Relaxed);
        }
    }

    /// Gives back what is left of a claim. It is used again if no other claim was made since.
    #[inline]
    pub(super) fn give_back(self) {
        if let Some(Claim { arena, chunk, start, end }) = self.claim
            && start < end
        {
            arena.position.given_back.store(GivenBack::word(chunk, start, end), Ordering::Relaxed);
        }
    }

    /// Takes from the system the memory for allocations of `footprint`. Returns whether the system gave it; if not, the
    /// arena is as usable as before.
    #[inline]
    pub(super) fn reserve(&mut self, footprint: Footprint) -> bool {
        let arena = self.arena;
        let chunk = arena.chunks[arena.position.current.load(Ordering::Relaxed)].get();
        let has_room =
            chunk.is_some_and(|c| footprint.bytes <= c.len() - arena.position.used.load(Ordering::Relaxed));
        has_room || self.reserve_chunks(footprint)
    }

    #[cold]
    fn reserve_chunks(&mut self, footprint: Footprint) -> bool {
        let Footprint { bytes, record_max, .. } = footprint;
        if bytes > FOOTPRINT_MAX {
            return false;
        }
        let arena = self.arena;
        let mut index = arena.position.current.load(Ordering::Relaxed);
        let in_current =
            arena.chunks[index].get().map(|c| c.len() - arena.position.used.load(Ordering::Relaxed));
        let mut room = in_current.unwrap_or(0);
        index += usize::from(in_current.is_some());
        // A record that does not fit leaves less than its length unused at the end of the chunk before.
        while room < bytes {
            let Some(slot) = arena.chunks[..CHUNKS].get(index) else { return false };
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

    /// Makes chunk `index` for allocations of `footprint`; returns its length, or `None` without memory.
    #[cold]
    fn add_chunk(&mut self, index: usize, footprint: Footprint) -> Option<usize> {
        let pool = &self.arena.pool;
        let region_len = pool.region_len();
        let bytes = footprint.bytes + START;
        let shares = bytes <= region_len
            || (footprint.record_max <= region_len / 4 && bytes <= SHARED_CHUNKS_MAX * region_len);
        let chunk = if shares { pool.try_take()? } else { Region::try_new(bytes.min(CHUNK_LEN_MAX))? };
        let len = chunk.len();
        self.arena.position.reserved.fetch_add(len, Ordering::Relaxed);
        let is_new = self.arena.chunks[index].set(chunk).is_ok();
        debug_assert!(is_new, "one writer, and the slot was empty");
        Some(len)
    }

    /// Allocates `len` bytes, aligned to 8, which hold anything. `fill` gets their place and writes them before the
    /// reference is returned.
    ///
    /// Requires: a reservation that covers it.
    pub(super) fn allocate(&mut self, len: usize, fill: impl FnOnce(ArenaRef, &mut [u8])) -> ArenaRef {
        if let Some(claim) = &mut self.claim {
            return claim.allocate(len, fill).share();
        }
        let len = len.next_multiple_of(8);
        let (chunk, start) = self.arena.take(len);
        // SAFETY: `take` has compared the range with the chunk's end. It was never allocated before, because the position only
        // moves up over what was allocated, and nobody else has these bytes (invariant 3).
        unsafe { self.arena.fill(chunk, start, len, fill) }
    }

    /// Lets `change` finish an allocation before others know it, and returns what it returns.
    ///
    /// # Safety
    /// The allocation was made by a claim of this arena.
    #[inline]
    pub(super) unsafe fn finish(
        &mut self,
        unshared: Unshared,
        change: impl FnOnce(ArenaRef, &mut [u8]) -> ArenaRef,
    ) -> ArenaRef {
        let len = unshared.len as usize;
        let at = unshared.share();
        let (chunk, start) = self.arena.locate(at, len);
        // SAFETY: `locate` checked the bounds; no other thread knows these bytes (invariant 4).
        change(at, unsafe { std::slice::from_raw_parts_mut(chunk.start().as_ptr().add(start), len) })
    }

    /// Makes `region` a chunk with one allocation. `fill` writes to it before the reference is returned.
    ///
    /// Requires: the arena was not full of large values when the group was admitted.
    pub(super) fn adopt(&mut self, region: Region, fill: impl FnOnce(&mut [u8])) -> ArenaRef {
        let arena = self.arena;
        let (start, len) = (region.start(), region.len());
        // SAFETY: the region is `len` bytes long, and no other thread knows it before it is published below.
        fill(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) });
        let large = arena.position.large.load(Ordering::Relaxed);
        let is_new = arena.chunks[CHUNKS + large].set(region).is_ok();
        debug_assert!(is_new, "one writer, and the slot was empty");
        arena.position.large.store(large + 1, Ordering::Relaxed);
        arena.position.reserved.fetch_add(len, Ordering::Relaxed);
        arena.position.passed.fetch_add(len, Ordering::Relaxed);
        ArenaRef(((CHUNKS + large) as u64) << 32)
    }
}

/// What is left of a claim, as a word: chunk, end and length of the rest, both in units of 8 bytes.
struct GivenBack;

impl GivenBack {
    const UNUSED_MAX: u64 = (1 << 24) - 1;

    /// 0 if a length does not fit.
    #[inline]
    fn word(chunk: usize, start: usize, end: usize) -> u64 {
        let unused = (end - start) as u64 / 8;
        if unused > Self::UNUSED_MAX { 0 } else { (chunk as u64) << 53 | (end as u64 / 8) << 24 | unused }
    }
}

impl<'a> Claim<'a> {
    /// The right to insert with these bytes, in turn.
    #[inline]
    pub(super) fn into_writer(self) -> ArenaWriter<'a> {
        ArenaWriter { arena: self.arena, claim: Some(self) }
    }

    /// As [`ArenaWriter::allocate`]; it does not have to be this insert's turn.
    #[inline]
    pub(super) fn allocate(&mut self, len: usize, fill: impl FnOnce(ArenaRef, &mut [u8])) -> Unshared {
        let len = len.next_multiple_of(8);
        let start = self.start;
        assert!(start + len <= self.end, "a claim covers the allocations of its inserts");
        self.start += len;
        // SAFETY: the claim's end was compared with the chunk's. The start only moves up over what was allocated, and nobody
        // else has these bytes (invariant 3).
        let at = unsafe { self.arena.fill(self.chunk, start, len, fill) };
        Unshared { at, len: u32::try_from(len).expect("an offset in a chunk has 32 bits") }
    }
}

impl Unshared {
    /// Its reference, for others to know.
    #[inline]
    pub(super) fn share(self) -> ArenaRef {
        self.at
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

    fn footprint(lens: &[usize]) -> Footprint {
        let rounded = || lens.iter().map(|len| len.next_multiple_of(8));
        let (bytes, record_max) = (rounded().sum(), rounded().max().unwrap_or(0));
        Footprint { bytes, record_max, records: lens.len(), ..Footprint::default() }
    }

    fn writer(arena: &Arena) -> ArenaWriter<'_> {
        // SAFETY: each test has one thread, and uses a writer before it makes the next one.
        unsafe { arena.writer() }
    }

    /// Reserves memory for one record of `len` bytes, and allocates it.
    fn allocate(arena: &Arena, len: usize, byte: u8) -> ArenaRef {
        assert!(writer(arena).reserve(footprint(&[len])));
        writer(arena).allocate(len, |_, b| b.fill(byte))
    }

    fn bytes(arena: &Arena, at: ArenaRef, len: usize) -> &[u8] {
        // SAFETY: the tests ask for bytes that they allocated, without words.
        unsafe { arena.bytes(at, len) }
    }

    #[test]
    fn records_keep_their_bytes_while_others_are_added() {
        let arena = arena(256);
        let refs: Vec<_> = (0u8..100).map(|i| allocate(&arena, usize::from(i) + 1, i)).collect();
        for (i, at) in (0u8..).zip(refs) {
            assert_eq!(bytes(&arena, at, usize::from(i) + 1), vec![i; usize::from(i) + 1]);
        }
    }

    #[test]
    fn a_record_larger_than_a_chunk_gets_its_own() {
        let arena = arena(64);
        let large = allocate(&arena, 10_000, 7);
        let small = allocate(&arena, 8, 1);
        assert_eq!(bytes(&arena, large, 10_000), vec![7; 10_000]);
        assert_eq!(bytes(&arena, small, 8), [1; 8]);
        assert!(arena.reserved() >= 10_000);
    }

    #[test]
    fn words_are_atomic_and_start_as_written() {
        let arena = arena(64);
        let at = allocate(&arena, 16, 0);
        // SAFETY: both words are used as words only.
        let (first, second) = unsafe { (arena.word(at), arena.word(at.plus(8))) };
        first.store(5, Ordering::Release);
        assert_eq!((first.load(Ordering::Acquire), second.load(Ordering::Acquire)), (5, 0));
    }

    /// Allocates records of random lengths up to their reservation, again and again.
    #[test]
    fn a_reservation_covers_records_of_any_lengths() {
        let (rounds, records_max) = if cfg!(miri) { (2, 15) } else { (100, 400) };
        let mut rng = fastrand::Rng::with_seed(11);
        for region_len in [64, 4096, 64 << 10] {
            let mut arena = arena(region_len);
            for round in 0..rounds {
                if round % 8 == 0 {
                    arena = self::arena(region_len); // As a memtable becomes immutable: it has chunks for some batches.
                }
                let len_max = [16, 200, 5_000][rng.usize(..3)];
                let lens: Vec<_> = (0..rng.usize(1..records_max)).map(|_| rng.usize(1..=len_max)).collect();
                let mut writer = writer(&arena);
                assert!(writer.reserve(footprint(&lens)));
                let reserved = arena.reserved();
                let refs: Vec<_> = lens.iter().map(|&len| writer.allocate(len, |_, b| b.fill(9))).collect();
                assert_eq!(arena.reserved(), reserved, "nothing more is taken from the system");
                assert!(lens.iter().zip(refs).all(|(&len, at)| bytes(&arena, at, len) == vec![9; len]));
                assert!(arena.used() <= reserved);
            }
        }
    }

    #[test]
    fn memory_that_is_not_there_is_refused_and_harms_nothing() {
        let arena = arena(64);
        assert!(!writer(&arena).reserve(footprint(&[1 << 59, 1 << 59])));
        let at = allocate(&arena, 24, 3);
        assert_eq!(bytes(&arena, at, 24), [3; 24]);
    }
}
