//! `pleach scan`: the entries of a range in key order, from either end.

use std::ffi::{OsStr, OsString};
use std::ops::Bound;

use clap::Args;
use pleach::{Partition, Range};
use serde_json::json;

use crate::bytes::{Form, argument};
use crate::failure::Result;
use crate::open::StoreArgs;
use crate::output::Output;

#[derive(Args)]
#[command(
    after_help = "Without a prefix or bounds: the whole partition. `pleach dump` writes formats that can be \
    loaded again."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct ScanArgs {
    /// Keys that start with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// First key, included
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End, not included
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// At most so many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Keys without values
    #[arg(long)]
    keys_only: bool,
    /// Only the number of entries
    #[arg(long, conflicts_with = "keys_only")]
    count: bool,
    /// Keys and values in hexadecimal, in and out
    #[arg(long)]
    hex: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &ScanArgs) -> Result<()> {
    let db = store.open()?;
    let mut range = range(&store.partition_of(&db)?, args)?;
    let form = if args.hex { Form::Hex } else { Form::Escaped };
    let mut output = Output::stdout();
    let mut seen = 0u64;
    while args.limit.is_none_or(|limit| seen < limit) {
        let Some((key, value)) = next(&mut range, args)? else { break };
        seen += 1;
        if args.count {
            continue;
        }
        if store.json {
            output.json_entry(key, value, args.hex)?;
        } else {
            output.text_entry(key, value, form)?;
        }
    }
    if args.count {
        if store.json { output.document(&json!({"count": seen}))? } else { output.line(seen)? }
    }
    output.finish()?;
    drop(range);
    Ok(db.close()?)
}

/// A key, with the value if that is wanted.
type Entry<'r> = (&'r [u8], Option<&'r [u8]>);

fn next<'r>(range: &'r mut Range, args: &ScanArgs) -> Result<Option<Entry<'r>>> {
    if args.count || args.keys_only {
        let next = if args.reverse { range.next_back_key()? } else { range.next_key()? };
        return Ok(next.map(|(key, _)| (key, None)));
    }
    let next = if args.reverse { range.next_back_entry()? } else { range.next_entry()? };
    Ok(next.map(|(key, value)| (key, Some(value))))
}

fn range(partition: &Partition, args: &ScanArgs) -> Result<Range> {
    if let Some(prefix) = &args.prefix {
        return Ok(partition.prefix(argument(prefix, args.hex)?));
    }
    let key =
        |text: &Option<OsString>| text.as_deref().map(|text: &OsStr| argument(text, args.hex)).transpose();
    let lower = key(&args.from)?.map_or(Bound::Unbounded, Bound::Included);
    let upper = key(&args.to)?.map_or(Bound::Unbounded, Bound::Excluded);
    Ok(partition.range((lower, upper)))
}
