//! Compaction: several runs of a sub-tree become one, in steps.
//!
//! [`crate::picker`] plans a merge from a sub-tree alone; a [`worker`] executes it as a job. A job merges its inputs key by key
//! into SSTs of fixed size. Every few SSTs it commits one edit that adds the outputs, raises the inputs' clip and removes the
//! inputs' files below it. That edit does three things. It records the job: after a crash the job resumes from the
//! clip. It redirects readers: below the clip they find the output. It is the early cleaning: the removed files are deleted
//! once no reader pins them.
//!
//! # Invariants
//! 1. *Clip*: (inputs at or above the clip) + (output below it) is a complete state at every instant.
//! 2. *Tombstones*: one is dropped only if no run older than the inputs can hold its key.
//!
//! # Origin
//! `SifrDB`, section 3 (split forest, early cleaning) and 4 (compaction journal, continued compaction). Departures: one
//! manifest edit plays the parts of the paper's journal and redirection map; the "twice check" is not needed because
//! versions are immutable.

mod conversion;
mod job;
mod merging;
mod outputs;
mod pace;
mod partial;
mod range;
mod requests;
mod room;
mod starts;
#[cfg(test)]
mod tests;
pub(crate) mod worker;

pub(crate) use pace::Pacer;
pub(crate) use requests::{RangeRequests, Requests};
