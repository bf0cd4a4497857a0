//! A process for each engine, so that one engine's memory, threads and faults are not another's.
//!
//! The parent writes the task to the child's standard input as JSON; the child appends one line of JSON for each
//! workload to a file and exits. It does not use standard output, because an engine may print to it. The parent reads the
//! lines as they come, and removes the store after the child has ended for any reason.
//!
//! A workload that fails ends its process; the next workloads get another. A process that fails before its first record is the
//! engine's last.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pleach_command::{Interrupt, SecondSignal};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::accounting::unknown_record;
use super::kept::KeptStore;
use super::limit::MemoryLimit;
use super::measured::NO_CONVERSION;
use super::record::Record;
use super::runner::run_workloads;
use super::settings::Settings;
use crate::engine::{EngineFactory, Result};

/// Longest and shortest time between two looks of the parent at its child. In between it is a tenth of the child's age, so that a
/// figure of many small runs does not wait.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_MIN: Duration = Duration::from_millis(5);
/// Time a child has after an interrupt to close its store: arbitrary.
const GRACE: Duration = Duration::from_secs(10);

/// What a child is to do.
#[derive(Serialize, Deserialize)]
struct ChildTask {
    engine: String,
    settings: Settings,
    /// Where to append records.
    results: PathBuf,
}

/// The records of one engine's run, and the error that ended it early.
pub(crate) struct ChildOutcome {
    pub(crate) records: Vec<Record>,
    pub(crate) error: Option<String>,
}

/// Runs the workloads on `engine` in processes of its own, one unless something fails; `tell` gets each record as soon
/// as it is there.
pub(crate) fn run_in_child(
    engine: &str,
    settings: &Settings,
    interrupt: &Interrupt,
    tell: &mut dyn FnMut(&Record),
) -> ChildOutcome {
    let mut outcome = ChildOutcome { records: Vec::new(), error: None };
    loop {
        let done = outcome.records.len();
        let left = Settings { workloads: settings.workloads[done..].to_vec(), ..settings.clone() };
        let ended = run_process(engine, &left, interrupt, &mut |record| {
            tell(&record);
            outcome.records.push(record);
        });
        let error = match ended {
            Ok(status) if status.success() => return outcome,
            _ if interrupt.is_asked() => "interrupted".to_owned(),
            Ok(status) => failure(engine, &left, status, &mut outcome.records, done),
            Err(error) => error.to_string(),
        };
        outcome.error = outcome.error.or(Some(format!("{engine}: {error}")));
        let has_gone_on =
            |record: &Record| record.error.as_deref().is_none_or(|error| error == NO_CONVERSION);
        let brought_any = outcome.records[done..].iter().any(has_gone_on);
        let all_done = outcome.records.len() >= settings.workloads.len();
        if all_done || !brought_any || interrupt.is_asked() {
            return outcome;
        }
    }
}

/// Why a process ended early. If it has recorded no error (it was killed, it panicked, or its disk was full), its current
/// workload gets a record with the reason.
fn failure(
    engine: &str,
    settings: &Settings,
    status: ExitStatus,
    records: &mut Vec<Record>,
    done: usize,
) -> String {
    let mut errors = records[done..].iter().filter_map(|record| record.error.clone());
    let told = errors.find(|error| error != NO_CONVERSION);
    let error = told.clone().unwrap_or_else(|| format!("its process ended with {status}"));
    let at = settings.plan().unwrap_or_default().into_iter().nth(records.len() - done);
    if let (None, Some(planned)) = (told, at) {
        records.push(unknown_record(engine, settings, &planned, &error));
    }
    error
}

/// The engines in the order in which they run, with the settings of each run: all of them once in each round. The first round
/// loads the stores, the last one removes them.
pub(crate) fn turns(settings: &Settings) -> impl Iterator<Item = (String, Settings)> {
    let turn = |round: usize, engine: &String| {
        let keep = settings.keep || round + 1 < settings.rounds;
        let reuse = settings.reuse || round > 0;
        (engine.clone(), Settings { keep, reuse, ..settings.clone() })
    };
    (0..settings.rounds).flat_map(move |round| settings.engines.iter().map(move |engine| turn(round, engine)))
}

/// Removes the stores that are not to be kept, of rounds that did not come to their end.
pub(crate) fn remove_stores(settings: &Settings) {
    for engine in settings.engines.iter().filter(|_| !settings.keep) {
        remove_store(&settings.dir.join(engine));
    }
}

/// One process, from its start to the removal of its files.
fn run_process(
    engine: &str,
    settings: &Settings,
    interrupt: &Interrupt,
    take: &mut dyn FnMut(Record),
) -> Result<ExitStatus> {
    fs::create_dir_all(&settings.dir)?;
    let results = settings.dir.join(format!("{engine}-{}.jsonl", std::process::id()));
    fs::write(&results, "")?;
    let mut lines = Lines { path: results.clone(), taken: 0 };
    let task = ChildTask { engine: engine.to_owned(), settings: settings.clone(), results };
    let ended = start(&task).and_then(|(mut child, _limit)| {
        let ended = wait(&mut child, interrupt, &mut || lines.read(take));
        if ended.is_err() {
            child.kill()?;
            child.wait()?;
        }
        ended
    });
    if !settings.keep {
        remove_store(&settings.dir.join(engine));
    }
    let _already_gone = fs::remove_file(&task.results);
    ended
}

/// Starts a child with its task, under its memory limit, which must outlive it.
fn start(task: &ChildTask) -> Result<(Child, Option<MemoryLimit>)> {
    let limit = task.settings.memory_limit.map(MemoryLimit::new).transpose()?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(crate::cli::CHILD_COMMAND)
        .stdin(Stdio::piped())
        .spawn()?;
    // The child waits for its task.
    let held = limit.as_ref().map_or(Ok(()), |limit| limit.hold(child.id()));
    if let Err(error) = held {
        child.kill()?;
        child.wait()?;
        return Err(error);
    }
    let mut input = child.stdin.take().expect("it is piped");
    // If the child has died, its status says more than the broken pipe.
    let _broken_pipe = input.write_all(serde_json::to_string(task)?.as_bytes());
    Ok((child, limit))
}

/// Waits for the child's end. Ends it after an interrupt.
fn wait(
    child: &mut Child,
    interrupt: &Interrupt,
    read: &mut dyn FnMut() -> Result<()>,
) -> Result<ExitStatus> {
    let begin = Instant::now();
    loop {
        let ended = child.try_wait()?;
        read()?;
        if let Some(status) = ended {
            return Ok(status);
        }
        if interrupt.is_asked() {
            let status = stop(child)?;
            read()?;
            return Ok(status);
        }
        std::thread::sleep((begin.elapsed() / 10).clamp(LOOK_MIN, LOOK));
    }
}

/// Asks the child to stop, and kills it if it does not.
fn stop(child: &mut Child) -> Result<ExitStatus> {
    // Ctrl-C has reached the child too, but a signal to the parent alone has not.
    let _gone = kill_process(Pid::from_child(child), Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    Ok(child.wait()?)
}

/// Removes a store, and what says that it is kept.
pub(crate) fn remove_store(dir: &Path) {
    KeptStore::remove(dir);
    let _already_gone = fs::remove_dir_all(dir);
}

/// The lines a child appends.
struct Lines {
    path: PathBuf,
    /// Bytes of lines that were read.
    taken: usize,
}

impl Lines {
    /// Reads the new lines. An incomplete line is read next time; that of a killed child is lost.
    fn read(&mut self, take: &mut dyn FnMut(Record)) -> Result<()> {
        let text = fs::read(&self.path)?;
        while let Some(len) = text[self.taken..].iter().position(|&byte| byte == b'\n') {
            let line = &text[self.taken..self.taken + len];
            self.taken += len + 1;
            take(serde_json::from_slice(line)?);
        }
        Ok(())
    }
}

/// The child's side.
pub(crate) fn run_as_child(engines: &[EngineFactory]) -> Result<()> {
    // A parent that is killed cannot stop its child.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let interrupt = Interrupt::install(SecondSignal::IsIgnored)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let task: ChildTask = serde_json::from_str(&text)?;
    let Some(factory) = engines.iter().find(|factory| factory.name == task.engine) else {
        return Err(format!("there is no engine {:?}", task.engine).into());
    };
    let mut results = fs::OpenOptions::new().append(true).open(&task.results)?;
    run_workloads(factory, &task.settings, &interrupt, &mut |record| {
        let line = serde_json::to_string(&record)? + "\n";
        Ok(results.write_all(line.as_bytes())?)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn lines_are_read_once_they_are_whole() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("results");
        let line = serde_json::to_string(&Record { ops: 7, ..Record::default() }).expect("it is writable");
        let mut lines = Lines { path: path.clone(), taken: 0 };
        let mut read = |text: String| {
            fs::write(&path, text).expect("it can be written");
            let mut ops = Vec::new();
            lines.read(&mut |record| ops.push(record.ops)).expect("lines are records");
            ops
        };
        assert_eq!(read(format!("{line}\n{}", &line[..5])), [7]);
        assert!(read(format!("{line}\n{line}")).is_empty());
        assert_eq!(read(format!("{line}\n{line}\n{line}\n")), [7, 7]);
    }

    #[test]
    fn a_killed_process_leaves_a_record_that_says_so() {
        let words = ["--workloads", "fillseq,readrandom@2,ycsb-a", "--keys", "9"];
        let settings = Settings::from_words(&words).expect("they are well-formed");
        let killed = ExitStatus::from_raw(9);
        let mut records = vec![Record::default()];
        let error = failure("a", &settings, killed, &mut records, 0);
        let last = &records[1];
        assert!(error.contains("signal: 9"), "{error}");
        assert_eq!((&last.workload[..], last.threads, last.keys), ("readrandom", 2, 9));
        assert_eq!(last.error.as_ref(), Some(&error));
        // A process that has recorded its error needs no second record.
        assert_eq!(failure("a", &settings, ExitStatus::from_raw(256), &mut records, 0), error);
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn a_process_that_could_not_write_its_record_leaves_one_that_says_so() {
        let words = ["--workloads", "fillseq,readrandom", "--keys", "9"];
        let settings = Settings::from_words(&words).expect("they are well-formed");
        let mut records = vec![Record::default()];
        let error = failure("a", &settings, ExitStatus::from_raw(256), &mut records, 0);
        assert!(error.contains("exit status: 1"), "{error}");
        assert_eq!((&records[1].workload[..], records[1].error.as_ref()), ("readrandom", Some(&error)));
        // Behind its last workload a process has no current one.
        let mut records = vec![Record::default(), Record::default()];
        failure("a", &settings, ExitStatus::from_raw(256), &mut records, 0);
        assert_eq!(records.len(), 2);
    }
}
