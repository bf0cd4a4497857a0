//! Environment of Pleach: files, directories, clock, randomness and background jobs behind one interface.
//!
//! Everything above this crate reaches the machine through [`Env`] alone. [`RealEnv`] is the operating system;
//! [`SimEnv`] is an in-memory disk and a seeded scheduler in which every data sector, size, directory entry, rename,
//! unlink and truncation persists on its own until its barrier, so that tests can cut the power at any moment and
//! look at every state a disk may legally be in.
//!
//! A store wraps either in a [`BoundedEnv`], which closes SSTs that are not read where descriptors are short.
//!
//! The crate also holds what all layers share: the [`Error`] type and the [`failpoint`] registry.

#[cfg(feature = "failpoints")]
mod baton;
mod bounded;
mod env;
mod error;
pub mod failpoint;
mod ids;
mod job;
pub mod memory;
mod real;
mod sim;
pub mod sync;
mod waiter;

pub use bounded::{BoundedEnv, OpenFiles};
pub use env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, Site};
pub use error::{Error, ErrorKind, Result};
pub use ids::FileId;
pub use job::{Job, JobHandle, JobStep, JobWaker};
pub use real::RealEnv;
#[cfg(feature = "failpoints")]
pub use sim::Clients;
pub use sim::{Capture, CrashPolicy, Fault, FaultKind, JOB_PANIC, SimEnv};
pub use waiter::Waiter;
