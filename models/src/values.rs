//! The slots of the cache of values.

#[path = "../../crates/pleach/src/values/cache/slot.rs"]
mod slot;

use loom::cell::UnsafeCell;
use slot::{NOTHING, Slot};

/// Some slots and items. Loom checks for each item that no access to its bytes races.
pub struct Values {
    slots: Vec<Slot>,
    /// What each item holds, as the value's hash; accessed as the bytes are.
    items: Vec<UnsafeCell<u64>>,
}

// SAFETY: the items are accessed as the slots allow; loom ends a model in which two accesses race.
unsafe impl Sync for Values {}
// SAFETY: as above.
unsafe impl Send for Values {}

impl Values {
    pub fn new(slots: usize, items: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            items: (0..items).map(|_| UnsafeCell::new(NOTHING)).collect(),
        }
    }

    /// Reads a value, if a slot has it, as `Table::pin` does. Returns whether it was there.
    pub fn read(&self, hash: u64) -> bool {
        let Some(slot) = self.slots.iter().find(|slot| slot.pin(hash, true)) else { return false };
        // SAFETY: the slot is pinned; otherwise loom ends the model.
        let held = || self.items[slot.item() as usize].with(|held| unsafe { *held });
        assert_eq!(held(), hash, "the item holds another value");
        slot.pin_again();
        slot.unpin();
        assert_eq!(held(), hash, "the item was given away under a pin");
        slot.unpin();
        true
    }

    /// Evicts the value of a slot, as `Shard::evict` does. Returns whether it was not pinned.
    ///
    /// Requires: no other thread admits, evicts or moves, as for the next two.
    pub fn evict(&self, slot: usize) -> bool {
        let slot = &self.slots[slot];
        if slot.lock().is_none() {
            return false;
        }
        slot.set(NOTHING, 0);
        slot.unlock(0);
        true
    }

    /// Admits a value, as `Shard::admit` does. Returns whether the slot could be locked.
    pub fn admit(&self, slot: usize, item: usize, hash: u64) -> bool {
        let slot = &self.slots[slot];
        if slot.lock().is_none() {
            return false;
        }
        slot.set(hash, u32::try_from(item).expect("few items"));
        // SAFETY: the slot is locked, and no other slot has the item; otherwise loom ends the model.
        self.items[item].with_mut(|held| unsafe { *held = hash });
        slot.unlock_pinned();
        slot.unpin();
        true
    }

    /// Moves the item of a slot, as `Shard::keep` does. Returns whether it was not pinned.
    pub fn move_item(&self, slot: usize, to: usize) -> bool {
        let slot = &self.slots[slot];
        let Some(chances) = slot.lock() else { return false };
        // SAFETY: as in `admit`.
        let held = self.items[slot.item() as usize].with_mut(|held| unsafe { *held });
        // SAFETY: as in `admit`.
        self.items[to].with_mut(|target| unsafe { *target = held });
        slot.set(slot.hash(), u32::try_from(to).expect("few items"));
        slot.unlock(chances);
        true
    }
}
