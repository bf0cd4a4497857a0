//! Oracle: the states that a store may have after a crash before a given call.
//!
//! There are two orders. The log orders batches, by their sequence numbers. The manifest orders creations and drops of
//! partitions. A crash leaves a prefix of each order. It includes the durable changes, and every batch before a drop that it
//! includes. Failed writes may be there too, as long as no later change was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::action::Op;
use super::world::{Entries, NAMES, World};

/// A partition from its creation to its drop. Its name may be used again by another.
pub(crate) type Life = u64;

/// The content of each life, the dropped ones included.
type Contents = BTreeMap<Life, Arc<Entries>>;

/// A state that a crash may leave, with the store's last sequence number.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) world: Arc<World>,
    pub(crate) seq: u64,
    /// Place in the order of batches, for messages and coverage.
    pub(crate) batches: usize,
    /// Place in the order of creations and drops.
    pub(crate) changes: usize,
}

impl Candidate {
    /// Whether it holds nothing that the other does not.
    pub(crate) fn is_within(&self, other: &Candidate) -> bool {
        self.batches <= other.batches && self.changes <= other.changes
    }

    pub(crate) fn is_same(&self, other: &Candidate) -> bool {
        self.batches == other.batches && self.changes == other.changes
    }
}

/// When something was done, in calls of the machine that had begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// Whether it succeeded.
    pub(crate) done: bool,
}

impl When {
    /// Whether call number `at` came in between.
    fn is_during(self, at: u64) -> bool {
        self.begun < at && at <= self.ended
    }
}

struct Batch {
    contents: Arc<Contents>,
    last_seq: u64,
    when: When,
}

/// A creation or drop, with what is there after it.
struct Change {
    names: BTreeMap<usize, Life>,
    /// Batches up to here are part of every state with this change.
    needs_seq: u64,
    is_drop: bool,
    when: When,
}

/// The history of a store since it was opened on a machine.
pub(crate) struct Timeline {
    /// By sequence number; what failed is before what took its numbers.
    batches: Vec<Batch>,
    changes: Vec<Change>,
    lives: Life,
    /// The content of the running store.
    world: Arc<World>,
    /// Calls that had begun when a promise was made, and the sequence number that was durable from then on.
    durable: Vec<(u64, u64)>,
    /// Actions after which nothing that had failed before may be found.
    settled: Vec<When>,
    /// Commits of more than one batch.
    groups: Vec<When>,
    /// Actions while single files went from one level to the next.
    merges: Vec<When>,
    /// Actions that wrote a log record in several calls.
    pieces: Vec<When>,
    /// Calls that had begun when the number of snapshots that are kept became this one.
    kept: Vec<(u64, usize)>,
    /// Calls that had begun when the store was open.
    opened: u64,
    /// Calls that had begun when it was last opened.
    reopened: u64,
    /// The states that may be found before the store was open: after a power cut, after a killed process.
    before: [Vec<Candidate>; 2],
}

impl Timeline {
    /// The store holds `start` since call number `opened`; until then a crash leaves one of `before`.
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

    /// A store that is created.
    pub(crate) fn of_new_store(opened: u64) -> Self {
        let start = Candidate { world: Arc::new(World::new()), seq: 0, batches: 0, changes: 0 };
        Self::new(&start, opened, [vec![start.clone()], vec![start.clone()]])
    }

    /// A batch whose first operation got this sequence number. Batches are added in the order of their numbers.
    pub(crate) fn add_batch(&mut self, ops: &[(Life, Op)], first_seq: u64, when: When) -> Result<(), String> {
        let mut bases = self.batches.iter().rev().filter(|b| b.last_seq + 1 == first_seq);
        // A batch that failed gives its numbers back: what comes later stands on the batch that got them then.
        let newest = bases.clone().next();
        let acknowledged = bases.find(|b| b.when.done && (when.done || b.when.ended <= when.ended));
        let base = acknowledged
            .or(newest)
            .ok_or_else(|| format!("a batch got {first_seq}, which nothing leads up to"))?;
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

    /// A creation of `life` under the name `slot`, or the drop of what has this name.
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

    /// A number for a partition that is created.
    pub(crate) fn new_life(&mut self) -> Life {
        self.lives += 1;
        self.lives
    }

    /// The store was opened again at call number `at`. If the last change had failed, but its sequence number or partitions
    /// are found, the change counts as done.
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

    /// From call number `at` on, everything up to sequence number `seq` is durable.
    pub(crate) fn mark_durable(&mut self, at: u64, seq: u64) {
        self.durable.push((at, seq));
    }

    /// Nothing that failed before may be found afterwards.
    pub(crate) fn settle_failures(&mut self, when: When) {
        self.settled.push(when);
    }

    /// The last batch that did not fail.
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

    /// Names of the partitions that are there.
    pub(crate) fn names(&self) -> &BTreeMap<usize, Life> {
        &self.changes[self.last_change()].names
    }

    pub(crate) fn seq(&self) -> u64 {
        self.batches[self.last_batch()].last_seq
    }

    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Whether the store was opened since call number `at`.
    pub(crate) fn was_reopened_after(&self, at: u64) -> bool {
        self.reopened > at
    }

    /// The content that the partition `life`, called `slot`, had with the last sequence number among these.
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

    /// The present partitions with what they held after each batch.
    pub(crate) fn past(&self) -> Vec<Candidate> {
        let changes = self.last_change();
        let done = (0..self.batches.len()).filter(|number| self.batches[*number].when.done);
        done.map(|batches| self.candidate(batches, changes)).collect()
    }

    /// All that has been written, in the partitions that were there after each change.
    pub(crate) fn past_changes(&self) -> Vec<Candidate> {
        let batches = self.last_batch();
        let done = (0..self.changes.len()).filter(|number| self.changes[*number].when.done);
        done.map(|changes| self.candidate(batches, changes)).collect()
    }

    /// The states that a crash just before call number `at` may leave; `killed`: of the process only.
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

    /// Whether a crash before call `at` may leave what was done then.
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

    /// Whether a partition was dropped at or before the place in the order of changes.
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

    /// Whether single files went from one level to the next about call number `at`.
    pub(crate) fn merges_at(&self, at: u64) -> bool {
        self.merges.iter().any(|when| when.is_during(at))
    }

    /// Moments within the times in which files were merged singly.
    pub(crate) fn moments_of_merges(&self) -> Vec<u64> {
        self.merges.iter().flat_map(|when| when.begun..when.ended).collect()
    }

    /// Takes note that so many snapshots are kept from now on.
    pub(crate) fn kept_since(&mut self, count: usize, at: u64) {
        self.kept.push((at, count));
    }

    /// Whether a snapshot was kept at call number `at`.
    pub(crate) fn keeps_at(&self, at: u64) -> bool {
        self.kept.iter().rev().find(|(since, _)| *since < at).is_some_and(|(_, count)| *count > 0)
    }

    /// How many groups, kept snapshots, and times in which files were merged singly there were.
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
