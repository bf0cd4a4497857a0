//! Stores of rows on the real file system: the conformance suite, killed processes, and folders that are not theirs.

#![expect(
    clippy::disallowed_methods,
    reason = "the stores that are tested know no other file system than the real one"
)]

mod back_ends;
mod folders;
