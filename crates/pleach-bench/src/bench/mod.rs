//! Runs: one engine through a list of workloads, measured.

mod accounting;
mod child;
mod drive;
mod execute;
mod flanks;
mod in_flight;
mod kept;
mod limit;
mod machine_lock;
mod measured;
mod phase;
mod progress;
mod record;
mod runner;
mod schedule;
mod settings;
mod stages;
mod steps;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use child::{remove_store, remove_stores, run_as_child, run_in_child, turns};
pub(crate) use record::Record;
pub(crate) use runner::with_loaded;
pub(crate) use settings::Settings;
