//! Tests of the reshaped store from outside, over the model.
#![expect(clippy::disallowed_methods, reason = "tests sleep and start threads themselves")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the rigs are tests, though most of them is no #[test]"
)]

mod back_ends;
mod background;
mod bad_input;
mod concurrency;
mod crash;
mod model;
mod ranges;
mod rig;
mod runs;
mod sorted;
mod stories;
