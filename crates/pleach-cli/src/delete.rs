//! `pleach delete`: removes keys in one write batch, and names the missing ones.

use std::ffi::OsString;

use clap::Args;
use pleach::Durability;
use serde_json::json;

use crate::bytes::{argument, shown};
use crate::failure::{Exit, Failure, Result};
use crate::open::StoreArgs;
use crate::output::{complain, print_document};

#[derive(Args)]
pub(crate) struct DeleteArgs {
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Keys are given in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Succeed even if keys are missing
    #[arg(long, short)]
    force: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &DeleteArgs) -> Result<()> {
    let keys: Vec<_> = args.keys.iter().map(|key| argument(key, args.hex)).collect::<Result<_>>()?;
    let db = store.open()?;
    let partition = store.partition_of(&db)?;
    let mut batch = db.batch();
    let mut absent = 0u64;
    for (key, value) in keys.iter().zip(partition.get_many(&keys)?) {
        if value.is_some() {
            batch.delete(&partition, key);
        } else {
            absent += 1;
            if !args.force {
                complain(format!("{} is not there", shown(key, args.hex)));
            }
        }
    }
    let deleted = batch.len();
    if !batch.is_empty() {
        batch.commit(Durability::Sync)?;
    }
    db.close()?;
    if store.json {
        print_document(&json!({"partition": partition.name(), "deleted": deleted, "absent": absent}))?;
    }
    if absent > 0 && !args.force { Err(Failure::quiet(Exit::NotFound)) } else { Ok(()) }
}
