//! Stories: scripts in `testdata/` that show what pickers, versions and scans do, to be read like examples.
//!
//! A story is one idea in one file, and its first lines say which. A line that begins with `> ` is a command; the lines below it
//! are the answer, up to an empty line, a comment or the next command:
//!
//! ```text
//! # A forest merges a stage when it holds k runs, and not before.
//!
//! > policy forest k=3
//! > pick 1:4 1:3
//! nothing
//! > pick 1:4 1:3 1:2
//! 4 3 2 -> stage 2, drop tombstones
//! ```
//!
//! Each test plays all stories of one folder, every story from a new beginning:
//!
//! | folder | commands | of |
//! |---|---|---|
//! | `testdata/pickers` | `pickers` | sub-trees, written as in [`trees`], and the merges that are picked |
//! | `testdata/scans` | `scans` | a store in the simulator, and scans of it |
//! | `testdata/versions` | `versions` | edits and the versions that they lead to |
//!
//! A test fails when an answer differs. `PLEACH_STORIES=rewrite cargo test -p pleach --lib stories` writes the answers of the
//! code into the files instead; `git diff` then shows what has changed.

mod load;
mod pickers;
mod scans;
mod story;
pub(crate) mod trees;
mod versions;
