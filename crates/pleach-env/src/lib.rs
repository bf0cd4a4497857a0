//! Environment of Pleach: files, directories, clock, randomness and background jobs behind one interface.
//!
//! All crates above reach the machine only through [`Env`]. [`RealEnv`] is the operating system. [`MemEnv`] keeps files in
//! memory, for stores that need not outlive their process. [`SimEnv`] is an in-memory disk with a seeded scheduler: until its
//! barrier, each data sector, size, directory entry, rename, unlink and truncation persists or not on its own. So tests can
//! cut the power at any moment and see every state that a disk may be in.
//!
//! A store wraps its environment in a [`BoundedEnv`], which closes SSTs when descriptors are short.
//!
//! A [`SlowEnv`] delays reads, so that tests without a slow device see which of them overlap.
//!
//! The crate also holds the [`Error`] type and the [`failpoint`] registry, which all layers share.

#[cfg(feature = "failpoints")]
mod baton;
mod bounded;
mod env;
mod error;
pub mod failpoint;
mod ids;
mod job;
mod mem;
pub mod memory;
mod processor;
mod read_queue;
mod real;
mod sim;
mod slow;
pub mod sync;
mod waiter;
mod wakers;

pub use bounded::{BoundedEnv, OpenFiles};
pub use env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, SMALL_WRITES_STEP, Site};
pub use error::{Error, ErrorKind, Result, is_out_of_files};
pub use ids::FileId;
pub use job::{Job, JobHandle, JobStep, JobWaker};
pub use mem::MemEnv;
pub use processor::ProcessorTime;
pub use read_queue::{
    CompletedRead, LazyReadService, QueuedRead, ReadBuffer, ReadDriver, ReadQueue, ReadRequest, ReadService,
};
pub use real::RealEnv;
#[cfg(feature = "failpoints")]
pub use sim::Clients;
pub use sim::{Capture, CrashPolicy, Fault, FaultKind, JOB_PANIC, SimEnv};
pub use slow::SlowEnv;
pub use waiter::Waiter;
pub use wakers::{WaitingTask, is_in_waker, run_waker, wake};
