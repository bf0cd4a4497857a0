//! Hostile input: damaged files and bad arguments.
//!
//! A binary of its own, because it installs a global allocator that counts what each case allocates and refuses absurd
//! requests; no other test should run under it.
//!
//! Small but complete stores are built in the simulator and closed. Then each file is damaged in every way that
//! [`damage`] knows, one way at a time, and the store is opened, read in full, verified and sometimes compacted. What
//! is allowed: an error that names a file, or exactly the right answer. Not allowed: a panic, a wrong or missing value,
//! a hang, or much more memory than the intact store takes.
//!
//! `PLEACH_HOSTILE=full` tries every byte; by default a sample does, chosen by `PLEACH_SEED`, which is printed.

#![expect(clippy::print_stdout, reason = "seeds, counts and rates are what the test is for")]
#![expect(clippy::disallowed_methods, reason = "measures real time and guards against hangs with a thread")]

mod alloc;
mod arguments;
mod campaign;
mod damage;
mod examine;
mod files;
mod fixture;
mod formats;
