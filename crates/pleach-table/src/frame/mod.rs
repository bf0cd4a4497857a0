//! Frames: the memory that cached blocks live in.
//!
//! A [`FrameCache`] has a [`slab`] of 4 KiB frames. A block takes one to four neighbouring frames, a *run of frames*.
//! Each open SST has one word per block ([`FrameWords`]) which names the block's first frame, so a cached block is
//! found without hashing and without a lock: load the word, pin the frame, load the word again. A [`BlockRef`] is such
//! a pin, or a block of its own on the heap where it is too large for frames or all frames are pinned.
//!
//! - [`slab`]: the memory and who may touch it (the only unsafe code of the crate);
//! - [`cache`]: which block gets which frames, and who must go;
//! - [`block_ref`]: what readers hold;
//! - [`buffer`]: memory for reads that bypass the frames.

mod block_ref;
mod buffer;
mod cache;
mod shard;
mod slab;

pub use block_ref::BlockRef;
pub(crate) use buffer::AlignedBuffer;
pub use cache::{FrameCache, FrameCacheStats};
pub(crate) use cache::{FrameMut, FrameWords, Warmth};
