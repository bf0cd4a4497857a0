//! Sub-trees from words, and plans as words.
//!
//! ```text
//! 1:7            run 7 of stage 1, without files
//! bottom:7       run 7 of the bottom
//! 1:7b100        with a file of 100 entries of a byte each
//! 1:7b100o20     20 of which shadow older ones
//! 1:7b100t5      one of which is a tombstone that was flushed in second 5
//! 1:7b100v900    which refer to separated values of 900 bytes
//! 1:7b100k20-39  whose keys are from 20 to 39
//! 1:7b100+b50    and another file
//! job=3,2->7     a job at work that merges the runs 3 and 2 into run 7
//! seeks=10       so many seeks since the last merge of everything
//! ```
//!
//! Runs stand in age order. Their files are numbered from the hundredfold of the run's number on, and where keys are not given
//! they are those from `<place>` to `<place>~`.

use std::sync::Arc;

use pleach_env::FileId;
use pleach_table::SstSummary;

use super::story::{number, numbers, option};
use crate::picker::Plan;
use crate::shape::{Conversion, Policy, STAGE_BOTTOM, Shape};
use crate::values::{SegmentUse, ValueRefs};
use crate::version::edit::{JobMeta, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::reads::SEEK_NS;
use crate::version::{Run, RunFile, SstFile, SubTree};

/// A policy with three runs a stage, memtables of 100 bytes and tombstones of 100 seconds at most.
pub(crate) fn policy(shape: Shape) -> Policy {
    let (conversion, space_target) = (Conversion::ForScans, 4.0);
    let (memtable_bytes, tombstone_age_max) = (100, 100);
    Policy { shape, k: 3, is_quiet: true, memtable_bytes, tombstone_age_max, conversion, space_target }
}

/// A sub-tree from words.
pub(crate) fn tree(words: &str) -> SubTree {
    let words: Vec<&str> = words.split_whitespace().collect();
    let runs = words.iter().filter(|word| word.contains(':'));
    let mut tree = SubTree { runs: runs.map(|word| run_of(word)).collect(), ..SubTree::default() };
    if let Some((inputs, output)) = option(&words, "job").and_then(|job| job.split_once("->")) {
        let inputs = numbers(inputs).into_iter().map(RunId).collect();
        tree.jobs.push(JobMeta { output: RunId(output.parse().unwrap()), inputs, drops_tombstones: false });
    }
    tree.check_invariants().unwrap();
    tree.reads.note(tree.runs.len(), SEEK_NS * number(&words, "seeks").unwrap_or(0));
    tree
}

fn run_of(word: &str) -> Arc<Run> {
    let (stage, rest) = word.split_once(':').unwrap();
    let stage = if stage == "bottom" { STAGE_BOTTOM } else { stage.parse().unwrap() };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let id = rest[..digits].parse().unwrap();
    let files = rest[digits..].split('+').enumerate().filter(|(_, spec)| !spec.is_empty());
    run(id, stage, files.map(|(at, spec)| file_of(id * 100 + at as u64, at, spec)).collect())
}

/// A run of files of its own.
pub(super) fn run(id: u64, stage: u8, files: Vec<RunFile>) -> Arc<Run> {
    let meta =
        RunMeta { id: RunId(id), stage, kind: RunKind::Ssts, clip: None, newest_seq: 0, files: Vec::new() };
    Arc::new(Run::new(&meta, files))
}

/// File number `at` of its run.
fn file_of(id: u64, at: usize, spec: &str) -> RunFile {
    let (numbers, keys) = spec.split_once('k').unwrap_or((spec, ""));
    let number = |letter| -> u64 {
        let Some((_, rest)) = numbers.split_once(letter) else { return 0 };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().unwrap()
    };
    let own = (format!("{at}"), format!("{at}~"));
    let keys = keys.split_once('-').map_or(own, |(smallest, largest)| (smallest.into(), largest.into()));
    let mut file = file(id, number('b'), keys);
    file.meta.tombstones = u64::from(numbers.contains('t'));
    file.meta.tombstones_since = number('t');
    file.meta.overwrites = number('o');
    if let bytes @ 1.. = number('v') {
        file.meta.values = ValueRefs::from_sorted(vec![(FileId(1), SegmentUse { values: 1, bytes })]);
    }
    file
}

/// A file of `bytes` entries of one byte each.
pub(super) fn file(id: u64, bytes: u64, (smallest, largest): (String, String)) -> RunFile {
    let meta = file_meta(id, bytes, &smallest, &largest);
    RunFile::new(Arc::new(SstFile::new(meta.file, summary(bytes), Arc::default())), meta)
}

/// A run's record of such a file.
pub(super) fn file_meta(id: u64, bytes: u64, smallest: &str, largest: &str) -> RunFileMeta {
    RunFileMeta {
        file: FileId(id),
        smallest: smallest.as_bytes().into(),
        largest: largest.as_bytes().into(),
        entries: bytes,
        bytes,
        tombstones: 0,
        tombstones_since: 0,
        overwrites: 0,
        values: ValueRefs::default(),
    }
}

/// The summary of such a file.
pub(super) fn summary(bytes: u64) -> SstSummary {
    SstSummary {
        file_len: bytes,
        tail_len: 0,
        footer_crc: 0,
        data_blocks: 0,
        entries: bytes,
        tombstones: 0,
        value_pointers: 0,
        raw_bytes: bytes,
        filter_bits: 0,
        smallest: Vec::new(),
        largest: Vec::new(),
    }
}

/// The name of a stage.
pub(super) fn stage_name(stage: u8) -> String {
    if stage == STAGE_BOTTOM { "bottom".to_owned() } else { format!("stage {stage}") }
}

/// A plan in words.
pub(super) fn told(plan: Option<Plan>) -> String {
    let list = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    };
    let (inputs, output_stage, drops_tombstones) = match plan {
        None => return "nothing".to_owned(),
        Some(Plan::Whole(plan)) => {
            (list(&mut plan.inputs.iter().map(|run| run.0)), plan.output_stage, plan.drops_tombstones)
        }
        Some(Plan::Range(plan)) => {
            let output = plan.output.map_or("a new run".to_owned(), |run| run.0.to_string());
            let inputs = list(&mut plan.inputs.iter().map(|run| run.0));
            return format!("{inputs} -> {output} of {}", stage_name(plan.output_stage));
        }
        Some(Plan::Partial(plan)) => {
            let lower = plan.lower.map_or("nothing".to_owned(), |(run, files)| {
                format!("{}({})", run.0, list(&mut files.iter().map(|file| file.0)))
            });
            let inputs = format!("{}({}) with {lower}", plan.upper.0, plan.file.0);
            (inputs, plan.output_stage, plan.drops_tombstones)
        }
    };
    let tombstones = if drops_tombstones { ", drop tombstones" } else { "" };
    format!("{inputs} -> {}{tombstones}", stage_name(output_stage))
}
