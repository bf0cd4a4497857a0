//! Pleach-bench: workloads, measurement and reports for key-value stores, Pleach's own and its rivals'.
//!
//! An engine stands behind the [`Engine`] trait and is listed by an [`EngineFactory`]. [`run`] is the whole command
//! line over a list of them, so that a program elsewhere can add rivals without this crate building any:
//!
//! ```no_run
//! use pleach_bench::{PLEACH, REFERENCE, run};
//!
//! fn main() -> std::process::ExitCode {
//!     run(&[PLEACH, REFERENCE]) // A rival's factory joins the list.
//! }
//! ```
//!
//! `cli` reads the settings. `bench` runs each engine in a process of its own: it brings the store into the state that a
//! workload needs, performs the workload's streams of operations (`workload`, over the keys, values and choices of `data`)
//! and measures them (`measure`). `device` measures raw reads of its files. `report` writes JSON, HTML and tables. `paper`
//! repeats figures of papers. docs/benchmarks.md defines each figure.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark runs on the real machine, never in the simulator"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts become averages and random bits become small numbers; none reaches a disk"
)]

mod bench;
mod cli;
mod data;
mod device;
mod engine;
mod measure;
mod paper;
mod report;
mod results;
mod workload;

pub use cli::run;
pub use engine::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Error, GetFuture,
    PLEACH, PLEACH_FOREST, PLEACH_INLINE, PLEACH_LEVELED, PLEACH_SEPARATED, REFERENCE, Removal, Result, Scan,
    ScanFuture, ScannedEntries, Session, Write,
};
