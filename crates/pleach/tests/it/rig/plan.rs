//! Plan: the random choice of the next action.

use std::sync::Arc;

use fastrand::Rng;
use pleach::Shape;

use super::action::{Action, Op};
use super::keys::{self, KeyShape};
use super::query::Query;
use super::setup::Setup;
use super::together::{Step, Together};
use super::world::{NAMES, World};

/// The probabilities of the actions.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    /// Of a thousand actions.
    pub(crate) syncs: u16,
    pub(crate) creates: u16,
    pub(crate) drops: u16,
    pub(crate) flushes: u16,
    pub(crate) compactions: u16,
    pub(crate) settles: u16,
    pub(crate) steps: u16,
    pub(crate) reopens: u16,
    pub(crate) full_disks: u16,
    pub(crate) togethers: u16,
    pub(crate) snapshots: u16,
    /// Of a hundred batches.
    pub(crate) synced: u8,
    /// Keys per partition.
    pub(crate) keys: u64,
}

impl Mix {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self {
            syncs: rng.u16(5..60),
            creates: rng.u16(10..40),
            drops: rng.u16(5..25),
            flushes: rng.u16(10..80),
            compactions: rng.u16(3..25),
            settles: rng.u16(0..15),
            steps: rng.u16(50..300),
            reopens: rng.u16(0..12),
            full_disks: rng.u16(0..30),
            togethers: rng.u16(0..30),
            snapshots: rng.u16(0..40),
            synced: rng.u8(..40),
            keys: rng.u64(8..120),
        }
    }
}

/// A source of actions.
pub(crate) struct Plan {
    pub(crate) rng: Rng,
    pub(crate) mix: Mix,
    shapes: [KeyShape; NAMES.len()],
    sst_bytes: u64,
    tag: u64,
}

impl Plan {
    pub(crate) fn new(mut rng: Rng, setup: &Setup) -> Self {
        let mix = Mix::random(&mut rng);
        let shapes = NAMES.map(|_| KeyShape::random(&mut rng));
        Self { rng, mix, shapes, sst_bytes: setup.sst_bytes, tag: 0 }
    }

    /// Options and a plan under which files of levels are merged one by one: small files, and few compactions of everything.
    pub(crate) fn of_levels(rng: &mut Rng, setup: Setup) -> (Setup, Self) {
        let setup = Setup { memtable_bytes: 16 << 10, sst_bytes: 4 << 10, runs_per_stage: 2, ..setup };
        let setup = Setup { shape: Some(Shape::Leveled), ..setup };
        let mut plan = Self::new(rng.fork(), &setup);
        plan.mix = Mix { creates: 2, drops: 2, compactions: 1, settles: 20, keys: 400, ..plan.mix };
        (setup, plan)
    }

    /// A plan for the same partitions and keys, with other actions and other values.
    pub(crate) fn branch(&self, seed: u64) -> Self {
        let tag = (seed | 1 << 63) & !0xf_ffff;
        Self { rng: Rng::with_seed(seed), mix: self.mix, shapes: self.shapes, sst_bytes: self.sst_bytes, tag }
    }

    /// The next action on a store that holds `world`.
    pub(crate) fn next(&mut self, world: &World) -> Action {
        let Mix { syncs, creates, drops, flushes, compactions, settles, steps, reopens, full_disks, .. } =
            self.mix;
        let Mix { togethers, snapshots, .. } = self.mix;
        let mut die = self.rng.u16(..1000);
        let mut falls = |width: u16| {
            let hit = die < width;
            die = die.saturating_sub(if hit { 0 } else { width });
            hit
        };
        if falls(syncs) {
            return Action::Sync;
        }
        if falls(creates) {
            return Action::Create(self.rng.usize(1..NAMES.len()));
        }
        if falls(drops) {
            return self.drop_one(world);
        }
        if falls(flushes) {
            return if self.rng.u8(..8) == 0 { self.compact_range(world) } else { Action::Flush };
        }
        if falls(compactions) {
            return match self.rng.u8(..4) {
                0 => Action::Compact,
                1 => Action::CompactPartition(self.slot(world)),
                _ => Action::Convert,
            };
        }
        if falls(settles) {
            return Action::Settle;
        }
        if falls(steps) {
            return Action::Step(self.rng.u32(1..6));
        }
        if falls(reopens) {
            return Action::Reopen;
        }
        if falls(full_disks) {
            return self.on_full_disk(world);
        }
        if falls(togethers) {
            return Action::Together(self.together(world));
        }
        if falls(snapshots) {
            return if self.rng.u8(..3) > 0 { Action::Keep } else { Action::Release };
        }
        Action::Write { sync: self.rng.u8(..100) < self.mix.synced, ops: self.ops(world) }
    }

    /// Two to four clients. No name is both created and dropped.
    pub(crate) fn together(&mut self, world: &World) -> Together {
        let mut known = World::clone(world);
        let mut clients: Vec<_> = (0..self.rng.usize(2..=4)).map(|_| Vec::new()).collect();
        for slot in 1..NAMES.len() {
            match (self.rng.u8(..8), world.has(slot)) {
                (0, true) => self.give(&mut clients, Step::Do(Action::Drop(slot))),
                (1 | 2, false) => {
                    known.create(slot);
                    self.give(&mut clients, Step::Do(Action::Create(slot)));
                    if self.rng.bool() {
                        self.give(&mut clients, Step::Do(Action::Create(slot)));
                    }
                }
                _ => {}
            }
        }
        let calm = self.rng.bool();
        for steps in &mut clients {
            for _ in 0..self.rng.usize(1..8) {
                let at = self.rng.usize(..=steps.len());
                let step = self.step(&known, calm);
                steps.insert(at, step);
            }
        }
        Together { seed: self.rng.u64(..), clients }
    }

    fn give(&mut self, clients: &mut [Vec<Step>], step: Step) {
        let client = self.rng.usize(..clients.len());
        clients[client].push(step);
    }

    /// A step of a client; mostly a small batch if `calm`.
    fn step(&mut self, world: &World, calm: bool) -> Step {
        match self.rng.u8(..40) {
            0 | 1 => Step::Do(Action::Sync),
            2 if !calm && self.rng.bool() => Step::Do(Action::Flush),
            2 if !calm => {
                // Another client may drop any other partition.
                let mut bounds = [self.key(0), self.key(0)];
                bounds.sort();
                Step::Do(Action::CompactRange(0, bounds))
            }
            3 if !calm => Step::Do(if self.rng.bool() { Action::Compact } else { Action::Convert }),
            4..8 => Step::Ask(Query::random(self, world)),
            8..11 => {
                let count = self.rng.usize(1..4);
                Step::Snapshot((0..count).map(|_| Query::random(self, world)).collect())
            }
            _ => {
                let ops = if calm { self.small_ops(world) } else { self.ops(world) };
                Step::Do(Action::Write { ops, sync: self.rng.u8(..3) == 0 })
            }
        }
    }

    pub(crate) fn on_full_disk(&mut self, world: &World) -> Action {
        let (action, calls) = match self.rng.u8(..11) {
            10 => (Action::Together(self.together(world)), self.rng.u64(..20)),
            0..4 => (Action::Write { ops: self.small_ops(world), sync: false }, 0),
            4 => (Action::Write { ops: self.ops(world), sync: true }, self.rng.u64(..4)),
            5 => (Action::Create(self.rng.usize(1..NAMES.len())), self.rng.u64(..3)),
            6 => (self.drop_one(world), self.rng.u64(..3)),
            7 => (Action::Flush, self.rng.u64(..10)),
            8 => (Action::Step(3), self.rng.u64(..10)),
            _ => (Action::Settle, self.rng.u64(..20)),
        };
        Action::OnFullDisk(Box::new(action), calls)
    }

    /// A compaction of a range of few or many keys.
    pub(crate) fn compact_range(&mut self, world: &World) -> Action {
        let slot = self.slot(world);
        let mut bounds = [self.key(slot), self.key(slot)];
        bounds.sort();
        Action::CompactRange(slot, bounds)
    }

    fn drop_one(&mut self, world: &World) -> Action {
        match self.slot(world) {
            0 => Action::Step(1),
            slot => Action::Drop(slot),
        }
    }

    /// A present partition.
    pub(crate) fn slot(&mut self, world: &World) -> usize {
        let slots = world.slots();
        slots[self.rng.usize(..slots.len())]
    }

    /// A key that partition `slot` may hold.
    pub(crate) fn key(&mut self, slot: usize) -> Arc<[u8]> {
        let number = self.rng.u64(..self.mix.keys);
        self.shapes[slot].key(number)
    }

    pub(crate) fn ops(&mut self, world: &World) -> Vec<Op> {
        let count = match self.rng.u8(..20) {
            0..10 => 1,
            10..19 => self.rng.usize(1..6),
            _ => self.rng.usize(6..40),
        };
        (0..count).map(|_| self.op(world)).collect()
    }

    /// Operations that mostly fit one sector.
    pub(crate) fn small_ops(&mut self, world: &World) -> Vec<Op> {
        let mut ops = self.ops(world);
        if self.rng.u8(..4) > 0 {
            ops.truncate(1);
            ops[0].value = ops[0].value.take().map(|value| value[..value.len().min(20)].into());
        }
        ops
    }

    /// A value of `len` bytes that no other put has.
    pub(crate) fn value(&mut self, len: usize) -> Arc<[u8]> {
        self.tag += 1;
        keys::value_of(self.tag, len)
    }

    fn op(&mut self, world: &World) -> Op {
        let slot = self.slot(world);
        let key = self.key(slot);
        self.tag += 1;
        let value = (self.rng.u8(..5) > 0).then(|| keys::value(&mut self.rng, self.tag, self.sst_bytes));
        Op { slot, key, value }
    }
}
