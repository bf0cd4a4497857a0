//! The writer that the demo kills: a hidden subcommand that commits numbered batches until it is stopped.
//!
//! It writes to the partition [`LEDGER`] of a store. Batch n holds the entries from n * [`BATCH`] on. After each commit it
//! prints n to its standard output, as an acknowledgement. Even batches are synced, odd ones are not; killing the process must
//! lose neither.

use std::io::Write;

use clap::Args;
use pleach::Durability;

use super::data::{key, value};
use crate::failure::Result;
use crate::open::StoreArgs;

/// The partition written to.
pub(super) const LEDGER: &str = "ledger";

/// Entries in a batch.
pub(super) const BATCH: u64 = 100;

#[derive(Args)]
pub(crate) struct DemoWriterArgs {
    /// End after so many batches; without it, when killed or when nobody reads the acknowledgements
    #[arg(long)]
    batches: Option<u64>,
}

pub(crate) fn run(store: &StoreArgs, args: &DemoWriterArgs) -> Result<()> {
    let db = store.open()?;
    let ledger = db.partition(LEDGER)?;
    let mut acknowledgements = std::io::stdout().lock();
    for number in 0..args.batches.unwrap_or(u64::MAX) {
        let mut batch = db.batch();
        for entry in number * BATCH..(number + 1) * BATCH {
            batch.put(&ledger, key(entry), value(LEDGER, entry));
        }
        batch.commit(if number % 2 == 0 { Durability::Sync } else { Durability::Buffered })?;
        // One write to the pipe for each batch: bytes in the pipe outlive this process.
        acknowledgements.write_all(format!("{number}\n").as_bytes())?;
        acknowledgements.flush()?;
    }
    Ok(db.close()?)
}
