//! A load of new keys in random order: flushes and the merges that a policy picks, in sizes only.

use std::fmt::Write as _;

use super::trees::{file, run, stage_name};
use crate::picker::{PartialPlan, Plan, Situation, WholePlan, pick};
use crate::shape::{Policy, STAGE_FIRST};
use crate::version::edit::RunId;
use crate::version::{Run, RunFile, SubTree};

/// Keys are numbers below this, evenly spread.
const KEYS: u64 = 1_000_000;

/// A file: its first key, the key behind its last one, its bytes.
type Extent = (u64, u64, u64);

pub(super) struct Load {
    policy: Policy,
    tree: SubTree,
    next_id: u64,
    written: u64,
    /// Most runs beside each other after the merges that were due.
    runs_max: usize,
}

/// A load of `memtables` memtables while data is being written, and what it becomes when it is quiet, in words.
pub(super) fn load(policy: Policy, memtables: u64) -> String {
    let mut load = Load {
        policy: Policy { is_quiet: false, ..policy },
        tree: SubTree::default(),
        next_id: 1,
        written: 0,
        runs_max: 0,
    };
    for _ in 0..memtables {
        load.flush();
        load.merge();
        load.runs_max = load.runs_max.max(load.tree.runs.len());
    }
    let mut told = format!("loaded: {}, at most {} runs\n", load.told(memtables), load.runs_max);
    load.policy.is_quiet = true;
    load.merge();
    let _infallible = writeln!(told, "quiet: {}", load.told(memtables));
    told
}

impl Load {
    fn told(&self, memtables: u64) -> String {
        let loaded = self.policy.memtable_bytes * memtables;
        let tenths = (self.written * 10 + loaded / 2) / loaded;
        let mut told = format!("written {}.{} times", tenths / 10, tenths % 10);
        for runs in self.tree.runs.chunk_by(|a, b| a.stage == b.stage) {
            let sizes: Vec<_> =
                runs.iter().map(|run| (run.totals.bytes / self.policy.memtable_bytes).to_string()).collect();
            let _infallible = write!(told, "; {} of {}", stage_name(runs[0].stage), sizes.join(" "));
        }
        told
    }

    fn flush(&mut self) {
        let files = self.write((0, KEYS), self.policy.memtable_bytes);
        self.add(STAGE_FIRST, files);
    }

    fn merge(&mut self) {
        while let Some(plan) = pick(&self.policy, Situation { tree: &self.tree, busy: &[], now: 0 }) {
            match plan {
                Plan::Whole(plan) => self.merge_whole(&plan),
                Plan::Partial(plan) => self.merge_file(&plan),
                Plan::Range(_) => unreachable!("only on demand"),
            }
        }
    }

    fn merge_whole(&mut self, plan: &WholePlan) {
        let bytes = plan.inputs.iter().map(|id| self.take(*id).totals.bytes).sum();
        let files = self.write((0, KEYS), bytes);
        self.add(plan.output_stage, files);
    }

    fn merge_file(&mut self, plan: &PartialPlan) {
        let upper = self.take(plan.upper);
        let (moved, kept): (Vec<_>, _) = upper.files.iter().cloned().partition(|f| f.meta.file == plan.file);
        if !kept.is_empty() {
            self.tree.runs.push(run(upper.id.0, upper.stage, kept));
        }
        let Some((lower, overlapping)) = &plan.lower else {
            return self.add(plan.output_stage, moved);
        };
        let lower = self.take(*lower);
        let (merged, mut files): (Vec<_>, Vec<_>) =
            lower.files.iter().cloned().partition(|f| overlapping.contains(&f.meta.file));
        if merged.is_empty() {
            files.extend(moved);
        } else {
            let extents: Vec<_> = moved.iter().chain(&merged).map(extent).collect();
            let first = extents.iter().map(|extent| extent.0).min().unwrap();
            let end = extents.iter().map(|extent| extent.1).max().unwrap();
            files.extend(self.write((first, end), extents.iter().map(|extent| extent.2).sum()));
        }
        files.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        self.add(plan.output_stage, files);
    }

    /// New files of a memtable's size, as many as the bytes fill.
    fn write(&mut self, (first, end): (u64, u64), bytes: u64) -> Vec<RunFile> {
        self.written += bytes;
        let count = bytes.div_ceil(self.policy.memtable_bytes).clamp(1, end - first);
        let part = |at: u64, of: u64| of * at / count;
        let files = (0..count).map(|at| {
            let keys = (first + part(at, end - first), first + part(at + 1, end - first) - 1);
            let keys = (format!("{:06}", keys.0), format!("{:06}", keys.1));
            self.next_id += 1;
            file(self.next_id, part(at + 1, bytes) - part(at, bytes), keys)
        });
        files.collect()
    }

    /// Adds a run, the newest of its stage.
    fn add(&mut self, stage: u8, files: Vec<RunFile>) {
        self.next_id += 1;
        self.tree.runs.push(run(self.next_id, stage, files));
        self.tree.runs.sort_by_key(|run| (run.stage, std::cmp::Reverse(run.id)));
        self.tree.check_invariants().unwrap();
    }

    fn take(&mut self, id: RunId) -> std::sync::Arc<Run> {
        let at = self.tree.runs.iter().position(|run| run.id == id).unwrap();
        self.tree.runs.remove(at)
    }
}

fn extent(file: &RunFile) -> Extent {
    let key = |key: &[u8]| std::str::from_utf8(key).unwrap().parse::<u64>().unwrap();
    (key(&file.meta.smallest), key(&file.meta.largest) + 1, file.meta.bytes)
}
