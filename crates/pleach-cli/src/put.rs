//! `pleach put`: gives one key a value. The write is durable when the command ends with success.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use pleach::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use serde_json::json;

use crate::bytes::argument;
use crate::failure::{Failure, Result};
use crate::open::StoreArgs;
use crate::output::print_document;

#[derive(Args)]
pub(crate) struct PutArgs {
    /// The key
    key: OsString,
    /// The value; "-" reads it from standard input
    #[arg(required_unless_present = "file")]
    value: Option<OsString>,
    /// Read the value from a file, bytes verbatim
    #[arg(long, conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Key and value are given in hexadecimal (never a file's or standard input's bytes)
    #[arg(long)]
    hex: bool,
    /// Do not create a missing store or partition
    #[arg(long)]
    no_create: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &PutArgs) -> Result<()> {
    let key = argument(&args.key, args.hex)?;
    let value = value(args)?;
    check(&key, &value)?;
    store.check_partition_name()?;
    let db = store.open_or_create(args.no_create)?;
    let partition = store.partition_or_create(&db, args.no_create)?;
    partition.put(&key, &value)?;
    db.close()?;
    if store.json {
        print_document(
            &json!({"partition": partition.name(), "entries": 1, "bytes": key.len() + value.len()}),
        )?;
    }
    Ok(())
}

/// An error if the store would refuse the entry. Checked before a store is created.
fn check(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > KEY_LEN_MAX {
        return Err(Failure::usage(format!(
            "a key has at most {KEY_LEN_MAX} bytes; this one has {}",
            key.len()
        )));
    }
    if value.len() > VALUE_LEN_MAX {
        let len = value.len();
        return Err(Failure::usage(format!("a value has at most {VALUE_LEN_MAX} bytes; this one has {len}")));
    }
    Ok(())
}

fn value(args: &PutArgs) -> Result<Vec<u8>> {
    match (&args.file, &args.value) {
        (Some(path), _) => std::fs::read(path).map_err(|e| Failure::io("read", path, &e)),
        (None, Some(value)) if value == "-" => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|e| Failure::io("read", Path::new("standard input"), &e))?;
            Ok(bytes)
        }
        (None, Some(value)) => argument(value, args.hex),
        (None, None) => Err(Failure::usage("no value was given")),
    }
}
