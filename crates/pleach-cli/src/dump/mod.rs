//! `pleach dump`: a whole partition as text, streamed in key order.

mod formats;
mod lost_values;
mod skipping;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pleach::{Error, Partition, Range};
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
    /// Write to a file instead of standard output; an earlier file is replaced when the dump is whole
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// jsonl, tsv, csv, lines: keys and values in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Go on behind damage; standard error lists what was skipped, and the exit code is 2. Of a
    /// value that is stored apart, only its entry is skipped
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

/// Called with each key and value.
type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

/// What the format has of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Entries,
    /// Values are not read, and are visited as empty ones.
    Keys,
}

impl Format {
    fn wanted(self) -> Wanted {
        if self == Self::Lines { Wanted::Keys } else { Wanted::Entries }
    }
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
    let unchanged = output.is_replacement();
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
    let wanted = args.format.wanted();
    let walked = if args.skip_damaged {
        skipping::walk(&db, &partition, wanted, &mut visit)
    } else {
        walk(&partition, wanted, &mut visit).map(|()| skipping::Skipped::default())
    };
    let ended = walked.and_then(|skipped| writer.finish().map(|()| skipped));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let skipping::Skipped { blocks, values } =
        ended.map_err(|failure| incomplete(failure, args, unchanged))?;
    let skipped = blocks + values;
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
    Err(Failure::damage(message).hint(if blocks == 0 {
        "restore the damaged files from a backup to have these values"
    } else {
        "`pleach repair --into NEW` salvages older values of keys in damaged blocks, too"
    }))
}

/// Calls `visit` with all entries. The first damage is an error.
fn walk(partition: &Partition, wanted: Wanted, visit: &mut Visit<'_>) -> Result<()> {
    let error = visit_range(&mut partition.iter(), wanted, visit)?;
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// Calls `visit` with the entries of `range`. Returns the error that ended the range, if there was one.
fn visit_range(range: &mut Range, wanted: Wanted, visit: &mut Visit<'_>) -> Result<Option<Error>> {
    loop {
        let next = match wanted {
            Wanted::Entries => range.next_entry(),
            Wanted::Keys => range.next_key().map(|next| next.map(|(key, _)| (key, &[][..]))),
        };
        match next {
            Ok(Some((key, value))) => visit(key, value)?,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        }
    }
}

/// Adds a hint about dumps to a failure. `unchanged`: the output is a file that is written only by a whole dump.
fn incomplete(failure: Failure, args: &DumpArgs, unchanged: bool) -> Failure {
    let mut hints: Vec<String> = failure.hint.clone().into_iter().collect();
    if failure.exit == Exit::Damage && !args.skip_damaged {
        hints.push("--skip-damaged dumps the entries around the damage".to_owned());
    }
    if let Some(path) = &args.output {
        let state = if unchanged { "was not written" } else { "does not hold all entries" };
        hints.push(format!("{} {state}", path.display()));
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
