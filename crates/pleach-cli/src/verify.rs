//! `pleach verify`: reads every live file and reports all damage. If the store cannot be opened, it reads the files as `pleach
//! repair` does, without writing.

use std::time::Instant;

use indicatif::ProgressBar;
use pleach::{Db, Options, RepairReport, Stats, VerifyReport};
use pleach_command::{Interrupt, SecondSignal};
use serde_json::json;

use crate::damage::{places_json, report_json, tell_places};
use crate::failure::{Exit, Failure, Result};
use crate::open::StoreArgs;
use crate::output::{Output, bytes, counted, entries, files, print_document};
use crate::progress;

const REPAIR: &str = "restore the damaged files from a backup, or salvage the rest: pleach repair --into NEW";

pub(crate) fn run(store: &StoreArgs) -> Result<()> {
    store.check_no_partition("verify")?;
    let started = Instant::now();
    let interrupt = Interrupt::install(SecondSignal::EndsProcess)?;
    let db = match store.open() {
        Ok(db) => db,
        Err(failure) if failure.exit == Exit::Damage => return survey(store, &failure, &interrupt),
        Err(failure) => return Err(failure),
    };
    let bar = bar_over(&db);
    let checked = db.verify_all(&mut |checked, total| {
        bar.set_length(total);
        bar.set_position(checked);
        !interrupt.is_asked()
    });
    bar.finish_and_clear();
    let (report, damage) = checked?;
    interrupt.check()?;
    let stats = db.stats();
    db.close()?;
    let seconds = started.elapsed().as_secs_f64();
    if store.json {
        let first = damage.first();
        print_document(&json!({
            "ok": damage.is_empty(),
            "ssts": report.ssts,
            "bytes": report.bytes,
            "entries": report.entries,
            "value_files": report.value_files,
            "values": report.values,
            "value_bytes": report.value_bytes,
            "seconds": seconds,
            "log_was_torn": stats.log_was_torn,
            "log_dropped_records": stats.log_dropped_records,
            "log_dropped_bytes": stats.log_dropped_bytes,
            "message": first.map(|place| place.error.to_string()),
            "file": first.map(|place| place.path.display().to_string()),
            "offset": first.and_then(|place| place.offset),
            "damage": places_json(&damage),
        }))?;
    }
    if damage.is_empty() {
        return if store.json { Ok(()) } else { print(report, &stats, seconds) };
    }
    let places = damage.len() as u64;
    let told = if store.json { places } else { tell_places(&damage, places) };
    Err(Failure::damage(counted(told, "damaged place", "damaged places")).hint(REPAIR))
}

/// A bar over the bytes of all files.
fn bar_over(db: &Db) -> ProgressBar {
    let stats = db.stats();
    let bar = progress::over_bytes(Some(stats.sst_bytes + stats.value_bytes));
    bar.set_message("checking");
    bar
}

/// Checks all files, with a bar; the first damage is an error.
pub(crate) fn check(db: &Db, interrupt: &Interrupt) -> Result<VerifyReport> {
    let bar = bar_over(db);
    let report = db.verify_with(&mut |checked, total| {
        bar.set_length(total);
        bar.set_position(checked);
        !interrupt.is_asked()
    });
    bar.finish_and_clear();
    let report = report?;
    interrupt.check()?;
    Ok(report)
}

fn print(report: VerifyReport, stats: &Stats, seconds: f64) -> Result<()> {
    let mut output = Output::stdout();
    let log = if stats.log_was_torn { "what is left of the log" } else { "the log" };
    let ssts = format!("{} ({}, {})", files(report.ssts), bytes(report.bytes), entries(report.entries));
    let read = if report.value_files == 0 {
        format!("{log} and {ssts}")
    } else {
        let value_files = counted(report.value_files, "file of values", "files of values");
        let values = counted(report.values, "value", "values");
        format!("{log}, {ssts} and {value_files} ({}, {values})", bytes(report.value_bytes))
    };
    output.line(format!("no damage found in {read}; took {seconds:.2} s"))?;
    output.finish()
}

/// Reports all damage of a store that could not be opened because of `failure`.
fn survey(store: &StoreArgs, failure: &Failure, interrupt: &Interrupt) -> Result<()> {
    let bar = progress::over_bytes(Some(0));
    bar.set_message("surveying");
    let surveyed = pleach::survey(store.dir()?, &Options::new(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        !interrupt.is_asked()
    });
    bar.finish_and_clear();
    let report = surveyed?;
    interrupt.check()?;
    if store.json {
        print_survey(&report, failure)?;
    } else {
        tell_places(&report.damage, report.damaged_places);
    }
    Err(Failure::damage(format!("the store cannot be opened: {}", failure.message)).hint(REPAIR))
}

fn print_survey(report: &RepairReport, failure: &Failure) -> Result<()> {
    let mut document = report_json(report);
    let first = report.damage.first();
    document["ok"] = false.into();
    document["message"] = failure.message.clone().into();
    document["file"] = first.map(|place| place.path.display().to_string()).into();
    document["offset"] = first.and_then(|place| place.offset).into();
    print_document(&document)
}
