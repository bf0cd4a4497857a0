//! Memory that indexes take, as the allocator counts it.

mod alloc;
mod memory;
