//! Killed processes on the real file system: a prefix of the writes survives, with every acknowledged one.
//!
//! This is a binary of its own because it runs itself as the child that is killed. The child opens the store, writes batches
//! from one to four threads and reports each acknowledged batch; small memtables keep flushes and compactions running. The
//! parent kills it with SIGKILL at a random moment, during recovery too, and starts the next child on the same directory. After
//! most kills it opens the store itself and compares everything with a model. Each batch is generated from the seed and its
//! number, so the model is rebuilt from the number of batches alone. `.ci/power-cuts` runs the same with a file system whose
//! power is cut in place of a kill, `.ci/failing-device` with a device that fails before it.
//!
//! `PLEACH_KILLS` sets the number of kills (100 by default), `PLEACH_SEED` the seed, which is printed.

#![expect(
    clippy::disallowed_methods,
    reason = "plays the operating system: time, processes and threads are real"
)]

mod child;
mod history;
mod parent;
