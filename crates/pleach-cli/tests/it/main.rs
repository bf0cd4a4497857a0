//! The `pleach` command as its users run it: arguments, output, exit codes.

#![expect(clippy::disallowed_methods, reason = "these tests run the command on the real machine")]
#![expect(
    clippy::unwrap_used,
    clippy::format_collect,
    clippy::format_push_string,
    reason = "tests say it shortly"
)]

mod command;
mod convert;
mod damaged_values;
mod demo;
mod dump;
mod entries;
mod errors;
mod load;
mod packages;
mod repair;
mod store;
mod torn_log;
