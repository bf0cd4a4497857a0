//! Hostile input: damaged files and bad arguments.
//!
//! This is a binary of its own because it installs a global allocator, which counts the allocations of each case and refuses
//! absurd requests. No other test should run under it.
//!
//! The tests build small but complete stores in the simulator and close them. Then they damage each file in every way of
//! [`damage`], one way at a time, and open the store, read all of it, verify it and sometimes compact it. An error that names a
//! file is allowed, and so is exactly the right answer. A panic, a wrong or missing value, a hang, or much more memory than the
//! intact store takes is not.
//!
//! `PLEACH_HOSTILE=full` damages every byte. By default a sample is damaged, chosen by `PLEACH_SEED`, which is printed.

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
