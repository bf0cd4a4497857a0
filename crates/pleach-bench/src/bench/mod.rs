//! Runs: one engine through a list of workloads, measured.

mod accounting;
mod child;
mod drive;
mod execute;
mod in_flight;
mod limit;
mod machine_lock;
mod measured;
mod phase;
mod progress;
mod record;
mod runner;
mod settings;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use child::{run_as_child, run_in_child};
pub(crate) use record::Record;
pub(crate) use settings::Settings;
