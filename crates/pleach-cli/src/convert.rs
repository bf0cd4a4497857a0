//! `pleach convert`: copies separated values into the order of their keys, of all partitions or of one.

use std::time::Instant;

use clap::Args;
use pleach::{Partition, Stats};
use pleach_command::{Interrupt, SecondSignal};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::open::StoreArgs;
use crate::output::{Output, Table, bytes, count, counted, note, print_document, warn};
use crate::progress;

#[derive(Args)]
#[command(after_help = "\
Large values can be stored apart from their keys, in files of their own, where
they lie in the order in which they were written (the option separate_at of the
application that writes the store). This command merges each partition into one
run and copies these values into the order of their keys. Scans then read them
one after the other. Values that are in order already, and values of 64 KiB and
more, stay where they are.

Old copies are removed as the conversion goes on, and the files stay below the
space target. If there is no room for all copies, it is done in several passes,
and space is freed between them. A higher target needs fewer passes.

Ctrl-C ends it between two steps. What was copied stays, and the next run copies
the rest.")]
pub(crate) struct ConvertArgs {
    /// Space that separated values may take meanwhile, as a multiple of those that are live: 1.1 to 4 [default: 1.3]
    #[arg(long, value_name = "RATIO")]
    space_target: Option<f64>,
}

/// What was done.
struct Outcome {
    before: Stats,
    after: Stats,
    /// Passes over a partition, all partitions together.
    passes: u64,
    /// Bytes of values that found no room.
    left: u64,
    seconds: f64,
}

pub(crate) fn run(store: &StoreArgs, args: &ConvertArgs) -> Result<()> {
    let (started, interrupt) = (Instant::now(), Interrupt::install(SecondSignal::EndsProcess)?);
    let db = store.open_changed(|options| match args.space_target {
        Some(ratio) => options.space_target(ratio),
        None => options,
    })?;
    let partitions = store.chosen_partitions(&db)?;
    let spinner = progress::working("writing the memtable to files");
    let flushed = db.flush();
    spinner.finish_and_clear();
    flushed?;
    let before = db.stats();
    let converted = convert(partitions, &interrupt);
    let (after, seconds) = (db.stats(), started.elapsed().as_secs_f64());
    let closed = db.close();
    let copied = copied(&before, &after);
    let Converted { passes, left, interrupted } =
        converted.map_err(|failure| failure_of(failure, &copied))?;
    closed?;
    if interrupted {
        let message = format!("interrupted: {copied}");
        return Err(Failure::new(Exit::Interrupted, message).hint(STAYS));
    }
    let outcome = Outcome { before, after, passes, left, seconds };
    if store.json { print_document(&outcome.json()) } else { outcome.print() }
}

const STAYS: &str = "what was copied stays copied; run the command again to copy the rest";

/// How the conversion of all chosen partitions ended.
struct Converted {
    passes: u64,
    left: u64,
    interrupted: bool,
}

fn convert(partitions: Vec<Partition>, interrupt: &Interrupt) -> Result<Converted> {
    let mut with_values = Vec::new();
    for partition in partitions {
        let value_bytes = partition.stats()?.value_bytes;
        if value_bytes > 0 {
            with_values.push((partition, value_bytes));
        }
    }
    let mut done = Converted { passes: 0, left: 0, interrupted: interrupt.is_asked() };
    for (number, (partition, value_bytes)) in (1..).zip(&with_values) {
        if done.interrupted {
            break;
        }
        let what = format!("\"{}\", {number} of {}", partition.name().escape_debug(), with_values.len());
        done.left += convert_one(partition, *value_bytes, &what, interrupt, &mut done.passes)?;
        done.interrupted = interrupt.is_asked();
    }
    Ok(done)
}

/// Converts a partition, with a bar. Returns the bytes of values that were left for want of room.
fn convert_one(
    partition: &Partition,
    value_bytes: u64,
    what: &str,
    interrupt: &Interrupt,
    passes: &mut u64,
) -> Result<u64> {
    let bar = progress::over_bytes(Some(value_bytes));
    bar.set_message(format!("converting {what}"));
    let (mut pass, mut passed_before) = (1, 0);
    let left = partition.convert_with(&mut |passed, all| {
        if passed < passed_before {
            pass += 1;
            bar.set_message(format!("converting {what}, pass {pass}"));
        }
        passed_before = passed;
        bar.set_length(all);
        bar.set_position(passed);
        !interrupt.is_asked()
    });
    bar.finish_and_clear();
    *passes += pass;
    Ok(left?)
}

/// `copied 1,000 values (1 MiB)`.
fn copied(before: &Stats, after: &Stats) -> String {
    let values = after.values_converted - before.values_converted;
    let size = bytes(after.value_converted_bytes - before.value_converted_bytes);
    format!("copied {} ({size})", counted(values, "value", "values"))
}

/// A failure in the middle, which leaves the copies that were made.
fn failure_of(mut failure: Failure, copied: &str) -> Failure {
    failure.message = format!("{}; {copied} before that", failure.message);
    match failure.hint.take() {
        Some(hint) => failure.hint(format!("{hint}; {STAYS}")),
        None => failure.hint(STAYS),
    }
}

impl Outcome {
    /// Whether there was nothing to convert.
    fn is_empty(&self) -> bool {
        self.passes == 0
    }

    fn json(&self) -> Value {
        let (before, after) = (&self.before, &self.after);
        json!({
            "values_converted": after.values_converted - before.values_converted,
            "value_converted_bytes": after.value_converted_bytes - before.value_converted_bytes,
            "left_bytes": self.left,
            "passes": self.passes,
            "before": json_of(before),
            "after": json_of(after),
            "seconds": self.seconds,
        })
    }

    fn print(&self) -> Result<()> {
        if self.is_empty() {
            note("nothing to do: no value is stored apart from its key");
            return Ok(());
        }
        let mut table = Table::new(&["", "BEFORE", "AFTER"], 1);
        let mut row = |name: &str, of: fn(&Stats) -> u64, text: fn(u64) -> String| {
            table.row([name.to_owned(), text(of(&self.before)), text(of(&self.after))]);
        };
        row("files of values", |s| s.value_files, count);
        row("bytes", |s| s.value_file_bytes, bytes);
        row("values", |s| s.values, count);
        row("bytes of values", |s| s.value_bytes, bytes);
        row("files of keys", |s| s.ssts, count);
        let mut output = Output::stdout();
        table.print(&mut output)?;
        let passes = counted(self.passes, "pass", "passes");
        let copied = copied(&self.before, &self.after);
        output.line(format!("{copied} in {:.2} s and {passes}", self.seconds))?;
        output.finish()?;
        if self.left > 0 {
            warn(format!(
                "values of {} were left where they are: there was no room for copies below the space target, or on the \
                 disk; free some space, or give more room, such as --space-target 2, and run the command again",
                bytes(self.left)
            ));
        }
        Ok(())
    }
}

fn json_of(stats: &Stats) -> Value {
    json!({
        "value_files": stats.value_files,
        "value_file_bytes": stats.value_file_bytes,
        "values": stats.values,
        "value_bytes": stats.value_bytes,
        "ssts": stats.ssts,
        "sst_bytes": stats.sst_bytes,
    })
}
