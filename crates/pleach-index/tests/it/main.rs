//! Memory that indexes take, as the allocator counts it.

#[path = "../../../pleach/tests/hostile/alloc.rs"]
mod alloc;
mod memory;
