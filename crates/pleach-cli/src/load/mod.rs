//! `pleach load`: reads entries from a file or standard input and writes them in batches.
//!
//! [`source`] delivers bytes, a format cuts them into [`Record`]s, [`Loader`] commits them. A record that violates the format or
//! the engine's limits is *malformed*. It ends the load with an error that names its line, or it is skipped and counted.

mod columns;
mod csv;
mod jsonl;
mod lines;
mod loader;
mod outcome;
mod quotes;
mod record;
mod source;
mod stanzas;
mod tsv;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use pleach::Db;
use pleach_command::{Interrupt, SecondSignal};

use crate::failure::{Exit, Failure, Result};
use crate::open::StoreArgs;
use loader::{First, Loader};
use record::Records;
use source::{Source, open_source, skip_byte_order_mark};

/// Loads of at least this size end with a flush. Recovery of less takes a few milliseconds.
const FLUSHED_BYTES_MIN: u64 = 1 << 20;

#[derive(Args)]
#[command(after_help = "Formats:
  lines    the line is the key, the value is empty (--number: the line's number)
  tsv      columns with the escapes that `dump` writes, unless --no-escapes
  csv      a header row, then columns, quoted as usual
  jsonl    as `dump` writes it; with --key-field any objects, each whole line
           is a value
  stanzas  \"Field: value\" lines, stanzas separated by empty lines, as printed by
           `apt-cache dumpavail`; the value is the stanza's bytes
Of tsv and csv rows with two columns, one is the key and the other one the
value. Of rows with more columns the whole row is the value, unless
--value-column chooses one: a JSON object with the names of the csv header, or
a JSON array where there is no header.
Carriage returns are kept: use --crlf for lines that end with \\r\\n.
A key that comes again replaces the earlier one; the summary counts these.
A store or partition that is missing is created.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct LoadArgs {
    /// File to read; "-" for standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Format of the input [default: by the file's extension]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// tsv, csv: column of the key, a number from 1 or a name of the csv header [default: 1]
    #[arg(long, value_name = "COLUMN")]
    key_column: Option<String>,
    /// tsv, csv: column of the value [default: the other one of two, else the whole row]
    #[arg(long, value_name = "COLUMN")]
    value_column: Option<String>,
    /// tsv, csv: the value is the whole row as JSON, even of two columns
    #[arg(long, conflicts_with = "value_column")]
    whole_row: bool,
    /// lines, tsv: lines end with \r\n
    #[arg(long)]
    crlf: bool,
    /// csv: the first row is data already
    #[arg(long)]
    no_header: bool,
    /// tsv: a backslash is just a backslash
    #[arg(long)]
    no_escapes: bool,
    /// jsonl, stanzas: field that holds the key [default for stanzas: Package]
    #[arg(long, value_name = "FIELD")]
    key_field: Option<String>,
    /// jsonl: field that holds the value [default: the whole line is the value]
    #[arg(long, value_name = "FIELD", requires = "key_field")]
    value_field: Option<String>,
    /// lines: the value is the line's number
    #[arg(long)]
    number: bool,
    /// lines, tsv, csv: keys and values are in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Entries written together; a batch is also full at 1 MiB
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: u64,
    /// Wait after each batch until it is on the medium
    #[arg(long)]
    sync: bool,
    /// Skip and count malformed input instead of ending there
    #[arg(long)]
    skip_malformed: bool,
    /// Do not create a missing store or partition
    #[arg(long)]
    no_create: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Lines,
    Tsv,
    Csv,
    #[value(alias = "ndjson")]
    Jsonl,
    #[value(alias = "debian")]
    Stanzas,
}

impl LoadArgs {
    fn format(&self) -> Result<Format> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let extension = self.file.extension().unwrap_or_default().to_ascii_lowercase();
        match extension.to_str().unwrap_or_default() {
            "txt" | "lst" => Ok(Format::Lines),
            "tsv" => Ok(Format::Tsv),
            "csv" => Ok(Format::Csv),
            "jsonl" | "ndjson" => Ok(Format::Jsonl),
            _ if self.file.is_dir() => Err(source::is_directory(&self.file)),
            _ => Err(Failure::usage("the format of the input is not known")
                .hint("use --format lines, tsv, csv, jsonl or stanzas")),
        }
    }

    /// An error when an option was given that the format would ignore.
    fn check(&self, format: Format) -> Result<()> {
        let columns = matches!(format, Format::Tsv | Format::Csv);
        let given_and_fitting = [
            ("--key-column", self.key_column.is_some(), columns),
            ("--value-column", self.value_column.is_some(), columns),
            ("--whole-row", self.whole_row, columns),
            ("--crlf", self.crlf, matches!(format, Format::Lines | Format::Tsv)),
            ("--no-header", self.no_header, format == Format::Csv),
            ("--no-escapes", self.no_escapes, format == Format::Tsv),
            ("--key-field", self.key_field.is_some(), matches!(format, Format::Jsonl | Format::Stanzas)),
            ("--value-field", self.value_field.is_some(), format == Format::Jsonl),
            ("--number", self.number, format == Format::Lines),
            ("--hex", self.hex, columns || format == Format::Lines),
        ];
        match given_and_fitting.iter().find(|(_, given, fits)| *given && !fits) {
            Some((name, ..)) => {
                let format = format.to_possible_value();
                let format = format.as_ref().map_or("", |value| value.get_name());
                Err(Failure::usage(format!("{name} does not apply to the format {format}")))
            }
            None => Ok(()),
        }
    }

    fn records(&self, format: Format, source: Source) -> Result<Box<dyn Records>> {
        Ok(match format {
            Format::Lines => Box::new(lines::Lines::new(source, self.number, self.hex, self.crlf)),
            Format::Tsv => Box::new(tsv::Tsv::new(source, self)?),
            Format::Csv => Box::new(csv::Csv::new(source, self)?),
            Format::Jsonl => {
                Box::new(jsonl::Jsonl::new(source, self.key_field.clone(), self.value_field.clone()))
            }
            Format::Stanzas => {
                Box::new(stanzas::Stanzas::new(source, self.key_field.as_deref().unwrap_or("Package")))
            }
        })
    }

    /// The input as messages call it.
    fn input_name(&self) -> &Path {
        if self.file.as_os_str() == "-" { Path::new("standard input") } else { &self.file }
    }
}

pub(crate) fn run(store: &StoreArgs, args: &LoadArgs) -> Result<()> {
    let format = args.format()?;
    args.check(format)?;
    store.check_partition_name()?;
    let interrupt = Interrupt::install(SecondSignal::EndsProcess)?;
    // The input is opened first: no store is created for an input that is missing or unreadable.
    let (mut source, bar) = open_source(&args.file, &interrupt)?;
    let skipped = format != Format::Lines && skip_mark(&mut source, args)?;
    // Input that an interrupt has cut off looks malformed.
    let or_interrupted = |failure| interrupt.check().map_or_else(Failure::from, |()| failure);
    let mut records = args.records(format, source).map_err(or_interrupted)?;
    let first = First::read(&mut *records, args).map_err(or_interrupted)?;
    interrupt.check()?;
    let db = store.open_or_create(args.no_create)?;
    let partition = store.partition_or_create(&db, args.no_create)?;
    let mut loader = Loader::new(&db, &partition, args, bar);
    let result = loader.load(first, &mut *records, &interrupt);
    let mut outcome = loader.finish();
    outcome.skipped_mark = skipped;
    outcome.kept_returns = records.kept_returns();
    drop(partition);
    let closed = close(db, outcome.bytes);
    outcome.report(worse_of(result, closed), store.json, args.input_name())
}

/// The first of two failures, unless it is an interrupt: what could not be written must be told.
fn worse_of(first: Result<()>, second: Result<()>) -> Result<()> {
    match (first, second) {
        (Err(first), Err(second)) if first.exit == Exit::Interrupted => Err(second),
        (first, second) => first.and(second),
    }
}

fn skip_mark(source: &mut Source, args: &LoadArgs) -> Result<bool> {
    skip_byte_order_mark(source).map_err(|e| Failure::io("read", args.input_name(), &e))
}

/// Makes the load durable. A large one is also flushed, so that the next open need not recover it from the log.
fn close(db: Db, loaded_bytes: u64) -> Result<()> {
    if loaded_bytes >= FLUSHED_BYTES_MIN {
        db.flush()?;
    }
    Ok(db.close()?)
}
