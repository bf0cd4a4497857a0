//! A process for each engine, so that one engine's memory, threads and faults are not another's.
//!
//! The parent writes the task to the child's standard input as JSON; the child appends one line of JSON for each
//! workload to a file and exits. Standard output is left alone: an engine may print to it.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::limit::MemoryLimit;
use super::record::Record;
use super::runner::run_workloads;
use super::settings::Settings;
use crate::engine::{EngineFactory, Result};

/// What a child is to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChildTask {
    pub(crate) engine: String,
    pub(crate) settings: Settings,
    /// Where to append records.
    pub(crate) results: PathBuf,
}

/// The records of one engine's run, and what ended it early.
pub(crate) struct ChildOutcome {
    pub(crate) records: Vec<Record>,
    pub(crate) error: Option<String>,
}

/// Runs the workloads on `engine` in a process of its own.
pub(crate) fn run_in_child(engine: &str, settings: &Settings) -> Result<ChildOutcome> {
    fs::create_dir_all(&settings.dir)?;
    let results = settings.dir.join(format!("{engine}-{}.jsonl", std::process::id()));
    fs::write(&results, "")?;
    let task = ChildTask { engine: engine.to_owned(), settings: settings.clone(), results };
    let limit = settings.memory_limit.map(MemoryLimit::new).transpose()?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(crate::cli::CHILD_COMMAND)
        .stdin(Stdio::piped())
        .spawn()?;
    // The child does nothing before it has its task.
    let held = limit.as_ref().map_or(Ok(()), |limit| limit.hold(child.id()));
    if let Err(error) = held {
        child.kill()?;
        child.wait()?;
        return Err(error);
    }
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(serde_json::to_string(&task)?.as_bytes())?;
    drop(input);
    let status = child.wait()?;
    let text = fs::read_to_string(&task.results)?;
    fs::remove_file(&task.results)?;
    let records = text.lines().map(serde_json::from_str).collect::<Result<Vec<Record>, _>>()?;
    let error = (!status.success()).then(|| format!("{engine}: its process ended with {status}"));
    Ok(ChildOutcome { records, error })
}

/// The child's side.
pub(crate) fn run_as_child(engines: &[EngineFactory]) -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let task: ChildTask = serde_json::from_str(&text)?;
    let Some(factory) = engines.iter().find(|factory| factory.name == task.engine) else {
        return Err(format!("there is no engine {:?}", task.engine).into());
    };
    let mut results = fs::OpenOptions::new().append(true).open(&task.results)?;
    run_workloads(factory, &task.settings, &mut |record| {
        let line = serde_json::to_string(&record)? + "\n";
        Ok(results.write_all(line.as_bytes())?)
    })
}
