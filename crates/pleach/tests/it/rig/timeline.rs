//! Timeline: the oracle that lists the states a store may have after a crash before a given call.
//!
//! The [`Driver`](super::driver::Driver) records every batch, creation and drop here, with the calls of the machine that had
//! begun before and after it. [`Timeline::expect`] returns the candidates for a crash.
//!
//! There are two orders: the log orders batches by their sequence numbers, and the manifest orders creations and drops of
//! partitions. A crash leaves a prefix of each order.
//!
//! # Invariants
//! 1. *Durable*: both prefixes include every durable change.
//! 2. *Drops after batches*: if the state has a drop, it has every batch before the drop.
//! 3. *Failed changes*: the state may have a failed change only if, before the crash, no later change was acknowledged and no
//!    later sync returned.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::action::Op;
use super::world::{Entries, NAMES, World};

/// The number of one partition, from its creation to its drop. Another partition may reuse its name later.
pub(crate) type Life = u64;

/// The content of every partition, dropped ones included.
type Contents = BTreeMap<Life, Arc<Entries>>;

/// A state that a crash may leave, with the store's last sequence number.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) world: Arc<World>,
    pub(crate) seq: u64,
    /// Index in the order of batches, for messages and coverage.
    pub(crate) batches: usize,
    /// Index in the order of creations and drops.
    pub(crate) changes: usize,
}

impl Candidate {
    /// Whether all batches and changes of this candidate are also in `other`.
    pub(crate) fn is_within(&self, other: &Candidate) -> bool {
        self.batches <= other.batches && self.changes <= other.changes
    }

    pub(crate) fn is_same(&self, other: &Candidate) -> bool {
        self.batches == other.batches && self.changes == other.changes
    }
}

/// The time of an action: how many calls the machine had begun before the action and at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// Whether the action succeeded.
    pub(crate) done: bool,
}

impl When {
    /// Whether the action was under way at call number `at`.
    fn is_during(self, at: u64) -> bool {
        self.begun < at && at <= self.ended
    }
}

struct Batch {
    contents: Arc<Contents>,
    last_seq: u64,
    when: When,
}

/// A creation or drop, with the names of all partitions after it.
struct Change {
    names: BTreeMap<usize, Life>,
    /// Every state with this change has the batches up to this sequence number.
    needs_seq: u64,
    is_drop: bool,
    when: When,
}

/// The history of a store since it was opened on a machine.
pub(crate) struct Timeline {
    /// In the order of sequence numbers. A failed batch stands before the batch that reused its numbers.
    batches: Vec<Batch>,
    changes: Vec<Change>,
    lives: Life,
    /// The content of the running store.
    world: Arc<World>,
    /// Pairs of a call number and a sequence number: from this call on, all batches up to this number are durable.
    durable: Vec<(u64, u64)>,
    /// Actions after which a crash must not bring back an earlier failed change.
    settled: Vec<When>,
    /// Commits of more than one batch.
    groups: Vec<When>,
    /// Actions during which a compaction moved single files to the next level.
    merges: Vec<When>,
    /// Actions that wrote a log record in several calls.
    pieces: Vec<When>,
    /// Pairs of a call number and the number of snapshots kept from then on.
    kept: Vec<(u64, usize)>,
    /// Calls that had begun when the first open returned.
    opened: u64,
    /// Calls that had begun when the last open returned.
    reopened: u64,
    /// The states that a crash before the first open returned may leave: by a power cut, by a killed process.
    before: [Vec<Candidate>; 2],
}

impl Timeline {
    /// A store that holds `start` when its open returns at call number `opened`. An earlier crash leaves one of `before`.
    pub(crate) fn new(start: &Candidate, opened: u64, before: [Vec<Candidate>; 2]) -> Self {
        let when = When { begun: 0, ended: opened, done: true };
        let slots = start.world.slots();
        let contents = slots.iter().map(|slot| (*slot as Life, Arc::clone(start.world.entries(*slot))));
        let batch = Batch { contents: Arc::new(contents.collect()), last_seq: start.seq, when };
        let names = slots.iter().map(|slot| (*slot, *slot as Life)).collect();
        Self {
            batches: vec![batch],
            changes: vec![Change { names, needs_seq: 0, is_drop: false, when }],
            lives: NAMES.len() as Life,
            world: Arc::clone(&start.world),
            durable: vec![(opened, start.seq)],
            settled: Vec::new(),
            groups: Vec::new(),
            merges: Vec::new(),
            pieces: Vec::new(),
            kept: Vec::new(),
            opened,
            reopened: opened,
            before,
        }
    }

    /// A new store, whose creation ends at call number `opened`.
    pub(crate) fn of_new_store(opened: u64) -> Self {
        let start = Candidate { world: Arc::new(World::new()), seq: 0, batches: 0, changes: 0 };
        Self::new(&start, opened, [vec![start.clone()], vec![start.clone()]])
    }

    /// Adds a batch whose first operation got sequence number `first_seq`. Requires: batches come in the order of their numbers.
    pub(crate) fn add_batch(&mut self, ops: &[(Life, Op)], first_seq: u64, when: When) -> Result<(), String> {
        let mut bases = self.batches.iter().rev().filter(|b| b.last_seq + 1 == first_seq);
        // A failed batch releases its numbers, so several batches can end just before `first_seq`. The new batch follows the
        // one that was acknowledged.
        let newest = bases.clone().next();
        let acknowledged = bases.find(|b| b.when.done && (when.done || b.when.ended <= when.ended));
        let base = acknowledged.or(newest).ok_or_else(|| {
            format!("a batch got the sequence number {first_seq}, but no batch ends just before it")
        })?;
        let mut contents = Contents::clone(&base.contents);
        for (life, op) in ops {
            let entries = Arc::make_mut(contents.entry(*life).or_default());
            match &op.value {
                Some(value) => entries.insert(Arc::clone(&op.key), Arc::clone(value)),
                None => entries.remove(&op.key),
            };
        }
        let last_seq = base.last_seq + ops.len() as u64;
        self.batches.push(Batch { contents: Arc::new(contents), last_seq, when });
        self.refresh();
        Ok(())
    }

    /// Adds the creation of `life` under the name `slot` or, if `life` is `None`, the drop of the partition with this name.
    pub(crate) fn add_change(&mut self, slot: usize, life: Option<Life>, needs_seq: u64, when: When) {
        let mut names = self.names().clone();
        match life {
            Some(life) => names.insert(slot, life),
            None => names.remove(&slot),
        };
        let needs_seq = needs_seq.max(self.changes[self.last_change()].needs_seq);
        self.changes.push(Change { names, needs_seq, is_drop: life.is_none(), when });
        self.refresh();
    }

    /// A number for a new partition.
    pub(crate) fn new_life(&mut self) -> Life {
        self.lives += 1;
        self.lives
    }

    /// Records that the store was opened again at call number `at`, with this sequence number and these partitions. If they
    /// show that the open recovered a failed change, the change counts as done from now on.
    pub(crate) fn adopt(&mut self, seq: u64, names: &[String], at: u64) {
        self.reopened = at;
        if self.seq() != seq
            && let Some(found) = self.batches.iter().rposition(|b| b.last_seq == seq && !b.when.done)
        {
            self.batches[found].when.done = true;
            self.batches[found].when.ended = at;
        }
        let has_names = |change: &Change| world_of(&Contents::new(), &change.names).has_names(names);
        if !has_names(&self.changes[self.last_change()])
            && let Some(last) = self.changes.last_mut()
            && has_names(last)
        {
            last.when = When { ended: at, done: true, ..last.when };
        }
        self.refresh();
    }

    fn refresh(&mut self) {
        self.world = Arc::new(world_of(&self.batches[self.last_batch()].contents, self.names()));
    }

    /// From call number `at` on, all batches up to sequence number `seq` are durable.
    pub(crate) fn mark_durable(&mut self, at: u64, seq: u64) {
        self.durable.push((at, seq));
    }

    /// After this action a crash must not bring back an earlier failed change.
    pub(crate) fn settle_failures(&mut self, when: When) {
        self.settled.push(when);
    }

    /// Index of the last batch that did not fail.
    fn last_batch(&self) -> usize {
        self.batches.iter().rposition(|b| b.when.done).expect("the first one did not")
    }

    fn last_change(&self) -> usize {
        self.changes.iter().rposition(|c| c.when.done).expect("the first one did not fail")
    }

    /// The content of the running store.
    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The present partitions by name.
    pub(crate) fn names(&self) -> &BTreeMap<usize, Life> {
        &self.changes[self.last_change()].names
    }

    pub(crate) fn seq(&self) -> u64 {
        self.batches[self.last_batch()].last_seq
    }

    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Whether the store was opened again after call number `at`.
    pub(crate) fn was_reopened_after(&self, at: u64) -> bool {
        self.reopened > at
    }

    /// The contents of the partition `life`, named `slot`, after each batch that ended with a number from `first` to `last`.
    pub(crate) fn worlds_between(
        &self,
        first: u64,
        last: u64,
        slot: usize,
        life: Life,
    ) -> impl Iterator<Item = World> {
        let found = self.batches.iter().filter(move |b| b.when.done && (first..=last).contains(&b.last_seq));
        found.map(move |batch| world_of(&batch.contents, &[(slot, life)].into()))
    }

    /// The present partitions, with their content after each batch.
    pub(crate) fn past(&self) -> Vec<Candidate> {
        let changes = self.last_change();
        let done = (0..self.batches.len()).filter(|number| self.batches[*number].when.done);
        done.map(|batches| self.candidate(batches, changes)).collect()
    }

    /// The partitions after each creation and drop, with their present content.
    pub(crate) fn past_changes(&self) -> Vec<Candidate> {
        let batches = self.last_batch();
        let done = (0..self.changes.len()).filter(|number| self.changes[*number].when.done);
        done.map(|changes| self.candidate(batches, changes)).collect()
    }

    /// The states that a crash just before call number `at` may leave. `killed`: only the process ended, not the machine.
    pub(crate) fn expect(&self, at: u64, killed: bool) -> Vec<Candidate> {
        if at < self.opened {
            return self.before[usize::from(killed)].clone();
        }
        let is_acknowledged = |when: When| when.done && when.ended <= at;
        let lowest_change = self.changes.iter().rposition(|c| is_acknowledged(c.when)).unwrap_or(0);
        let lowest_batch = if killed {
            self.batches.iter().rposition(|b| is_acknowledged(b.when)).unwrap_or(0)
        } else {
            let promised = self.durable.iter().filter(|(count, _)| *count <= at).map(|(_, seq)| *seq);
            let seq = promised.max().unwrap_or(0);
            self.batches.iter().rposition(|b| b.when.done && b.last_seq <= seq).unwrap_or(0)
        };
        let batches = (lowest_batch..self.batches.len())
            .filter(|number| *number == 0 || self.may_be_found(self.batches[*number].when, at));
        let changes: Vec<_> = (lowest_change..self.changes.len())
            .filter(|number| *number == 0 || self.may_be_found(self.changes[*number].when, at))
            .collect();
        let pairs = batches.flat_map(|batch| changes.iter().map(move |change| (batch, *change)));
        let fits = |(batch, change): &(usize, usize)| {
            self.batches[*batch].last_seq >= self.changes[*change].needs_seq
        };
        pairs.filter(fits).map(|(batch, change)| self.candidate(batch, change)).collect()
    }

    /// Whether a crash before call `at` may leave the change that was made at `when`.
    fn may_be_found(&self, when: When, at: u64) -> bool {
        let others = self.batches.iter().map(|b| b.when).chain(self.changes.iter().map(|c| c.when));
        let mut later = others.chain(self.settled.iter().copied());
        when.begun < at
            && (when.done || !later.any(|other| other.done && other.begun >= when.ended && other.ended <= at))
    }

    fn candidate(&self, batches: usize, changes: usize) -> Candidate {
        let Batch { contents, last_seq, .. } = &self.batches[batches];
        let world = Arc::new(world_of(contents, &self.changes[changes].names));
        Candidate { world, seq: *last_seq, batches, changes }
    }

    /// Whether one of the changes up to index `changes` is a drop.
    pub(crate) fn dropped_by(&self, changes: usize) -> bool {
        self.changes.iter().take(changes + 1).any(|c| c.is_drop)
    }

    pub(crate) fn note_group(&mut self, when: When) {
        self.groups.push(when);
    }

    pub(crate) fn note_merge(&mut self, when: When) {
        self.merges.push(when);
    }

    pub(crate) fn note_pieces(&mut self, when: When) {
        self.pieces.push(when);
    }

    /// Whether an action that wrote a log record in several calls was under way at call number `at`.
    pub(crate) fn pieces_at(&self, at: u64) -> bool {
        self.pieces.iter().any(|when| when.is_during(at))
    }

    /// Whether a commit of more than one batch was under way at call number `at`.
    pub(crate) fn groups_at(&self, at: u64) -> bool {
        self.groups.iter().any(|when| when.is_during(at))
    }

    /// Whether a compaction moved single files to the next level at call number `at`.
    pub(crate) fn merges_at(&self, at: u64) -> bool {
        self.merges.iter().any(|when| when.is_during(at))
    }

    /// The calls during which a compaction moved single files.
    pub(crate) fn moments_of_merges(&self) -> Vec<u64> {
        self.merges.iter().flat_map(|when| when.begun..when.ended).collect()
    }

    /// Records that `count` snapshots are kept from call number `at` on.
    pub(crate) fn kept_since(&mut self, count: usize, at: u64) {
        self.kept.push((at, count));
    }

    /// Whether a snapshot was kept at call number `at`.
    pub(crate) fn keeps_at(&self, at: u64) -> bool {
        self.kept.iter().rev().find(|(since, _)| *since < at).is_some_and(|(_, count)| *count > 0)
    }

    /// The numbers of groups, of kept snapshots, and of actions that moved single files.
    pub(crate) fn happened(&self) -> [u64; 3] {
        let keeps = self.kept.windows(2).filter(|pair| pair[1].1 > pair[0].1).count();
        let first = self.kept.first().map_or(0, |(_, count)| *count);
        [self.groups.len() as u64, (keeps + first) as u64, self.merges.len() as u64]
    }

    /// Whether a batch failed at or before call number `at`.
    pub(crate) fn failed_by(&self, at: u64) -> bool {
        self.batches.iter().any(|b| !b.when.done && b.when.begun < at)
    }
}

fn world_of(contents: &Contents, names: &BTreeMap<usize, Life>) -> World {
    let held = |life| contents.get(life).cloned().unwrap_or_default();
    World { partitions: names.iter().map(|(slot, life)| (NAMES[*slot], held(life))).collect() }
}
