//! Killed processes on the real file system: what was acknowledged is there afterwards, and nothing but a prefix.
//!
//! A binary of its own, because it runs itself as the child that is killed. The child opens the store and writes
//! batches from one or two threads, while small memtables keep flushes and compactions going, and reports each batch
//! that was acknowledged. The parent kills it with SIGKILL at a random moment, during recovery too, and goes on with
//! the same directory. After most kills it opens the store itself and compares everything with a model: each thread's
//! batches are generated from the seed, so the model is rebuilt from their number alone.
//!
//! `PLEACH_KILLS` sets the number of kills (100 by default), `PLEACH_SEED` the seed, which is printed.

#![expect(
    clippy::disallowed_methods,
    reason = "plays the operating system: time, processes and threads are real"
)]

mod child;
mod history;
mod parent;
