//! `pleach get`: the values of keys, from one consistent view.
//!
//! The value of a single key is printed unchanged, for pipes. Several keys are printed as lines.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use pleach::Value;

use crate::bytes::{Form, argument, shown};
use crate::failure::{Exit, Failure, Result};
use crate::open::StoreArgs;
use crate::output::{Output, complain, stdout_is_terminal};

#[derive(Args)]
#[command(
    after_help = "One key: its value as it is, without a newline. Several: lines of key, tab, value.\n\
    Absent keys are named on standard error, and the exit code is 1."
)]
pub(crate) struct GetArgs {
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Keys are given, and values written, in hexadecimal
    #[arg(long)]
    hex: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &GetArgs) -> Result<()> {
    let keys: Vec<_> = args.keys.iter().map(|key| argument(key, args.hex)).collect::<Result<_>>()?;
    let db = store.open()?;
    let values = store.partition_of(&db)?.get_many(&keys)?;
    let mut output = Output::stdout();
    let mut absent = 0u64;
    for (key, value) in keys.iter().zip(&values) {
        match value {
            Some(value) if store.json => output.json_entry(key, Some(value), args.hex)?,
            Some(value) if keys.len() == 1 => write_alone(&mut output, value, args.hex)?,
            Some(value) => output.text_entry(key, Some(value), form(args.hex))?,
            None => {
                complain(format!("{} is not there", shown(key, args.hex)));
                absent += 1;
            }
        }
    }
    output.finish()?;
    drop(values);
    db.close()?;
    if absent > 0 { Err(Failure::quiet(Exit::NotFound)) } else { Ok(()) }
}

fn form(hex: bool) -> Form {
    if hex { Form::Hex } else { Form::Escaped }
}

fn write_alone(output: &mut Output, value: &Value, hex: bool) -> Result<()> {
    if hex {
        return output.line(Form::Hex.text(value));
    }
    output.write_all(value)?;
    // On a terminal, so that the prompt does not follow on the same line.
    if stdout_is_terminal() && !value.ends_with(b"\n") { output.line("") } else { Ok(()) }
}
