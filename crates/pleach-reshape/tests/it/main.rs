//! Tests of the reshaped store from outside, over the model.

mod bad_input;
mod concurrency;
mod crash;
mod model;
mod rig;
mod stories;
