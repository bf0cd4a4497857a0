//! Sub-trees from words and plans as words, for the tests of the pickers.

use std::sync::Arc;

use pleach_env::FileId;
use pleach_table::SstSummary;

use super::{Plan, Policy};
use crate::shape::Shape;
use crate::version::edit::{JobMeta, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{Run, RunFile, SstFile, SubTree};

/// A policy with three runs a stage, memtables of 100 bytes and tombstones of 100 seconds at most.
pub(crate) fn policy(shape: Shape) -> Policy {
    Policy { shape, k: 3, is_quiet: true, memtable_bytes: 100, tombstone_age_max: 100 }
}

/// A sub-tree from words in age order: `1:7` is a run of stage 1 numbered 7 without files. `b` and a number of bytes give
/// it a file of as many entries of a byte each, `t` and a second a tombstone in it flushed then, `o` and a number
/// entries that hide older ones: `1:7b100t5o20`. A `+` begins another file, whose keys follow. `busy` are the output
/// and the inputs of a job.
pub(crate) fn tree(runs: &str, busy: &[u64]) -> SubTree {
    let mut tree = SubTree { runs: runs.split_whitespace().map(run).collect(), ..SubTree::default() };
    if let [output, inputs @ ..] = busy {
        let inputs = inputs.iter().copied().map(RunId).collect();
        tree.jobs.push(JobMeta { output: RunId(*output), inputs, drops_tombstones: false });
    }
    tree.check_invariants().unwrap();
    tree
}

fn run(word: &str) -> Arc<Run> {
    let (stage, rest) = word.split_once(':').unwrap();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let id = rest[..digits].parse().unwrap();
    let files = rest[digits..].split('+').enumerate().filter(|(_, spec)| !spec.is_empty());
    let files = files.map(|(at, spec)| file(id * 100 + at as u64, at, spec)).collect();
    let stage = stage.parse().unwrap();
    let meta =
        RunMeta { id: RunId(id), stage, kind: RunKind::Ssts, clip: None, newest_seq: 0, files: Vec::new() };
    Arc::new(Run::new(&meta, files))
}

/// File number `at` of its run: keys from `<at>` to `<at>~`, or as `k<from>-<to>` says.
fn file(id: u64, at: usize, spec: &str) -> RunFile {
    let number = |letter| -> u64 {
        let Some((_, rest)) = spec.split_once(letter) else { return 0 };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().unwrap()
    };
    let (smallest, largest) = match spec.split_once('k').and_then(|(_, keys)| keys.split_once('-')) {
        Some((smallest, largest)) => (smallest.to_owned(), largest.to_owned()),
        None => (format!("{at}"), format!("{at}~")),
    };
    let meta = RunFileMeta {
        file: FileId(id),
        smallest: smallest.as_bytes().into(),
        largest: largest.as_bytes().into(),
        entries: number('b'),
        bytes: number('b'),
        tombstones: u64::from(spec.contains('t')),
        tombstones_since: number('t'),
        overwrites: number('o'),
    };
    let summary = summary(meta.bytes);
    RunFile::new(Arc::new(SstFile::new(meta.file, summary, Arc::default())), meta)
}

/// The summary of a file of `bytes` entries of one byte each.
pub(crate) fn summary(bytes: u64) -> SstSummary {
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

/// A plan in words.
pub(super) fn told(plan: Option<Plan>) -> String {
    let words = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    };
    let tombstones = |drops| if drops { ", drop tombstones" } else { "" };
    match plan {
        None => "nothing".to_owned(),
        Some(Plan::Whole(plan)) => {
            let inputs = words(&mut plan.inputs.iter().map(|run| run.0));
            format!("{inputs} -> stage {}{}", plan.output_stage, tombstones(plan.drops_tombstones))
        }
        Some(Plan::Partial(plan)) => {
            let lower = plan.lower.map_or("nothing".to_owned(), |(run, files)| {
                format!("{}({})", run.0, words(&mut files.iter().map(|file| file.0)))
            });
            let (upper, file) = (plan.upper.0, plan.file.0);
            let drops = tombstones(plan.drops_tombstones);
            format!("{upper}({file}) with {lower} -> stage {}{drops}", plan.output_stage)
        }
    }
}
