//! `pleach verify`: reads every live file and checks it. The log is checked by opening the store.

use std::time::Instant;

use pleach::{Db, Error, ErrorKind, VerifyReport};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::open::{StoreArgs, open_dir};
use crate::output::{Output, bytes, entries, print_document};
use crate::progress;

pub(crate) fn run(store: &StoreArgs) -> Result<()> {
    let started = Instant::now();
    let db = match store.open() {
        Ok(db) => db,
        Err(failure) if failure.exit == Exit::Damage && store.json => return opened_damaged(store, failure),
        Err(failure) => return Err(failure),
    };
    match check(&db, &Interrupt::install()?) {
        Ok(report) => {
            db.close()?;
            print(store, report, started.elapsed().as_secs_f64())
        }
        Err(Checked::Damaged(error)) => damaged(store, &error),
        Err(Checked::Failed(failure)) => Err(failure),
    }
}

/// Why a check ended early.
pub(crate) enum Checked {
    Damaged(Error),
    Failed(Failure),
}

impl From<Checked> for Failure {
    fn from(checked: Checked) -> Self {
        match checked {
            Checked::Damaged(error) => error.into(),
            Checked::Failed(failure) => failure,
        }
    }
}

/// Checks all files, with a bar.
pub(crate) fn check(db: &Db, interrupt: &Interrupt) -> Result<VerifyReport, Checked> {
    let bar = progress::over_bytes(Some(db.stats().sst_bytes));
    bar.set_message("checking");
    let report = db.verify_with(&mut |checked, total| {
        bar.set_length(total);
        bar.set_position(checked);
        !interrupt.is_asked()
    });
    bar.finish_and_clear();
    match report {
        Ok(_) if interrupt.is_asked() => Err(Checked::Failed(Failure::new(Exit::Interrupted, "interrupted"))),
        Ok(report) => Ok(report),
        Err(error) if error.kind() == ErrorKind::Corruption => Err(Checked::Damaged(error)),
        Err(error) => Err(Checked::Failed(error.into())),
    }
}

fn print(store: &StoreArgs, report: VerifyReport, seconds: f64) -> Result<()> {
    if store.json {
        return print_document(&json!({
            "ok": true,
            "ssts": report.ssts,
            "bytes": report.bytes,
            "entries": report.entries,
            "seconds": seconds,
        }));
    }
    let files = if report.ssts == 1 { "file" } else { "files" };
    let mut output = Output::stdout();
    let size = format!("{} {files}, {}, {}", report.ssts, bytes(report.bytes), entries(report.entries));
    output.line(format!("no damage found: the log; {size} in {seconds:.2} s"))?;
    output.finish()
}

/// The store could not even be opened. Opens it once more for the parts of the error.
fn opened_damaged(store: &StoreArgs, failure: Failure) -> Result<()> {
    match open_dir(store.dir()?, false, store.memory) {
        Err(error) if error.kind() == ErrorKind::Corruption => damaged(store, &error),
        _ => Err(failure),
    }
}

fn damaged(store: &StoreArgs, error: &Error) -> Result<()> {
    if store.json {
        print_document(&json!({
            "ok": false,
            "message": error.to_string(),
            "file": error.path().map(|path| path.display().to_string()),
            "offset": error.offset(),
        }))?;
    }
    Err(error.clone().into())
}
