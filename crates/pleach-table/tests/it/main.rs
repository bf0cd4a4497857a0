//! SSTs through their public face.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

mod cache;
mod columns;
mod damage;
#[expect(clippy::cast_precision_loss, reason = "random fractions of the benchmark's key sets")]
#[path = "../../examples/index_table/data.rs"]
mod data;
mod format;
mod learned;
mod model;
mod reads;
mod salvage;
mod support;
