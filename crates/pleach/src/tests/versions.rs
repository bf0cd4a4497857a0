//! Commands of the stories about versions.
//!
//! A story begins with a version of partition 0, in which numbers below 100 are taken and writes up to number 100 are flushed.
//!
//! ```text
//! edit ITEM; ITEM..          applies one edit; the answer is the version after it, or why it does not fit
//! find KEY [in=0]            the file of each run that can hold the key
//! older KEY than=RUN,RUN [into=RUN] [in=0]
//!                            whether a run older than these may hold the key; `into` is the output of their merge
//! reopen                     the version that the head of a new manifest leads to
//! ```
//!
//! Items of an edit, all but the first three with `in=` another partition:
//!
//! ```text
//! next-id 200                numbers below this are taken
//! flushed 200                writes up to this number are in SSTs
//! create 1, drop 1           a partition
//! file 1 2                   files that runs may name from now on
//! run 1:10 [section] seq=50 1[a-c] 2[d-f]
//!                            adds run 10 to stage 1, with writes up to number 50 and two files with their first and last keys
//! extend 10 seq=70 3[g-h]    more files for a run
//! clip 10 d                  entries below the key are no longer the run's
//! cut 10 1 2                 takes files out of a run
//! remove 10                  takes out a run
//! start 10,9->11, end 11     a job that merges runs into another one
//! ```
//!
//! The answer has the partitions' runs in age order, in the same words, and the files with the number of runs that name each.
//! Files that no run names any more are listed once, as obsolete.

use std::fmt::Write as _;
use std::sync::Arc;

use pleach_env::FileId;

use super::story::{Player, number, numbers, option, play};
use super::trees::{file_meta, summary};
use crate::keys::PartitionId;
use crate::version::edit::{Edit, EditItem, JobMeta, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{FileTable, OlderRuns, Run, SubTree, Version};

#[test]
fn stories_of_versions() {
    play::<Versions>("versions");
}

struct Versions {
    version: Version,
    files: FileTable,
}

impl Default for Versions {
    fn default() -> Self {
        let mut versions = Self { version: Version::empty(), files: FileTable::default() };
        versions.edit("create 0; next-id 100; flushed 100");
        versions
    }
}

impl Player for Versions {
    fn answer(&mut self, command: &str) -> String {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match name {
            "edit" => self.edit(rest),
            "find" => self.find(&words),
            "older" => self.older(&words),
            "reopen" => {
                let head = self.version.as_edit();
                *self = Self { version: Version::empty(), files: FileTable::default() };
                self.apply(&head)
            }
            _ => panic!("{command:?} is no command"),
        }
    }
}

impl Versions {
    fn edit(&mut self, items: &str) -> String {
        self.apply(&Edit { items: items.split("; ").flat_map(items_of).collect() })
    }

    fn apply(&mut self, edit: &Edit) -> String {
        let before = (self.version.as_edit(), self.files.counts());
        let applied = self.version.apply(edit, &self.files, &[]);
        // A release build leaves a part of the checks to recovery.
        match applied.and_then(|applied| applied.0.check_invariants().map(|()| applied)) {
            Ok((version, changes)) => {
                self.version = version;
                self.files.install(changes);
                self.told()
            }
            Err(message) => {
                assert_eq!((self.version.as_edit(), self.files.counts()), before, "{message}");
                format!("refused: {message}\n")
            }
        }
    }

    fn told(&mut self) -> String {
        let mut told = String::new();
        for (id, partition) in self.version.partitions() {
            let _infallible = writeln!(told, "partition {id}");
            for run in &partition.tree.runs {
                let _infallible = writeln!(told, "  {}", run_told(run));
            }
            for job in &partition.tree.jobs {
                let inputs: Vec<_> = job.inputs.iter().map(|run| run.0.to_string()).collect();
                let _infallible = writeln!(told, "  job {}->{}", inputs.join(","), job.output.0);
            }
        }
        let mut obsolete: Vec<_> = self.files.take_unreferenced().iter().map(|file| file.id.0).collect();
        obsolete.sort_unstable();
        for (label, files) in [
            (
                "files",
                self.files.counts().iter().map(|(file, count)| format!("{}*{count}", file.0)).collect(),
            ),
            ("obsolete", obsolete.iter().map(u64::to_string).collect::<Vec<_>>()),
        ] {
            if !files.is_empty() {
                let _infallible = writeln!(told, "{label}: {}", files.join(" "));
            }
        }
        told
    }

    fn tree(&self, words: &[&str]) -> (PartitionId, &Arc<SubTree>) {
        let partition = partition(words);
        (partition, self.version.tree(partition).unwrap())
    }

    fn find(&self, words: &[&str]) -> String {
        let (_, tree) = self.tree(words);
        let file = |run: &Arc<Run>| {
            let file = run.file_for(words[0].as_bytes());
            let file = file.map_or("none".to_owned(), |file| format!("file {}", file.file.id.0));
            format!("run {}: {file}\n", run.id.0)
        };
        tree.runs.iter().map(file).collect()
    }

    fn older(&self, words: &[&str]) -> String {
        let (partition, tree) = self.tree(words);
        let inputs: Vec<_> = numbers(option(words, "than").unwrap()).into_iter().map(RunId).collect();
        let output = number(words, "into").map(RunId);
        let older = OlderRuns::than_inputs(partition, tree, &inputs, output);
        (if older.may_hold(words[0].as_bytes()) { "maybe" } else { "no" }).to_owned()
    }
}

fn partition(words: &[&str]) -> PartitionId {
    PartitionId(u32::try_from(number(words, "in").unwrap_or(0)).unwrap())
}

fn items_of(text: &str) -> Vec<EditItem> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, words) = words.split_first().unwrap();
    let partition = partition(words);
    let first = |word: &&str| word.parse::<u64>().unwrap_or_else(|_| panic!("{text}: {word} is no number"));
    let run = || RunId(first(&words[0]));
    let id = || PartitionId(u32::try_from(first(&words[0])).unwrap());
    let files = || words.iter().filter_map(|word| file_of(word)).collect::<Vec<_>>();
    let newest_seq = number(words, "seq").unwrap_or(0);
    vec![match *name {
        "next-id" => EditItem::NextId(first(&words[0])),
        "flushed" => EditItem::FlushedSeq(first(&words[0])),
        "create" => EditItem::CreatePartition { id: id(), name: format!("name {}", words[0]) },
        "drop" => EditItem::DropPartition { id: id() },
        "file" => {
            let files = words.iter().map(first);
            return files.map(|id| EditItem::AddFile { file: FileId(id), summary: summary(1) }).collect();
        }
        "run" => EditItem::AddRun { partition, run: run_meta(words, newest_seq, files()) },
        "extend" => EditItem::ExtendRun { partition, run: run(), newest_seq, files: files() },
        "clip" => EditItem::SetClip { partition, run: run(), clip: words[1].as_bytes().into() },
        "cut" => {
            let cut = words[1..].iter().filter(|word| !word.contains('='));
            EditItem::RemoveRunFiles {
                partition,
                run: run(),
                files: cut.map(|id| FileId(first(id))).collect(),
            }
        }
        "remove" => EditItem::RemoveRun { partition, run: run() },
        "start" => {
            let (inputs, output) = words[0].split_once("->").unwrap();
            let inputs = numbers(inputs).into_iter().map(RunId).collect();
            let job = JobMeta { output: RunId(output.parse().unwrap()), inputs, drops_tombstones: false };
            EditItem::StartJob { partition, job }
        }
        "end" => EditItem::EndJob { partition, output: run() },
        _ => panic!("{text:?} is no item"),
    }]
}

/// `1:10 [section]` and what else is known of the run.
fn run_meta(words: &[&str], newest_seq: u64, files: Vec<RunFileMeta>) -> RunMeta {
    let (stage, id) = words[0].split_once(':').unwrap();
    let kind = if words.contains(&"section") { RunKind::Section } else { RunKind::Ssts };
    let (id, stage) = (RunId(id.parse().unwrap()), stage.parse().unwrap());
    RunMeta { id, stage, kind, clip: None, newest_seq, files }
}

/// `3[g-h]`, if the word is of this form.
fn file_of(word: &str) -> Option<RunFileMeta> {
    let (id, keys) = word.strip_suffix(']')?.split_once('[')?;
    let (smallest, largest) = keys.split_once('-')?;
    Some(file_meta(id.parse().unwrap(), 1, smallest, largest))
}

fn run_told(run: &Run) -> String {
    let mut told = format!("{}:{}", run.stage, run.id.0);
    if run.kind == RunKind::Section {
        told += " section";
    }
    let _infallible = write!(told, " seq={}", run.newest_seq);
    for RunFileMeta { file, smallest, largest, .. } in run.files.iter().map(|file| &file.meta) {
        let _infallible = write!(told, " {}[{}-{}]", file.0, smallest.escape_ascii(), largest.escape_ascii());
    }
    if let Some(clip) = &run.clip {
        let _infallible = write!(told, ", clip {}", clip.escape_ascii());
    }
    told
}
