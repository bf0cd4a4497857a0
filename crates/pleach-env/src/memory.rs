//! Anonymous memory in large pieces, backed by huge pages if the system has them.
//!
//! Memtable arenas, the slab of block frames and the cache of values use it. Under nested paging a TLB miss costs as much as a
//! cache miss, and the first touch of a 4 KiB page costs more than filling it.

#![expect(unsafe_code, reason = "the one place that asks the system for memory, and one that prefetches it")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::read_queue::ReadBuffer;

/// Pieces at least this long are mapped and advised for huge pages; shorter ones come from the allocator.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;

/// A piece of zeroed memory at a fixed address, aligned to 4096, freed on drop.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    mapped: bool,
}

impl Region {
    /// `len` zeroed bytes; `None` if the system has no memory for them.
    ///
    /// Requires: `len` is not zero.
    pub fn try_new(len: usize) -> Option<Self> {
        Self::try_with(len, MapFlags::PRIVATE)
    }

    /// `len` zeroed bytes of address space. The system gives memory only for pages that are used, so `len` may be far more than
    /// the machine has. `None` if the process may not have so much address space.
    ///
    /// Requires: `len` is not zero.
    pub fn try_new_lazy(len: usize) -> Option<Self> {
        Self::try_with(len, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn try_with(len: usize, flags: MapFlags) -> Option<Self> {
        assert_ne!(len, 0, "a region is not empty");
        if len >= HUGE_PAGE
            && !cfg!(miri)
            && let Some(start) = map(len, flags)
        {
            return Some(Self { start, len, mapped: true });
        }
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(Self::layout(len)) })?;
        Some(Self { start, len, mapped: false })
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 4096).expect("a region is shorter than isize::MAX")
    }

    /// Address of the first byte, valid as long as the region.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always `false`: a region is not empty.
    pub fn is_empty(&self) -> bool {
        false
    }
}

fn map(len: usize, flags: MapFlags) -> Option<NonNull<u8>> {
    // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
    let start =
        unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }
            .ok()?;
    // SAFETY: the range is the mapping just made; the advice does not change its contents.
    let _best_effort = unsafe { madvise(start, len, Advice::LinuxHugepage) };
    NonNull::new(start.cast())
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: mapped in `map` with this length; the owner is being dropped, so no reference to it is left.
            let _unmapping_own_memory = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        } else {
            // SAFETY: allocated in `try_with` with this layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        }
    }
}

// SAFETY: the memory is the region's own, and it stays where it is when the value moves. Who reads it by [`Region::start`]
// meanwhile uses `unsafe`.
unsafe impl ReadBuffer for Region {
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the region is borrowed mutably, and all of it is initialized.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

// SAFETY: a region owns its memory. Access to it needs `unsafe`, where the user ensures that sharing is sound.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Bytes in a region of their own, behind a front of zeros that the region's next owner fills.
pub struct RegionBytes {
    region: Region,
    front: usize,
}

impl RegionBytes {
    /// A copy of `bytes` behind `front` zeros; `None` if the system has no memory for it.
    pub fn try_copy(front: usize, bytes: &[u8]) -> Option<Self> {
        let region = Region::try_new((front + bytes.len()).max(1))?;
        // SAFETY: the region is ours alone and at least `front + bytes.len()` bytes long.
        let place =
            unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr().add(front), bytes.len()) };
        place.copy_from_slice(bytes);
        Some(Self { region, front })
    }

    /// The bytes, without the front.
    pub fn bytes(&self) -> &[u8] {
        let (start, len) = (self.region.start().as_ptr(), self.region.len());
        // SAFETY: the region is ours alone, no other thread changes it, and `front` is no more than its length.
        let all = unsafe { std::slice::from_raw_parts(start, len) };
        &all[self.front..]
    }

    /// The region: the front, then the bytes.
    pub fn into_region(self) -> Region {
        self.region
    }
}

/// Regions for reuse. The pages of a used region are in memory; the first touch of a new page costs more than filling it.
pub struct RegionPool {
    region_len: usize,
    kept_max: usize,
    kept: parking_lot::Mutex<Vec<Region>>,
    /// Bytes of `kept`. Relaxed: it orders no other memory.
    kept_bytes: AtomicUsize,
}

impl RegionPool {
    /// A pool of regions of `region_len` bytes, of which it keeps at most `kept_max`.
    pub fn new(region_len: usize, kept_max: usize) -> Self {
        let kept = parking_lot::Mutex::new(Vec::new());
        Self { region_len, kept_max, kept, kept_bytes: AtomicUsize::new(0) }
    }

    /// Length of its regions.
    pub fn region_len(&self) -> usize {
        self.region_len
    }

    /// A region, which is zeroed or holds what its last owner wrote; `None` if the system has no memory.
    pub fn try_take(&self) -> Option<Region> {
        let kept = self.kept.lock().pop();
        if kept.is_some() {
            self.kept_bytes.fetch_sub(self.region_len, Ordering::Relaxed);
        }
        kept.or_else(|| Region::try_new(self.region_len))
    }

    /// Bytes of the regions that it keeps.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Frees the regions that it keeps.
    pub fn clear(&self) {
        let freed = std::mem::take(&mut *self.kept.lock());
        self.kept_bytes.fetch_sub(freed.len() * self.region_len, Ordering::Relaxed);
    }

    /// Gives a region back. It is freed if it has another length or the pool is full.
    pub fn give_back(&self, region: Region) {
        let mut kept = self.kept.lock();
        if region.len() == self.region_len && kept.len() < self.kept_max {
            kept.push(region);
            self.kept_bytes.fetch_add(self.region_len, Ordering::Relaxed);
        }
    }
}

/// Zeroed atomic words in a region of their own.
pub struct AtomicWords {
    region: Region,
    len: usize,
}

impl AtomicWords {
    /// `len` words, all zero; `None` if the system has no memory for them, or a test
    /// says so (failpoint `memory.words`).
    pub fn try_new(len: usize) -> Option<Self> {
        if crate::failpoint::skipped("memory.words") {
            return None;
        }
        Some(Self { region: Region::try_new(len * size_of::<AtomicU64>())?, len })
    }
}

impl std::ops::Deref for AtomicWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the region is ours, aligned to 4096, zeroed (any bytes are a valid word) and `len` words long.
        unsafe { std::slice::from_raw_parts(self.region.start().as_ptr().cast(), self.len) }
    }
}

/// Gives the memory of `pages` back to the system. Their bytes become zero; the next access gets memory again.
///
/// Requires: `pages` begins and ends with whole pages of 4096 bytes.
pub fn discard(pages: &mut [u8]) {
    let start = pages.as_mut_ptr();
    assert!(start.addr().is_multiple_of(4096) && pages.len().is_multiple_of(4096), "whole pages");
    // SAFETY: the pages are borrowed mutably, and all bytes of the slice stay initialized, as zeros.
    let discarded =
        !cfg!(miri) && unsafe { madvise(start.cast(), pages.len(), Advice::LinuxDontNeed) }.is_ok();
    if !discarded {
        pages.fill(0);
    }
}

/// Asks the system for the memory of a part of `region`, so that the first access to it does not wait. Best effort. The bytes do
/// not change, so others may use them meanwhile.
///
/// Requires: `part` is inside of the region.
pub fn populate(region: &Region, part: std::ops::Range<usize>) {
    assert!(part.start <= part.end && part.end <= region.len(), "a part of the region");
    if region.mapped && !part.is_empty() {
        // SAFETY: the pages are inside of the region, by the check above; the advice does not change their bytes.
        let _best_effort = unsafe {
            madvise(region.start.as_ptr().add(part.start).cast(), part.len(), Advice::LinuxPopulateWrite)
        };
    }
}

/// Prefetches the cache line at `address`. Harmless for any address.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Prefetches the cache lines of `len` bytes from `address` on, to write them. Harmless for any address. For memory that is
/// likely not in the processor's cache: its lines come at the same time, where stores would wait for one after the other.
#[inline]
pub fn prefetch_to_write(address: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let first = address.wrapping_sub(address.addr() % LINE);
        for at in (0..address.addr() % LINE + len).step_by(LINE) {
            // SAFETY: a prefetch is a hint and never faults.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(
                    first.wrapping_add(at).cast(),
                );
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (address, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lazy_region_may_exceed_the_memory_but_not_the_addresses() {
        let region = Region::try_new_lazy(4 << 40).expect("the process has 128 TiB of addresses");
        assert_eq!(region.len(), 4 << 40);
        // SAFETY: the region is ours alone and longer than that.
        let last = unsafe { region.start().as_ptr().add((4 << 40) - 1).as_mut() };
        *last.expect("not null") = 1;
        assert!(Region::try_new(1 << 60).is_none() && Region::try_new_lazy(1 << 60).is_none());
    }

    #[test]
    fn regions_are_zeroed_and_writable_at_both_sizes() {
        for len in [100, 3 << 20] {
            let region = Region::try_new(len).expect("there is so much memory");
            // SAFETY: the region is ours alone and `len` bytes long.
            let bytes = unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), region.len()) };
            assert!(bytes.iter().all(|&b| b == 0));
            bytes[len - 1] = 1;
            assert!(region.start().as_ptr().addr().is_multiple_of(4096));
        }
    }

    #[test]
    fn copied_bytes_stand_behind_a_front_of_zeros() {
        for len in [0, 1, 100, 3 << 20] {
            let copy = RegionBytes::try_copy(36, &vec![7; len]).expect("there is so much memory");
            assert!(copy.bytes() == vec![7; len]);
            assert_eq!(copy.into_region().len(), 36 + len);
        }
    }

    #[test]
    fn discarded_pages_are_zero_and_the_others_stay() {
        let mut region = Region::try_new(3 << 20).expect("there is so much memory");
        let bytes = region.bytes_mut();
        bytes.fill(7);
        discard(&mut bytes[4096..3 * 4096]);
        let zeros: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] == 0).collect();
        assert_eq!(zeros, (4096..3 * 4096).collect::<Vec<_>>());
        bytes.fill(8);
    }

    #[test]
    fn populated_pages_keep_their_bytes() {
        let mut region = Region::try_new(8 << 20).expect("there is so much memory");
        region.bytes_mut()[5 << 20] = 7;
        populate(&region, 0..0);
        populate(&region, 4 << 20..8 << 20);
        let bytes = region.bytes_mut();
        assert_eq!(bytes.iter().position(|byte| *byte != 0), Some(5 << 20));
    }

    #[test]
    fn a_pool_keeps_regions_until_it_is_cleared() {
        let pool = RegionPool::new(4096, 2);
        let taken = [(); 3].map(|()| pool.try_take().expect("there is so much memory"));
        assert_eq!(pool.kept_bytes(), 0);
        for region in taken {
            pool.give_back(region);
        }
        assert_eq!(pool.kept_bytes(), 2 * 4096);
        let _taken = pool.try_take();
        assert_eq!(pool.kept_bytes(), 4096);
        pool.clear();
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn a_region_larger_than_the_memory_is_refused() {
        assert!(Region::try_new(1 << 62).is_none());
    }
}
