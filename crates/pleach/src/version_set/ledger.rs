//! The ledger: sums and work lists over all partitions, updated by difference.
//!
//! Each sub-tree has an account: its debt, the bytes that a step of its compaction takes, and whether a merge is due. An
//! edit changes the accounts of the partitions that it touches, so neither a flush nor a step nor a drop walks all
//! partitions. Workers ask the ledger which partitions have a merge due; the picker finds the plan in the version.
//!
//! # Invariants
//! 1. *No miss*: a merge that is due in a version is due here, once the version's edit is committed. Time and reads can make
//!    a merge due without an edit: [`Ledger::refresh`] looks at the partitions in which they can.
//! 2. *Hints only*: plans come from the version. If the ledger is ahead of the version, or a run is busy, there is no plan.
//!
//! # Concurrency
//! One leaf lock. It is changed under `versions`, before readers see the version. An edit runs the pickers for the
//! sub-trees that it changes under the lock; a refresh, which may look at all partitions, runs them without it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use pleach_env::FileId;

use super::debt;
use crate::keys::PartitionId;
use crate::options::Options;
use crate::picker::{self, Situation};
use crate::shape::Policy;
use crate::version::edit::RunKind;
use crate::version::{SubTree, Version};

/// The ledger.
pub(crate) struct Ledger {
    sst_bytes: u64,
    /// While data is written, and while it is quiet.
    policies: [Policy; 2],
    accounts: HashMap<PartitionId, Account>,
    /// For each policy, the merges that are due.
    due: [Due; 2],
    /// Partitions with a compaction in progress.
    at_work: BTreeSet<PartitionId>,
    /// Partitions in which time or reads may make something due.
    waiting: BTreeSet<PartitionId>,
    runs_ratios: BTreeSet<(u64, PartitionId)>,
    garbage_ratios: BTreeSet<(u64, PartitionId)>,
    steps: BTreeSet<(u64, PartitionId)>,
    shared: HashMap<FileId, SharedFile>,
    /// Partitions with sections in files that are held up.
    held_up: BTreeSet<PartitionId>,
    /// The time for which changes are judged, in seconds since 1970.
    now: u64,
    /// The time for which all partitions were last looked at.
    refreshed_at: u64,
    /// Sub-trees looked at so far.
    looked_at: u64,
}

/// The account of one sub-tree.
struct Account {
    /// The debt ratios of [`debt::ratios`], as bits, which sort like the numbers.
    runs_ratio: u64,
    garbage_ratio: u64,
    /// Bytes that a step of its compaction takes.
    step: u64,
    /// For each policy, the stage of the merge that is due.
    due: DueStages,
    /// The shared files with a section of it, and the section's bytes.
    sections: Vec<(FileId, u64)>,
}

/// A shared flush file.
#[derive(Default)]
struct SharedFile {
    live_bytes: u64,
    raw_bytes: u64,
    partitions: BTreeSet<PartitionId>,
}

/// Partitions in which a merge is due, with the stage that it goes to.
#[derive(Default)]
struct Due {
    stages: BTreeMap<PartitionId, u8>,
    by_stage: BTreeSet<(u8, PartitionId)>,
}

impl Ledger {
    /// The ledger of a version.
    pub(crate) fn new(options: &Options, version: &Version, now: u64) -> Self {
        let mut ledger = Self {
            sst_bytes: options.sst_bytes,
            policies: [options.policy(false), options.policy(true)],
            accounts: HashMap::new(),
            due: Default::default(),
            at_work: BTreeSet::new(),
            waiting: BTreeSet::new(),
            runs_ratios: BTreeSet::new(),
            garbage_ratios: BTreeSet::new(),
            steps: BTreeSet::new(),
            shared: HashMap::new(),
            held_up: BTreeSet::new(),
            now,
            refreshed_at: now,
            looked_at: 0,
        };
        for (id, partition) in version.partitions() {
            ledger.update(id, Some(&partition.tree));
        }
        ledger
    }

    /// Updates the account of a changed sub-tree; `None` when the partition was dropped.
    pub(crate) fn update(&mut self, id: PartitionId, tree: Option<&SubTree>) {
        self.looked_at += 1;
        let old = self.accounts.remove(&id);
        let account = tree.filter(|tree| !tree.runs.is_empty()).map(|tree| self.account(tree));
        for (set, value) in [
            (&mut self.runs_ratios, Account::runs_ratio as fn(&Account) -> u64),
            (&mut self.garbage_ratios, |account| account.garbage_ratio),
            (&mut self.steps, |account| account.step),
        ] {
            old.as_ref().map(|old| set.remove(&(value(old), id)));
            account.as_ref().map(value).filter(|value| *value > 0).map(|value| set.insert((value, id)));
        }
        for (quiet, due) in self.due.iter_mut().enumerate() {
            due.set(id, account.as_ref().and_then(|account| account.due[quiet]));
        }
        set_member(&mut self.at_work, id, tree.is_some_and(|tree| !tree.jobs.is_empty()));
        set_member(&mut self.waiting, id, tree.is_some_and(may_come_due));
        self.update_sections(id, old.as_ref(), account.as_ref(), tree);
        if let Some(account) = account {
            self.accounts.insert(id, account);
        }
        self.mark_held_up(id);
    }

    fn account(&self, tree: &SubTree) -> Account {
        let (runs_ratio, garbage_ratio) = debt::ratios(tree, &self.policies[0]);
        let sections = tree.runs.iter().filter(|run| run.kind == RunKind::Section);
        let sections = sections.flat_map(|run| &run.files).map(|file| (file.file.id, file.meta.bytes));
        Account {
            runs_ratio: runs_ratio.to_bits(),
            garbage_ratio: garbage_ratio.to_bits(),
            step: debt::step_bytes(tree, self.sst_bytes),
            due: due_stages(&self.policies, tree, self.now),
            sections: sections.collect(),
        }
    }

    /// Updates the live bytes of shared files.
    fn update_sections(
        &mut self,
        id: PartitionId,
        old: Option<&Account>,
        new: Option<&Account>,
        tree: Option<&SubTree>,
    ) {
        let sections = |account: Option<&Account>| account.map_or(Vec::new(), |a| a.sections.clone());
        let (old, new) = (sections(old), sections(new));
        if old == new {
            return;
        }
        let files: BTreeSet<_> = old.iter().chain(&new).map(|(file, _)| *file).collect();
        let were_held_up: Vec<_> = files.iter().map(|file| self.is_held_up(*file)).collect();
        for (file, bytes) in old {
            let shared = self.shared.entry(file).or_default();
            shared.live_bytes = shared.live_bytes.saturating_sub(bytes);
            shared.partitions.remove(&id);
        }
        for (file, bytes) in new {
            let shared = self.shared.entry(file).or_default();
            shared.live_bytes = shared.live_bytes.saturating_add(bytes);
            shared.partitions.insert(id);
        }
        for file in tree.into_iter().flat_map(|tree| &tree.runs).flat_map(|run| &run.files) {
            if let Some(shared) = self.shared.get_mut(&file.file.id) {
                shared.raw_bytes = file.file.summary.raw_bytes;
            }
        }
        for (file, was_held_up) in files.into_iter().zip(were_held_up) {
            if self.is_held_up(file) != was_held_up {
                let others: Vec<_> = self.shared[&file].partitions.iter().copied().collect();
                for other in others {
                    self.mark_held_up(other);
                }
            }
            if self.shared[&file].partitions.is_empty() {
                self.shared.remove(&file);
            }
        }
    }

    fn is_held_up(&self, file: FileId) -> bool {
        self.shared.get(&file).is_some_and(|shared| picker::is_held_up(shared.live_bytes, shared.raw_bytes))
    }

    fn mark_held_up(&mut self, id: PartitionId) {
        let sections = self.accounts.get(&id).map_or(&[][..], |account| &account.sections);
        let is_held_up = sections.iter().any(|(file, _)| self.is_held_up(*file));
        set_member(&mut self.held_up, id, is_held_up);
    }

    /// Has changes from now on judged for the time `now`. The partitions that do not change are to be looked at after this:
    /// [`Ledger::waiting_after`], [`Waiting::due_at`], [`Ledger::refresh`], and so on; last, [`Ledger::end_refresh`].
    pub(crate) fn start_refresh(&mut self, now: u64) {
        self.now = now;
    }

    /// The first `count` partitions behind `last` in which time or reads may have made a merge due, to be looked at without
    /// the ledger's lock.
    pub(crate) fn waiting_after(&self, last: Option<PartitionId>, count: usize) -> Waiting {
        let behind = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let partitions = self.waiting.range(behind).take(count).copied().collect();
        Waiting { partitions, policies: self.policies }
    }

    /// Takes over what [`Waiting::due_at`] found.
    ///
    /// Requires: `versions` was locked all the time since [`Ledger::waiting_after`].
    pub(crate) fn refresh(&mut self, found: Vec<(PartitionId, DueStages)>) {
        for (id, stages) in found {
            self.looked_at += 1;
            for (due, stage) in self.due.iter_mut().zip(stages) {
                due.set(id, stage);
            }
            if let Some(account) = self.accounts.get_mut(&id) {
                account.due = stages;
            }
        }
    }

    /// Notes that all partitions were looked at for the time `now`.
    pub(crate) fn end_refresh(&mut self, now: u64) {
        self.refreshed_at = now;
    }

    /// The time of the last refresh.
    pub(crate) fn refreshed_at(&self) -> u64 {
        self.refreshed_at
    }

    /// The partitions with a merge that is due, those behind `last` first; or, where `below` is given, those with a merge
    /// that goes to a stage below that.
    pub(crate) fn due(&self, is_quiet: bool, last: PartitionId, below: Option<u8>) -> Vec<PartitionId> {
        let due = &self.due[usize::from(is_quiet)];
        if let Some(below) = below {
            return due.by_stage.range(..(below, PartitionId(0))).map(|(_, id)| *id).take(TURN_MAX).collect();
        }
        let later = due.stages.range(PartitionId(last.0.saturating_add(1))..);
        let earlier = due.stages.range(..=last);
        later.chain(earlier).map(|(id, _)| *id).take(TURN_MAX).collect()
    }

    /// Partitions with sections in shared files of which little is alive.
    pub(crate) fn held_up(&self) -> Vec<PartitionId> {
        self.held_up.iter().copied().collect()
    }

    /// Partitions with compactions in progress.
    pub(crate) fn at_work(&self) -> Vec<PartitionId> {
        self.at_work.iter().copied().collect()
    }

    /// Whether a compaction runs, or is due while nothing is written. Held-up files do not count.
    pub(crate) fn is_busy(&self) -> bool {
        !self.at_work.is_empty() || !self.due[1].stages.is_empty()
    }

    /// Whether time or reads may make something due.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The largest debt ratios of all partitions, of runs and of garbage. See [`debt::ratios`].
    pub(crate) fn debt_ratios(&self) -> (f64, f64) {
        let last = |set: &BTreeSet<(u64, PartitionId)>| {
            set.last().map_or(0.0, |(runs_ratio, _)| f64::from_bits(*runs_ratio))
        };
        (last(&self.runs_ratios), last(&self.garbage_ratios))
    }

    /// Bytes that the largest step takes.
    pub(crate) fn step_bytes(&self) -> u64 {
        self.steps.last().map_or(0, |(bytes, _)| *bytes)
    }
}

/// Partitions that a worker is given to choose from. More than can be busy at a time: the others have something to do.
const TURN_MAX: usize = 256;

impl Account {
    fn runs_ratio(&self) -> u64 {
        self.runs_ratio
    }
}

impl Due {
    fn set(&mut self, id: PartitionId, stage: Option<u8>) {
        let old = match stage {
            Some(stage) => self.stages.insert(id, stage),
            None => self.stages.remove(&id),
        };
        if let Some(old) = old {
            self.by_stage.remove(&(old, id));
        }
        if let Some(stage) = stage {
            self.by_stage.insert((stage, id));
        }
    }
}

/// Stages of the merges that are due in a sub-tree: while data is written, and while it is quiet.
pub(crate) type DueStages = [Option<u8>; 2];

/// Partitions to be looked at because time has passed.
pub(crate) struct Waiting {
    partitions: Vec<PartitionId>,
    policies: [Policy; 2],
}

impl Waiting {
    /// The last of them.
    pub(crate) fn last(&self) -> Option<PartitionId> {
        self.partitions.last().copied()
    }

    /// The merges that are due in them at the time `now`.
    pub(crate) fn due_at(&self, version: &Version, now: u64) -> Vec<(PartitionId, DueStages)> {
        let due = |id: &PartitionId| Some((*id, due_stages(&self.policies, version.tree(*id)?, now)));
        self.partitions.iter().filter_map(due).collect()
    }
}

fn due_stages(policies: &[Policy; 2], tree: &SubTree, now: u64) -> DueStages {
    let situation = Situation { tree, busy: &[], now };
    let stage = |policy| picker::pick(policy, situation).map(|plan| plan.output_stage());
    // A merge that is due while data is written is also due when it is quiet.
    let quiet = stage(&policies[1]);
    [quiet.and_then(|_| stage(&policies[0])), quiet]
}

/// Whether time or reads may make something due: tombstones grow old, and reads of several runs may pay for a merge.
fn may_come_due(tree: &SubTree) -> bool {
    tree.runs.len() > 1 || tree.runs.iter().any(|run| run.tombstones_since().is_some())
}

fn set_member(set: &mut BTreeSet<PartitionId>, id: PartitionId, is_member: bool) {
    if is_member {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pleach_env::{Env, SimEnv};

    use super::*;
    use crate::Db;
    use crate::state::State;

    fn open(env: &Arc<SimEnv>) -> Db {
        Options::new()
            .env(Arc::<SimEnv>::clone(env))
            .memory(4 << 20)
            .runs_per_stage(4)
            .open("/store")
            .unwrap()
    }

    /// The ledger equals a new one of the same version.
    fn check(db: &Db) {
        let inner = db.inner();
        let state: Arc<State> = inner.version_set.state.load_full();
        let ledger = inner.version_set.ledger.lock();
        let again = Ledger::new(&inner.ctx.options, &state.version, ledger.now);
        for quiet in 0..2 {
            assert_eq!(ledger.due[quiet].stages, again.due[quiet].stages);
            assert_eq!(ledger.due[quiet].by_stage, again.due[quiet].by_stage);
        }
        assert_eq!((&ledger.at_work, &ledger.waiting), (&again.at_work, &again.waiting));
        assert_eq!(
            (&ledger.runs_ratios, &ledger.garbage_ratios),
            (&again.runs_ratios, &again.garbage_ratios)
        );
        assert_eq!((&ledger.steps, &ledger.held_up), (&again.steps, &again.held_up));
        let live = |ledger: &Ledger| -> BTreeMap<FileId, u64> {
            ledger.shared.iter().map(|(file, shared)| (*file, shared.live_bytes)).collect()
        };
        assert_eq!(live(&ledger), live(&again));
    }

    #[test]
    fn a_change_costs_what_it_changes_however_many_partitions_there_are() {
        const PARTITIONS: u64 = 500;
        let env = SimEnv::new(1);
        let db = open(&env);
        let names: Vec<_> = (0..PARTITIONS).map(|i| format!("p{i}")).collect();
        let partitions = db.create_partitions(&names).unwrap();
        let looked_at = || db.inner().version_set.ledger.lock().looked_at;
        for round in 0..2 {
            for partition in &partitions {
                partition.put("key", [round; 50]).unwrap();
            }
            db.flush().unwrap();
        }
        check(&db);
        let before = looked_at();
        partitions[7].put("key", "value").unwrap();
        db.flush().unwrap();
        assert!(looked_at() - before <= 2, "a flush of one partition");
        let before = looked_at();
        db.drop_partition(partitions[9].clone()).unwrap();
        assert!(looked_at() - before <= 2, "a drop");
        let before = looked_at();
        db.settle().unwrap();
        assert!(looked_at() - before <= PARTITIONS + 10, "a settled store is looked at once");
        check(&db);
    }

    /// More partitions than are looked at in a row.
    #[test]
    fn a_refresh_looks_at_all_in_steps() {
        let env = SimEnv::new(1);
        let db = open(&env);
        let names: Vec<_> = (0..600).map(|i| format!("p{i}")).collect();
        let partitions = db.create_partitions(&names).unwrap();
        for round in 0..2 {
            for partition in &partitions {
                partition.put("key", [round; 50]).unwrap();
            }
            db.flush().unwrap();
        }
        env.sleep(std::time::Duration::from_secs(10_000));
        let waiting = {
            let ledger = db.inner().version_set.ledger.lock();
            assert_eq!(ledger.waiting_after(None, 7).partitions.len(), 7);
            assert!(ledger.waiting.len() >= 600, "{}", ledger.waiting.len());
            ledger.waiting.len() as u64
        };
        let before = db.inner().version_set.ledger.lock().looked_at;
        db.inner().version_set.refresh_ledger_at(db.inner().upkeep.compaction_clock());
        let ledger = db.inner().version_set.ledger.lock();
        assert_eq!(ledger.looked_at - before, waiting);
        assert_eq!((ledger.now, ledger.refreshed_at), (db.inner().upkeep.compaction_clock(), ledger.now));
        drop(ledger);
        check(&db);
    }

    #[test]
    fn the_ledger_follows_merges_and_drops() {
        let env = SimEnv::new(1);
        let db = open(&env);
        let names: Vec<_> = (0..20).map(|i| format!("p{i}")).collect();
        let partitions = db.create_partitions(&names).unwrap();
        for round in 0..9_u8 {
            for (i, partition) in
                partitions.iter().enumerate().filter(|(i, _)| i % 3 != usize::from(round % 3))
            {
                (0..20).for_each(|key| partition.put(format!("{key:03}"), [round; 100]).unwrap());
                if i % 5 == 0 {
                    partition.delete("003").unwrap();
                }
            }
            db.flush().unwrap();
            check(&db);
        }
        db.settle().unwrap();
        check(&db);
        for partition in partitions.into_iter().skip(4) {
            db.drop_partition(partition).unwrap();
            check(&db);
        }
        db.settle().unwrap();
        check(&db);
        assert!(!db.inner().version_set.ledger.lock().is_busy());
    }
}
