//! Cached values: the shards, and the readers' holds on what is in them.
//!
//! A hold may outlive the cache. When the cache is dropped, it counts the pins and marks their slots. The drop of the last pin
//! then frees the memory.
//!
//! # Invariants
//! 1. *Pins keep the memory*: `outstanding` is zero only if neither the owner nor a pin is left.

#![expect(unsafe_code, reason = "a value that was read stays valid after the store is closed")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

use super::shard::{Name, Pinned, Shard};
use super::slot::{NOTHING, Slot};
use crate::values::ValuePointer;

/// A shard has at least so many bytes (arbitrary): its table and its arena may each take a part of a huge page more than they
/// use.
const SHARD_BYTES_MIN: usize = 32 << 20;

/// Shards at most, as of the cache of blocks.
const SHARDS_MAX: usize = 32;

/// More than all pins together can be.
const OWNER_SHARE: i64 = 1 << 60;

struct Shards {
    shards: Box<[Shard]>,
    /// Pins that outlive the owner, plus `OWNER_SHARE` while the owner exists. The shards are freed at 0.
    outstanding: AtomicI64,
}

/// The owner of the shards.
pub(super) struct Values(NonNull<Shards>);

/// The value that a pointer of a key with this hash leads to. `None` for what the cache does not hold: values of segments from
/// number 2^32 on.
#[inline]
fn name(hash: u64, pointer: ValuePointer) -> Option<Name> {
    let ValuePointer { segment, offset, len } = pointer;
    let (segment, offset) = (u32::try_from(segment.0).ok()?, u32::try_from(offset).ok()?);
    let place = u64::from(segment) << 32 | u64::from(offset);
    Some(Name { hash: something(hash), place, stored_len: len })
}

/// A hash that a slot can have.
#[inline]
fn something(hash: u64) -> u64 {
    if hash == NOTHING { 1 } else { hash }
}

impl Values {
    /// Values of at most so many bytes, with a capacity of 0; `None` if the process may not have so many addresses.
    pub(super) fn try_new(bytes_max: usize) -> Option<Self> {
        let count = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let shards = (0..count).map(|_| Shard::try_new(bytes_max.div_ceil(count)));
        let shards =
            Shards { shards: shards.collect::<Option<_>>()?, outstanding: AtomicI64::new(OWNER_SHARE) };
        Some(Self(NonNull::from(Box::leak(Box::new(shards)))))
    }

    #[inline]
    fn shards(&self) -> &[Shard] {
        // SAFETY: the owner exists, so the shards have not been freed (invariant 1).
        unsafe { &self.0.as_ref().shards }
    }

    /// The upper half of the hash chooses the shard, the lower half the bucket.
    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        let shards = self.shards();
        let number = ((hash >> 32) * shards.len() as u64) >> 32;
        &shards[usize::try_from(number).expect("less than the number of shards")]
    }

    /// Prefetches where a value of a key with this hash would be found.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.shard(hash).prefetch(something(hash));
    }

    /// Prefetches the beginning of a value of a key with this hash, if one seems to be there. Returns whether it
    /// does.
    #[inline]
    pub(super) fn prefetch_value(&self, hash: u64) -> bool {
        self.shard(hash).prefetch_value(something(hash))
    }

    /// Whether a value of a key with this hash seems to be there, at any place.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.shard(hash).may_have(something(hash))
    }

    /// The value to which a pointer leads. If the read `counts`, the value is kept longer.
    #[inline]
    pub(super) fn get(&self, hash: u64, pointer: ValuePointer, counts: bool) -> Option<CachedValue> {
        let pinned = self.shard(hash).get(name(hash, pointer)?, counts)?;
        Some(self.hold(&pinned))
    }

    /// Admits a value, and holds it. `None` if it is too large, or if too much is pinned.
    pub(super) fn admit(&self, hash: u64, pointer: ValuePointer, bytes: &[u8]) -> Option<CachedValue> {
        assert!(bytes.len() >= pointer.len as usize, "the value to which the pointer leads");
        let pinned = self.shard(hash).admit(name(hash, pointer)?, bytes)?;
        Some(self.hold(&pinned))
    }

    /// Gives a value another place, unless it is not there or pinned.
    pub(super) fn note_copy(&self, hash: u64, from: ValuePointer, to: ValuePointer) {
        if let (Some(from), Some(to)) = (name(hash, from), name(hash, to)) {
            self.shard(hash).replace(from, to.place);
        }
    }

    /// Whether [`Values::populate`] is to be called, because of a value with this hash.
    pub(super) fn wants_memory(&self, hash: u64) -> bool {
        self.shard(hash).wants_memory()
    }

    /// Asks the system for memory ahead of the values.
    pub(super) fn populate(&self) {
        self.shards().iter().for_each(Shard::populate);
    }

    #[inline]
    fn hold(&self, pinned: &Pinned<'_>) -> CachedValue {
        let Pinned { slot, bytes, len } = *pinned;
        CachedValue { bytes, len, slot: NonNull::from(slot), shards: self.0 }
    }

    /// Sets the bytes of all values.
    pub(super) fn set_capacity(&self, bytes: usize) {
        let shards = self.shards();
        for shard in shards {
            shard.set_capacity(bytes / shards.len());
        }
    }

    /// Memory that they take, or took before some were evicted.
    pub(super) fn used_bytes(&self) -> usize {
        self.shards().iter().map(Shard::used_bytes).sum()
    }

    /// Bytes of all arenas up to the last for which memory was asked.
    #[cfg(test)]
    pub(super) fn populated_bytes(&self) -> usize {
        self.shards().iter().map(Shard::populated_bytes).sum()
    }

    /// Checks the invariants of all shards.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.shards().iter().for_each(Shard::check_invariants);
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        let pins: i64 = self.shards().iter().map(Shard::orphan).sum();
        release(self.0, OWNER_SHARE - pins);
    }
}

/// Subtracts `share` from the outstanding shares, and frees the shards when none is left.
#[cold]
fn release(shards: NonNull<Shards>, share: i64) {
    // SAFETY: the caller still has its share, so the shards have not been freed.
    let left = unsafe { shards.as_ref() }.outstanding.fetch_sub(share, Ordering::AcqRel) - share;
    if left == 0 {
        // SAFETY: `try_new` leaked this box; no owner and no pin is left, so no other thread can reach it.
        drop(unsafe { Box::from_raw(shards.as_ptr()) });
    }
}

/// A value in the cache. It stays there while this exists.
pub(crate) struct CachedValue {
    bytes: NonNull<u8>,
    len: u32,
    slot: NonNull<Slot>,
    shards: NonNull<Shards>,
}

impl CachedValue {
    #[inline]
    fn slot(&self) -> &Slot {
        // SAFETY: a pin exists, so the shards with their tables have not been freed (invariant 1).
        unsafe { self.slot.as_ref() }
    }
}

impl Deref for CachedValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot was pinned when its item had `len` bytes here. Nobody writes them while the pin exists.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len as usize) }
    }
}

impl Clone for CachedValue {
    fn clone(&self) -> Self {
        if self.slot().pin_again() {
            release(self.shards, -1);
        }
        Self { ..*self }
    }
}

impl Drop for CachedValue {
    #[inline]
    fn drop(&mut self) {
        if self.slot().unpin() {
            release(self.shards, 1);
        }
    }
}

// SAFETY: the owner reaches the shards through shared references, atomics and locks only.
unsafe impl Send for Values {}
// SAFETY: as above.
unsafe impl Sync for Values {}
// SAFETY: a pin gives shared access to bytes that do not change, and counts with atomics.
unsafe impl Send for CachedValue {}
// SAFETY: as above.
unsafe impl Sync for CachedValue {}
