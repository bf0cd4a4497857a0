//! Frame words: which frame holds each block of an SST, or when a reader last missed it.
//!
//! The cache admits a block by the time of its last miss ([`cache`](super::cache)).
//!
//! # Invariants
//! 1. *A word that is unchanged after the pin is right*: eviction clears the word of a block before it unlocks the run. So if
//!    a reader pins the run that a word names and then finds the same word again, the run holds that block.
//! 2. *A miss replaces no frame*: the time of a miss is written only to a word that names none.
//!
//! # Concurrency
//! `models/` checks the invariants in all orders of readers, eviction and publication.

use std::sync::Arc;

use pleach_env::FileId;
use pleach_env::memory::prefetch;
use pleach_env::sync::atomic::{AtomicU32, Ordering};

use super::slab::{Pin, SlabOwner};

/// Marks a word that says when the block was last missed. No frame has so high a number.
const MISSED: u32 = 1 << 31;

/// One word per block of an SST: the number of the frame that holds it, plus one; or, with [`MISSED`], the time of the last miss;
/// or 0.
pub(crate) struct FrameWords {
    words: Box<[AtomicU32]>,
    /// The file's hash, for the choice of shards: its blocks take the shards in turn from there on.
    salt: u32,
}

impl FrameWords {
    /// Words of a file without cached blocks. Files of one block each fill all shards evenly, whatever their numbers are.
    pub(crate) fn new(file: FileId, blocks: u32) -> Arc<Self> {
        let words = (0..blocks).map(|_| AtomicU32::new(0)).collect();
        // Fibonacci hashing: the upper half of a product with 2^64 divided by the golden ratio.
        let salt = file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Arc::new(Self { words, salt: u32::try_from(salt).expect("the upper half") })
    }

    pub(super) fn salt(&self) -> u32 {
        self.salt
    }

    #[inline]
    fn word(&self, block: u32) -> &AtomicU32 {
        &self.words[block as usize]
    }

    /// The frame that seems to hold the block.
    #[inline]
    pub(super) fn frame(&self, block: u32) -> Option<u32> {
        frame_in(self.word(block).load(Ordering::Relaxed))
    }

    /// Notes that a reader has not found the block at the time `now`, and returns how long ago the last one did not find it;
    /// `None` if that is not known. Times are of 31 bits.
    pub(super) fn note_miss(&self, block: u32, now: u32) -> Option<u32> {
        let word = self.word(block).load(Ordering::Relaxed);
        if word & MISSED == 0 && word != 0 {
            return None; // It is cached by now.
        }
        let missed = now | MISSED;
        let _another_was_faster =
            self.word(block).compare_exchange(word, missed, Ordering::Relaxed, Ordering::Relaxed);
        (word != 0).then(|| now.wrapping_sub(word) & !MISSED)
    }

    /// Pins the run that holds the block.
    #[inline]
    pub(super) fn pin(&self, slab: &SlabOwner, block: u32) -> Option<Pin> {
        let first = self.frame(block)?;
        let pin = slab.pin(first)?;
        // Invariant 1. Relaxed suffices: the pin acquired what happened before the run was last unlocked.
        (self.frame(block) == Some(first)).then_some(pin)
    }

    /// Lets readers find the block in the run headed by `first`, unless they find it elsewhere already.
    ///
    /// Requires: the caller has the run pinned.
    pub(super) fn set(&self, block: u32, first: u32) {
        let mut word = self.word(block).load(Ordering::Relaxed);
        while frame_in(word).is_none() {
            let set =
                self.word(block).compare_exchange(word, first + 1, Ordering::Release, Ordering::Relaxed);
            let Err(changed) = set else { return };
            word = changed;
        }
        // Another reader was faster.
    }

    /// Clears the word of `block` if it names the frame `first`.
    ///
    /// Requires: the caller has the run locked.
    pub(super) fn clear(&self, block: u32, first: u32) {
        let _another_readers_frame =
            self.word(block).compare_exchange(first + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Clears all words, and returns the frames that they named.
    pub(super) fn take_all(&self) -> impl Iterator<Item = u32> {
        self.words.iter().filter_map(|word| frame_in(word.swap(0, Ordering::Relaxed)))
    }

    /// Prefetches the cache line of a block's word.
    #[inline]
    pub(crate) fn prefetch(&self, block: u32) {
        prefetch(std::ptr::from_ref(self.word(block)).cast());
    }
}

/// The frame that a word names.
#[inline]
fn frame_in(word: u32) -> Option<u32> {
    // Below MISSED, without another comparison: 0 becomes a number above it too.
    let frame = word.wrapping_sub(1);
    (frame < MISSED - 1).then_some(frame)
}
