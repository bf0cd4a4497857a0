//! Step 3 of the demo: a child process writes and is killed with SIGKILL meanwhile; no acknowledged write may be lost.
//!
//! The claim: after the kill the store holds exactly the first n batches of the child, whole and in order, and n is at least
//! the number of the last acknowledged batch.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pleach::Db;
use signal_hook::consts::SIGKILL;

use super::data::{key, value};
use super::report::Report;
use super::writer::{BATCH, LEDGER};
use super::{Demo, check};
use crate::failure::{Exit, Failure, Result};
use crate::output::{count, entries};
use crate::progress;

/// How long the child may take to open the store and commit its first batch.
const START_MAX: Duration = Duration::from_secs(60);

pub(super) fn run(demo: &Demo<'_>, report: &mut Report) -> Result<()> {
    report.step("Crash: a child process writes batches of 100 entries and is killed")?;
    let acknowledged = write_and_kill(demo)?;
    let had = format!("{} batches acknowledged, every other one synced", count(acknowledged));
    report.detail(format!("SIGKILL after {} ms: {had}", demo.kill_after))?;
    let started = Instant::now();
    let db = demo.open()?;
    let opened = started.elapsed().as_secs_f64();
    let found = count_ledger(demo, &db)?;
    db.close()?;
    report.detail(format!("opened again in {:.0} ms, recovery included", opened * 1e3))?;
    check(found.is_multiple_of(BATCH), || format!("{found} entries are no whole batches of {BATCH}"))?;
    let batches = found / BATCH;
    check(batches >= acknowledged, || {
        format!("{acknowledged} batches were acknowledged, only {batches} are there")
    })?;
    let there = format!("{} batches there, {} acknowledged", count(batches), count(acknowledged));
    report.detail(format!("{} read and compared, whole batches without a gap", entries(found)))?;
    report.result("after the kill", format!("{there}: 0 lost, 0 torn"))?;
    report.record(
        "crash",
        &[("acknowledged_batches", acknowledged), ("found_batches", batches), ("found_entries", found)],
    );
    Ok(())
}

/// Lets the child write for a while; returns how many batches it acknowledged.
fn write_and_kill(demo: &Demo<'_>) -> Result<u64> {
    let (mut child, stdout) = start_child(demo)?;
    let (first, first_seen) = channel();
    let reader = read_acknowledgements(stdout, first);
    let spinner = progress::working("the child writes");
    let waited = first_seen.recv_timeout(START_MAX);
    if waited.is_ok() {
        std::thread::sleep(Duration::from_millis(demo.kill_after));
    }
    spinner.finish_and_clear();
    // An error means that the child has ended by itself; its status is checked below.
    let _ended_before = child.kill();
    let status = child.wait().map_err(|e| failed("wait for the writer", &e))?;
    let acknowledged =
        reader.join().map_err(|_| Failure::damage("the acknowledgements could not be read"))?;
    demo.interrupt.check()?;
    if waited == Err(RecvTimeoutError::Timeout) {
        return Err(Failure::damage(format!("CHECK FAILED: the writer wrote nothing within {START_MAX:?}")));
    }
    check(status.signal() == Some(SIGKILL), || format!("the writer ended by itself, {status}"))?;
    acknowledged
}

fn start_child(demo: &Demo<'_>) -> Result<(Child, ChildStdout)> {
    let program = std::env::current_exe().map_err(|e| failed("find this program", &e))?;
    let mut command = Command::new(program);
    command.arg("demo-writer").arg("--db").arg(demo.dir);
    if let Some(memory) = demo.memory {
        command.arg("--memory").arg(memory.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed("start the writer", &e))?;
    let stdout = child.stdout.take().expect("standard output is a pipe");
    Ok((child, stdout))
}

/// Reads batch numbers, which must come in order, until the pipe ends. Notifies `first` of the first one.
fn read_acknowledgements(stdout: ChildStdout, first: Sender<()>) -> JoinHandle<Result<u64>> {
    std::thread::spawn(move || {
        let mut acknowledged = 0;
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|e| failed("read acknowledgements", &e))?;
            check(line.parse() == Ok(acknowledged), || {
                format!("batch {acknowledged} was acknowledged as {line:?}")
            })?;
            acknowledged += 1;
            // After the first one the receiver is gone.
            let _unheard = first.send(());
        }
        Ok(acknowledged)
    })
}

/// Counts the entries in the ledger. Checks that they are the first ones, without a gap.
fn count_ledger(demo: &Demo<'_>, db: &Db) -> Result<u64> {
    let Some(ledger) = db.find_partition(LEDGER) else {
        return Err(Failure::damage("CHECK FAILED: the partition that the writer created is gone"));
    };
    let mut found = 0;
    for entry in &ledger {
        let (found_key, found_value) = entry?;
        let right = found_key == key(found) && found_value == value(LEDGER, found);
        check(right, || format!("entry {found} of the ledger is missing or wrong"))?;
        found += 1;
    }
    demo.interrupt.check()?;
    Ok(found)
}

fn failed(action: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Io, format!("cannot {action}: {error}"))
}
