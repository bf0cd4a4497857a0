//! The slab of the frame cache and the words that name its frames.

#[path = "../../crates/pleach-table/src/frame/slab.rs"]
mod slab;
#[path = "../../crates/pleach-table/src/frame/words.rs"]
mod words;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use slab::SlabOwner;
use words::FrameWords;

use crate::FileId;

/// State words that loom knows.
mod states {
    use std::ops::Deref;

    use crate::sync::atomic::AtomicU32;

    pub(super) struct Frame {
        pub(super) state: AtomicU32,
        pub(super) extent: AtomicU32,
    }

    pub(super) struct Frames(Box<[Frame]>);

    impl Frames {
        pub(super) fn try_new(len: usize) -> Option<Self> {
            Some(Self(
                (0..len).map(|_| Frame { state: AtomicU32::new(0), extent: AtomicU32::new(0) }).collect(),
            ))
        }
    }

    impl Deref for Frames {
        type Target = [Frame];

        fn deref(&self) -> &[Frame] {
            &self.0
        }
    }
}

/// A cache of some frames and the blocks of one SST. Loom checks for each frame that no access to its bytes races.
pub struct Cache {
    slab: Option<SlabOwner>,
    words: Arc<FrameWords>,
    /// What each frame holds, as a number; accessed as the bytes are.
    shadows: Vec<UnsafeCell<u32>>,
}

// SAFETY: the shadows are accessed as the slab allows; loom ends a model in which two accesses race.
unsafe impl Sync for Cache {}
// SAFETY: as above.
unsafe impl Send for Cache {}

impl Cache {
    pub fn new(frames: u32, blocks: u32) -> Self {
        let shadows = (0..frames).map(|_| UnsafeCell::new(u32::MAX)).collect();
        let slab = SlabOwner::try_new(frames).expect("memory");
        slab.note_used(0);
        Self { slab: Some(slab), words: FrameWords::new(FileId(1), blocks), shadows }
    }

    fn slab(&self) -> &SlabOwner {
        self.slab.as_ref().expect("it has not been dropped")
    }

    /// Reads a block, if a frame holds it; notes a miss otherwise. Returns whether it was there.
    pub fn read(&self, block: u32) -> bool {
        let Some(pin) = self.words.pin(self.slab(), block) else {
            self.words.note_miss(block, 1);
            return false;
        };
        let frame = pin.len() - 1;
        // SAFETY: the run is pinned; otherwise loom ends the model.
        let held = || self.shadows[frame].with(|held| unsafe { *held });
        assert_eq!(held(), block, "the frame holds another block");
        pin.touch();
        let second = pin.clone();
        drop(pin);
        assert_eq!(held(), block, "the frame was given away under a pin");
        drop(second);
        true
    }

    /// Puts a block into a frame, which loses what it holds, as `Shard::clear` and `FrameMut::publish` do. Returns whether the
    /// frame could be locked.
    pub fn admit(&self, first: u32, evicted: u32, block: u32) -> bool {
        let slab = self.slab();
        let Some(run) = slab.lock(first) else { return false };
        self.words.clear(evicted, first);
        // SAFETY: the run is locked; otherwise loom ends the model.
        self.shadows[first as usize].with_mut(|held| unsafe { *held = block });
        // The length tells the frame to those that pin it.
        let pin = slab.unlock_pinned(run, first as usize + 1, 1);
        self.words.set(block, first);
        drop(pin);
        true
    }

    /// Locks a frame and gives it back unused, as a cancelled reservation does.
    pub fn lock_for_a_moment(&self, first: u32) {
        if let Some(run) = self.slab().lock(first) {
            self.shadows[first as usize].with_mut(|_| ());
            self.slab().unlock(run);
        }
    }

    /// Pins a block, if a frame holds it.
    pub fn pinned(&self, block: u32) -> Option<Pinned> {
        Some(Pinned(self.words.pin(self.slab(), block)?))
    }
}

/// A block that may outlive its cache.
#[derive(Clone)]
pub struct Pinned(slab::Pin);

impl Pinned {
    /// Whether its bytes are those of [`Cache::admit`].
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}
