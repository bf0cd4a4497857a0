//! `pleach repair`: copies everything readable of a damaged store into a new one.
//!
//! The new store is written under the name `NEW.incomplete` and renamed at the end. So the leftover of an interrupted repair is
//! never taken for a whole store.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use pleach::{Options, RepairReport};
use pleach_command::{Interrupt, SecondSignal};

use crate::damage::{report_json, tell_places};
use crate::failure::{Exit, Failure, Result, is_refused};
use crate::open::StoreArgs;
use crate::output::{bytes, complain, count, counted, entries, note, print_document};
use crate::progress;
use crate::replaced::sync_folder_of;

#[derive(Args)]
#[command(after_help = "Reads every block and log record that is whole, and writes its entries into a new
store. The damaged store (--db) is only read. The report names what is missing.
Where the manifest cannot be read, owners and ages are guessed from the files:
deleted keys, old values and dropped partitions may come back then, and the
report says so. With separated values (the option separate_at of the library)
that is likely, because their log segments have old writes, too. Partitions
without a known name are called recovered-N.

Exit codes: 0 nothing was damaged, 2 something was (the new store is there).")]
pub(crate) struct RepairArgs {
    /// Directory of the new store; must not exist
    #[arg(long, value_name = "NEW")]
    into: PathBuf,
}

const REFUSED: &str = "repair reads the damaged store's files and creates a directory for the new one: check owner and \
     permissions of both with `ls -la`";

pub(crate) fn run(store: &StoreArgs, args: &RepairArgs) -> Result<()> {
    store.check_no_partition("repair")?;
    let from = store.dir()?;
    let half_made = check_target(from, &args.into)?;
    let mut options = Options::new();
    if let Some(memory) = store.memory {
        options = options.memory(memory);
    }
    let (started, interrupt) = (Instant::now(), Interrupt::install(SecondSignal::EndsProcess)?);
    let bar = progress::over_bytes(Some(0));
    bar.set_message("salvaging");
    let repaired = pleach::repair(from, &half_made, options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        !interrupt.is_asked()
    });
    bar.finish_and_clear();
    let left = || {
        if half_made.exists() {
            return format!("{} is incomplete: remove it before another try", half_made.display());
        }
        "nothing was created".to_owned()
    };
    let report = match repaired {
        Ok(report) if report.complete => report,
        Ok(_) => return Err(Failure::new(Exit::Interrupted, "interrupted").hint(left())),
        Err(error) => {
            let refused = is_refused(&error);
            let mut failure = Failure::from(error);
            if refused {
                failure = failure.hint(REFUSED);
            }
            let hint = match &failure.hint {
                Some(hint) => format!("{hint}; {}", left()),
                None => left(),
            };
            return Err(failure.hint(hint));
        }
    };
    rename(&half_made, &args.into).map_err(|e| Failure::io("rename to the new store", &half_made, &e))?;
    tell(store, &args.into, &report, started.elapsed().as_secs_f64())
}

/// The temporary name of the new store. An error if it or the final name exists.
fn check_target(from: &Path, into: &Path) -> Result<PathBuf> {
    let mut name = into.file_name().map(OsString::from).unwrap_or_default();
    if name.is_empty() {
        return Err(Failure::usage(format!("{} is no name for a new store", into.display())));
    }
    name.push(".incomplete");
    let half_made = into.with_file_name(name);
    for path in [into, &half_made] {
        if std::fs::symlink_metadata(path).is_ok() {
            return Err(Failure::usage(format!("{} exists already", path.display()))
                .hint("repair writes into a new directory; give another name, or remove this one"));
        }
    }
    let parent = into.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let (Ok(parent), Ok(from)) = (parent.canonicalize(), from.canonicalize())
        && parent.starts_with(&from)
    {
        return Err(Failure::usage("the new store cannot lie inside the damaged one")
            .hint("give a directory elsewhere"));
    }
    Ok(half_made)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    sync_folder_of(to)
}

fn tell(store: &StoreArgs, into: &Path, report: &RepairReport, seconds: f64) -> Result<()> {
    if store.json {
        print_document(&report_json(report))?;
    } else {
        let places = tell_places(&report.damage, report.damaged_places);
        if let Some(why) = &report.guessed {
            complain(format!("the manifest cannot be used: {why}"));
            note(
                "owners and ages of files were guessed: deleted keys, old values and dropped partitions may have come \
                 back",
            );
        }
        if !report.recovered_names.is_empty() {
            note(format!("names that were made up: {}", report.recovered_names.join(", ")));
        }
        if report.dropped_entries > 0 {
            note(format!("passed over {} of dropped partitions", entries(report.dropped_entries)));
        }
        let (size, ssts) = (bytes(report.bytes), counted(report.ssts, "SST", "SSTs"));
        let records = counted(report.log_records, "log record", "log records");
        note(format!(
            "salvaged {} from {ssts} and {records} ({size}) into {} in {seconds:.2} s",
            entries(report.entries),
            into.display()
        ));
        note(if places == 0 {
            "no damage found".to_owned()
        } else {
            format!("damaged places: {}", count(places))
        });
    }
    if report.is_clean() { Ok(()) } else { Err(Failure::quiet(Exit::Damage)) }
}
