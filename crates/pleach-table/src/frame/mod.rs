//! Frames: the memory that cached blocks live in.
//!
//! A [`FrameCache`] has a [`slab`] of 4 KiB frames. A block takes one to four neighbouring frames, a *run of frames*. Each open
//! SST has one word for each block ([`FrameWords`]), which names the block's first frame. So a reader finds a cached block
//! without hashing and without a lock: it loads the word, pins the frame and loads the word again. A [`BlockRef`] holds such a
//! pin. It holds a block on the heap if the block is too large for frames or no frame is free.
//!
//! - [`slab`]: the memory, and who may read or write it; [`states`]: its state words (the only unsafe code of the crate);
//! - [`words`]: which frame holds a block;
//! - [`cache`]: which block gets which frames;
//! - [`shard`]: which block is evicted;
//! - [`block_ref`]: what readers hold;
//! - [`buffer`]: memory for reads that bypass the frames.

mod block_ref;
mod buffer;
mod cache;
mod shard;
mod slab;
mod states;
mod words;

pub use block_ref::BlockRef;
pub use buffer::AlignedBuffer;
pub(crate) use cache::FrameMut;
pub use cache::{FrameCache, FrameCacheStats, Warmth};
pub(crate) use words::FrameWords;
