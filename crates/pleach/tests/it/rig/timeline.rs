//! The oracle: what a store may hold after a crash, by the number of the call before which the crash came.
//!
//! Each batch and each creation or drop of a partition adds a point: the world after it. A crash leaves one of the
//! points, not older than the last one that was durable. What failed adds a point too, for it may be found; but only as
//! long as nothing later was acknowledged, and nothing synced.

use std::sync::Arc;

use super::world::World;

/// A state that a crash may leave, with the store's last sequence number.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) world: Arc<World>,
    pub(crate) seq: u64,
    /// Place in the history, for messages and coverage.
    pub(crate) index: usize,
}

struct Point {
    world: Arc<World>,
    seq: u64,
    /// Calls that had begun when it was begun.
    begun: u64,
    /// Calls that had begun when it returned; `None` when it failed.
    acknowledged: Option<u64>,
    is_drop: bool,
}

/// What was done to a store since it was opened on a machine, in terms of the machine's calls.
pub(crate) struct Timeline {
    points: Vec<Point>,
    /// Calls that had begun when a promise was made, and the point that was durable from then on.
    durable: Vec<(u64, usize)>,
    /// Calls that had begun when something returned after which no earlier failure may be found.
    settled: Vec<u64>,
    /// Calls that had begun when the store was open.
    opened: u64,
    /// Calls that had begun when it was last opened.
    reopened: u64,
    /// What may be found before the store was open: after a power cut, after a killed process.
    before: [Vec<Candidate>; 2],
}

impl Timeline {
    /// The store holds `start` since call number `opened`; until then a crash leaves one of `before`.
    pub(crate) fn new(start: Candidate, opened: u64, before: [Vec<Candidate>; 2]) -> Self {
        let first = Point {
            world: start.world,
            seq: start.seq,
            begun: 0,
            acknowledged: Some(opened),
            is_drop: false,
        };
        Self {
            points: vec![first],
            durable: vec![(opened, 0)],
            settled: Vec::new(),
            opened,
            reopened: opened,
            before,
        }
    }

    /// A store that is created.
    pub(crate) fn of_new_store(opened: u64) -> Self {
        let start = Candidate { world: Arc::new(World::new()), seq: 0, index: 0 };
        Self::new(start.clone(), opened, [vec![start.clone()], vec![start]])
    }

    pub(crate) fn add(
        &mut self,
        world: World,
        seq: u64,
        begun: u64,
        acknowledged: Option<u64>,
        is_drop: bool,
    ) {
        self.points.push(Point { world: Arc::new(world), seq, begun, acknowledged, is_drop });
    }

    /// The store was opened anew at call number `at`. Where the last thing that was done had failed and its sequence
    /// number and partitions are found all the same, it had an effect after all.
    pub(crate) fn adopt(&mut self, seq: u64, names: &[String], at: u64) {
        self.reopened = at;
        let found = |point: &Point| point.seq == seq && point.world.has_names(names);
        if !found(&self.points[self.last()])
            && let Some(last) = self.points.last_mut()
            && found(last)
        {
            last.acknowledged = Some(at);
        }
    }

    /// From call number `at` on, all that was acknowledged is durable.
    pub(crate) fn mark_durable(&mut self, at: u64) {
        self.durable.push((at, self.last()));
    }

    /// From call number `at` on, nothing that failed before may be found.
    pub(crate) fn settle_failures(&mut self, at: u64) {
        self.settled.push(at);
    }

    /// The last point that was not a failure.
    fn last(&self) -> usize {
        self.points.iter().rposition(|p| p.acknowledged.is_some()).expect("the first point is none")
    }

    /// What the running store holds.
    pub(crate) fn world(&self) -> &Arc<World> {
        &self.points[self.last()].world
    }

    pub(crate) fn seq(&self) -> u64 {
        self.points[self.last()].seq
    }

    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Whether the store was opened since call number `at`.
    pub(crate) fn was_reopened_after(&self, at: u64) -> bool {
        self.reopened > at
    }

    /// What a crash just before call number `at` may leave; `killed`: of the process only.
    pub(crate) fn expect(&self, at: u64, killed: bool) -> Vec<Candidate> {
        if at < self.opened {
            return self.before[usize::from(killed)].clone();
        }
        let last_acknowledged =
            self.points.iter().rposition(|p| p.acknowledged.is_some_and(|count| count <= at)).unwrap_or(0);
        let last_durable =
            self.durable.iter().filter(|(count, _)| *count <= at).map(|(_, index)| *index).max().unwrap_or(0);
        let lowest = if killed { last_acknowledged } else { last_durable };
        let is_possible = |index: &usize| {
            let point = &self.points[*index];
            let is_settled = || self.settled.iter().any(|&count| point.begun < count && count <= at);
            let is_found = || point.acknowledged.is_some() || *index > last_acknowledged && !is_settled();
            *index == 0 || point.begun < at && is_found()
        };
        let candidate = |index| {
            let Point { world, seq, .. } = &self.points[index];
            Candidate { world: Arc::clone(world), seq: *seq, index }
        };
        (lowest..self.points.len()).filter(is_possible).map(candidate).collect()
    }

    /// Whether a partition was dropped at or before the point.
    pub(crate) fn dropped_by(&self, index: usize) -> bool {
        self.points.iter().take(index + 1).any(|p| p.is_drop)
    }

    /// Whether a batch failed at or before call number `at`.
    pub(crate) fn failed_by(&self, at: u64) -> bool {
        self.points.iter().any(|p| p.acknowledged.is_none() && p.begun < at)
    }
}
