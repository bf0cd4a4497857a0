//! The command line: subcommands, common flags, the help's table of exit codes.

use clap::{Parser, Subcommand};

use crate::failure::{Failure, Result};
use crate::open::StoreArgs;
use crate::{
    compact, convert, delete, demo, drop_partition, dump, get, load, partitions, put, repair, scan, stats,
    verify,
};

const AFTER_HELP: &str = "\
Keys and values are bytes. Text output escapes what does not print, as in
\\t \\n \\r \\\\ \\xNN; --hex writes and reads hexadecimal. Data goes to standard
output, messages and progress to standard error.

Exit codes:
    0  done
    1  not found: a key, a partition or a store
    2  damage found, or a check of `demo` failed
    3  wrong usage, an invalid argument, malformed input
    4  the system refused: no space, no permission, a device error
    5  the store is open elsewhere; try again later
  130  interrupted by Ctrl-C; what was reported as written is there

Start with:  pleach demo";

/// An ordered key-value store for SSDs, at the command line
#[derive(Parser)]
#[command(name = "pleach", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    store: StoreArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Give a key a value
    Put(put::PutArgs),
    /// Print the values of keys
    Get(get::GetArgs),
    /// Remove keys
    Delete(delete::DeleteArgs),
    /// Print the entries of a range, in key order
    Scan(scan::ScanArgs),
    /// Read entries from a file or standard input
    Load(load::LoadArgs),
    /// Write a whole partition as text
    Dump(dump::DumpArgs),
    /// List the partitions, or create one
    Partitions(partitions::PartitionsArgs),
    /// Drop a partition with all it holds
    DropPartition(drop_partition::DropPartitionArgs),
    /// Merge partitions into their densest form
    Compact(compact::CompactArgs),
    /// Copy values that are stored apart into the order of their keys
    Convert(convert::ConvertArgs),
    /// Print the statistics of the store
    Stats,
    /// Read every file and report all damage
    Verify,
    /// Salvage what can be read of a damaged store into a new one
    Repair(repair::RepairArgs),
    /// Show a store at work, with every claim checked
    Demo(demo::DemoArgs),
    /// Write numbered batches until killed
    #[command(hide = true)]
    DemoWriter(demo::writer::DemoWriterArgs),
}

impl Command {
    /// The command's name, if it writes to the store of `--db`.
    fn writing(&self) -> Option<&'static str> {
        match self {
            Self::Put(_) => Some("put"),
            Self::Delete(_) => Some("delete"),
            Self::Load(_) => Some("load"),
            Self::Partitions(args) => args.creates().then_some("partitions --create"),
            Self::DropPartition(_) => Some("drop-partition"),
            Self::Compact(_) => Some("compact"),
            Self::Convert(_) => Some("convert"),
            _ => None,
        }
    }
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<()> {
        let store = &self.store;
        if let Some(name) = self.command.writing().filter(|_| store.read_only) {
            return Err(Failure::usage(format!(
                "`pleach {name}` writes to the store, so --read-only cannot be used with it"
            ))
            .hint("leave out --read-only"));
        }
        let result = self.dispatch(store);
        match self.command.writing() {
            // Their hints must not suggest an option that they refuse.
            Some(_) => result.map_err(Failure::without_read_only),
            None => result,
        }
    }

    fn dispatch(&self, store: &StoreArgs) -> Result<()> {
        match &self.command {
            Command::Put(args) => put::run(store, args),
            Command::Get(args) => get::run(store, args),
            Command::Delete(args) => delete::run(store, args),
            Command::Scan(args) => scan::run(store, args),
            Command::Load(args) => load::run(store, args),
            Command::Dump(args) => dump::run(store, args),
            Command::Partitions(args) => partitions::run(store, args),
            Command::DropPartition(args) => drop_partition::run(store, args),
            Command::Compact(args) => compact::run(store, args),
            Command::Convert(args) => convert::run(store, args),
            Command::Stats => stats::run(store),
            Command::Verify => verify::run(store),
            Command::Repair(args) => repair::run(store, args),
            Command::Demo(args) => demo::run(store, args),
            Command::DemoWriter(args) => demo::writer::run(store, args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
