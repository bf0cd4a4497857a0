//! Slot: the place of one cached value in the table, and who may read or change it.
//!
//! A slot names a value by the hash of its key, and says where its item is in the arena. Its state word counts the readers of
//! the item.
//!
//! # Invariants
//! 1. *Writers are alone*: a lock needs zero pins. A reader that finds the slot locked takes its pin back and does not use the
//!    slot. So hash and item change only while nobody uses them.
//! 2. *A hash that is unchanged after the pin is right*: the hash is cleared under the lock before the item is given away. So if
//!    a reader pins a slot and then finds the hash that it looks for, the item holds a value with that hash until it unpins.
//!
//! # Concurrency
//! The state has the second chances in bits 0 and 1, *locked* in bit 2, *orphaned* in bit 3, and the number of pins from bit 4
//! on, as that of a frame of the cache of blocks. A locked slot may have pins for a moment, so an unlock subtracts. An unlock
//! releases and a pin acquires: a thread that pins a slot sees what was written before the unlock. An unpin releases and a lock
//! acquires: reads under a pin happen before the next write. `models/` checks this in all orders.

use pleach_env::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Second chances, as bits: a value found once has the lower one, a value found again has both.
pub(super) const TOUCHED: u32 = 1;
pub(super) const WARM: u32 = 2;
const CHANCES: u32 = TOUCHED | WARM;
const LOCKED: u32 = 4;
const ORPHANED: u32 = 8;
const PIN: u32 = 16;
/// Too many pins for the state word: no further pin is given. Only a leak of pins comes so far.
const TOO_MANY: u32 = 1 << 31;

/// The hash of no value.
pub(super) const NOTHING: u64 = 0;

/// See the module's text. All zeros is an empty slot.
#[derive(Default)]
#[repr(C)]
pub(super) struct Slot {
    /// The hash of the value's key, or [`NOTHING`]. Changed under the lock. Relaxed: the state orders it.
    hash: AtomicU64,
    /// The first line of the item. As `hash`.
    item: AtomicU32,
    state: AtomicU32,
}

impl Slot {
    /// The hash of the value's key. It may change at once, unless the slot is pinned or the lock of the shard is held.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// The first line of the item, under the same rule.
    #[inline]
    pub(super) fn item(&self) -> u32 {
        self.item.load(Ordering::Relaxed)
    }

    /// Pins the slot, if it has a value with this hash. If the read `counts`, the value gets a chance.
    #[inline]
    pub(super) fn pin(&self, hash: u64, counts: bool) -> bool {
        if self.hash() != hash {
            return false;
        }
        let state = self.state.fetch_add(PIN, Ordering::Acquire);
        // Invariant 2. Relaxed suffices: the pin acquired what happened before the last unlock.
        if state & (LOCKED | TOO_MANY) != 0 || self.hash() != hash {
            self.state.fetch_sub(PIN, Ordering::Release);
            return false;
        }
        if counts && state & WARM == 0 {
            let chance = if state & TOUCHED == 0 { TOUCHED } else { WARM };
            self.state.fetch_or(chance, Ordering::Relaxed);
        }
        true
    }

    /// Adds a pin to one that the caller has. Returns whether the cache is gone.
    #[inline]
    pub(super) fn pin_again(&self) -> bool {
        let state = self.state.fetch_add(PIN, Ordering::Relaxed);
        assert!(state & TOO_MANY == 0, "fewer than 2^27 pins on a value");
        state & ORPHANED != 0
    }

    /// Ends a pin. Returns whether the cache is gone.
    #[inline]
    pub(super) fn unpin(&self) -> bool {
        // Release: reads of the item happen before the next lock.
        self.state.fetch_sub(PIN, Ordering::Release) & ORPHANED != 0
    }

    /// The chances; `None` when the slot cannot be locked.
    pub(super) fn chances(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Relaxed);
        (state & !CHANCES == 0).then_some(state & CHANCES)
    }

    /// Takes one chance away.
    pub(super) fn take_chance(&self, chances: u32) {
        let chance = if chances & WARM != 0 { WARM } else { TOUCHED };
        self.state.fetch_and(!chance, Ordering::Relaxed);
    }

    /// Locks the slot, and returns its chances; `None` when it is pinned or locked.
    pub(super) fn lock(&self) -> Option<u32> {
        let chances = self.chances()?;
        // Acquire: the reads under former pins happen before the item is overwritten.
        self.state.compare_exchange(chances, LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(chances)
    }

    /// Sets what the slot has. Requires: the caller has locked it.
    pub(super) fn set(&self, hash: u64, item: u32) {
        self.item.store(item, Ordering::Relaxed);
        self.hash.store(hash, Ordering::Relaxed);
    }

    /// Ends a lock.
    pub(super) fn unlock(&self, chances: u32) {
        self.state.fetch_add((chances & CHANCES).wrapping_sub(LOCKED), Ordering::Release);
    }

    /// Ends a lock with a pin.
    pub(super) fn unlock_pinned(&self) {
        self.state.fetch_add(PIN - LOCKED, Ordering::Release);
    }

    /// Notes that the cache is gone. Returns the pins, which tell so when they end.
    pub(super) fn orphan(&self) -> u32 {
        self.state.fetch_or(ORPHANED, Ordering::AcqRel) / PIN
    }
}
