//! The `pleach` command: a store at the command line.
//!
//! One module for each subcommand; `args` lists them. Around them: `open` (which store), `bytes` (text for bytes),
//! `output` (data and messages), `dropped` (writes lost in a crash), `replaced` (files that are replaced as a whole),
//! `progress` (long commands), `failure` (exit codes).

#![expect(
    clippy::disallowed_methods,
    reason = "the command runs on the real machine, never in the simulator; the engine below it keeps to Env"
)]

mod args;
mod bytes;
mod compact;
mod convert;
mod damage;
mod delete;
mod demo;
mod drop_partition;
mod dropped;
mod dump;
mod failure;
mod get;
mod load;
mod open;
mod output;
mod partitions;
mod progress;
mod put;
mod repair;
mod replaced;
mod scan;
mod stats;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::Cli;
use failure::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A failure to print the help cannot be reported.
            let _unheard = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(Exit::Usage as u8),
            };
        }
    };
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain_of(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}
