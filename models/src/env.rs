//! What stands in for the environment of `pleach-reshape`.

use std::time::Duration;

pub use crate::sync;

/// An environment whose sleep lets others run.
pub trait Env {
    fn sleep(&self, duration: Duration);
}

/// The only one.
pub struct Yielding;

impl Env for Yielding {
    fn sleep(&self, _duration: Duration) {
        loom::thread::yield_now();
    }
}
