//! SSTs through their public face.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

mod cache;
mod damage;
mod format;
mod learned;
mod model;
mod salvage;
mod support;
