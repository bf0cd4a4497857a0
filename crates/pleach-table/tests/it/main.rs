//! SSTs through their public face.
#![expect(missing_docs, reason = "a test")]

mod cache;
mod damage;
mod format;
mod model;
mod support;
