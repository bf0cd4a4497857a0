//! `pleach dump`: a whole partition as text, streamed in key order.

mod formats;
mod skipping;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pleach::Partition;
use pleach_command::{Interrupt, SecondSignal};
use serde_json::json;

use crate::bytes::Form;
use crate::failure::{Exit, Failure, Result};
use crate::open::StoreArgs;
use crate::output::{Output, bytes, counted, entries, note, print_document};
use crate::progress;
use formats::Writer;

/// The bar is updated every so many entries.
const TELL_EVERY: u64 = 1 << 10;

#[derive(Args)]
#[command(after_help = "Formats:
  jsonl    {\"key\":\"...\",\"value\":\"...\"}; what is not UTF-8 as key_base64, value_base64
  tsv      key, tab, value, with escapes \\t \\n \\r \\\\ \\xNN
  csv      with a header row; bytes as they are, quoted where needed
  lines    keys as they are, a newline after each; no values
  values   values as they are, a newline after each; no keys
  stanzas  values as they are, an empty line after each; no keys
`pleach load` reads the first three back to the same entries, and `lines` to the
same keys.")]
pub(crate) struct DumpArgs {
    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// jsonl, tsv, csv, lines: keys and values in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Go on behind damage; standard error lists what was skipped, and the exit code is 2
    #[arg(long)]
    skip_damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Jsonl,
    Tsv,
    Csv,
    Lines,
    Values,
    Stanzas,
}

pub(crate) fn run(store: &StoreArgs, args: &DumpArgs) -> Result<()> {
    if args.hex && matches!(args.format, Format::Values | Format::Stanzas) {
        return Err(Failure::usage(
            "values as they are cannot be hexadecimal; leave out --hex or choose tsv",
        ));
    }
    if store.json && args.output.is_none() && args.format != Format::Jsonl {
        return Err(Failure::usage(
            "--json and another format cannot both go to standard output; add --output",
        ));
    }
    let db = store.open()?;
    let partition = store.partition_of(&db)?;
    let interrupt = Interrupt::install(SecondSignal::EndsProcess)?;
    let output = match &args.output {
        Some(path) => Output::file(path)?,
        None => Output::stdout(),
    };
    let mut writer = writer(output, args)?;
    // On a terminal a bar would mix with the lines of the dump.
    let bar = args.output.is_some().then(|| progress::working("dumping"));
    let (mut written, mut len) = (0u64, 0u64);
    let mut visit = |key: &[u8], value: &[u8]| -> Result<()> {
        writer.entry(key, value)?;
        written += 1;
        len += (key.len() + value.len()) as u64;
        if let Some(bar) = bar.as_ref().filter(|_| written.is_multiple_of(TELL_EVERY)) {
            bar.set_message(format!("{}, {}", entries(written), bytes(len)));
        }
        Ok(interrupt.check()?)
    };
    let walked = if args.skip_damaged {
        skipping::walk(&db, &partition, &mut visit).map(|skipped| skipped.places.len() as u64)
    } else {
        walk(&partition, &mut visit).map(|()| 0)
    };
    let ended = walked.and_then(|skipped| writer.finish().map(|()| skipped));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let skipped = ended.map_err(|failure| incomplete(failure, args))?;
    let name = partition.name().to_owned();
    drop(partition);
    db.close()?;
    match (&args.output, store.json) {
        (Some(_), true) => print_document(
            &json!({"partition": name, "entries": written, "bytes": len, "skipped_damaged_places": skipped}),
        ),
        (Some(path), false) => {
            note(format!("wrote {} ({}) to {}", entries(written), bytes(len), path.display()));
            Ok(())
        }
        (None, _) => Ok(()),
    }?;
    if skipped == 0 {
        return Ok(());
    }
    let places = counted(skipped, "damaged place; its", "damaged places; their");
    let message = format!("skipped {places} keys are not in the dump");
    Err(Failure::damage(message).hint("`pleach repair --into NEW` salvages older values of such keys, too"))
}

/// Calls `visit` with all entries. The first damage is an error.
fn walk(partition: &Partition, visit: &mut skipping::Visit<'_>) -> Result<()> {
    for entry in partition {
        let (key, value) = entry?;
        visit(&key, &value)?;
    }
    Ok(())
}

/// Adds a hint about dumps to a failure.
fn incomplete(failure: Failure, args: &DumpArgs) -> Failure {
    let mut hints: Vec<String> = failure.hint.clone().into_iter().collect();
    if failure.exit == Exit::Damage && !args.skip_damaged {
        hints.push("--skip-damaged dumps the entries around the damage".to_owned());
    }
    if let Some(path) = &args.output {
        hints.push(format!("{} does not hold all entries", path.display()));
    }
    if hints.is_empty() { failure } else { failure.hint(hints.join("; ")) }
}

fn writer(output: Output, args: &DumpArgs) -> Result<Box<dyn Writer>> {
    let form = if args.hex { Form::Hex } else { Form::Escaped };
    Ok(match args.format {
        Format::Jsonl => Box::new(formats::Jsonl { output, hex: args.hex }),
        Format::Tsv => Box::new(formats::Tsv { output, form }),
        Format::Csv => Box::new(formats::Csv::new(output, args.hex)?),
        Format::Lines => Box::new(formats::Lines { output, hex: args.hex }),
        Format::Values => Box::new(formats::Values { output, stanzas: false }),
        Format::Stanzas => Box::new(formats::Values { output, stanzas: true }),
    })
}
