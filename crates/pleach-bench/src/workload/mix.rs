//! Mixes: reads, writes, scans and inserts in fixed shares over keys drawn from a distribution.

use std::ops::Range;
use std::sync::Arc;

use super::op::{Op, OpKind, OpStream};
use super::shape::{DROPPED, PARTITIONS, ScanLen, StreamContext, partition_of};
use crate::data::{Chooser, Dataset, Distribution, GeneralizedPareto, Random, Values};

/// RocksDB's `mixgraph` draws scan lengths from this one and cuts them here.
const MIXGRAPH_SCANS: GeneralizedPareto = GeneralizedPareto { k: 2.517, sigma: 14.236 };
const MIXGRAPH_SCAN_MAX: f64 = 10_000.0;

/// Shares of operations in percent; they add up to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) get: u8,
    pub(crate) put: u8,
    pub(crate) insert: u8,
    pub(crate) scan: u8,
    pub(crate) read_modify_write: u8,
}

impl Mix {
    pub(crate) const NOTHING: Self = Self { get: 0, put: 0, insert: 0, scan: 0, read_modify_write: 0 };
    pub(crate) const GETS: Self = Self { get: 100, ..Self::NOTHING };
    pub(crate) const PUTS: Self = Self { put: 100, ..Self::NOTHING };
    pub(crate) const SCANS: Self = Self { scan: 100, ..Self::NOTHING };

    /// Whether it changes the store.
    pub(crate) fn writes(self) -> bool {
        self.put + self.insert + self.read_modify_write > 0
    }
}

/// Draws operations of a [`Mix`].
pub(super) struct MixStream {
    dataset: Arc<Dataset>,
    values: Values,
    random: Random,
    chooser: Chooser,
    mix: Mix,
    scan_len: ScanLen,
    missing: bool,
    many: usize,
    batch: usize,
    partitioned: bool,
    choices: Option<Range<u64>>,
    /// Loaded keys that the chooser draws from.
    loaded: u64,
    /// Index of this thread's first insert, and how far apart they are.
    insert_from: u64,
    insert_step: u64,
    inserted: u64,
}

impl MixStream {
    pub(super) fn new(context: &StreamContext, mix: Mix, distribution: Distribution) -> Self {
        let dataset = Arc::clone(&context.dataset);
        let loaded = context.choices.as_ref().map_or(dataset.keys, |part| part.end - part.start);
        let choices = if context.partitioned { surviving_keys(dataset.keys) } else { loaded };
        // Only ordered sets have missing keys beside each key; the last key has none after it.
        let choices = if context.missing { (choices - 1).max(1) } else { choices };
        let (thread, threads) = (context.thread as u64, context.threads as u64);
        Self {
            values: dataset.values.for_thread(thread),
            // With another number of threads other keys are read, so that they are not cached by an earlier run.
            random: Random::new(
                dataset.seed,
                context.purpose,
                thread | ((threads - 1) << 32) | (context.turn << 48),
            ),
            chooser: Chooser::new(distribution, choices),
            mix,
            scan_len: context.scan_len,
            missing: context.missing,
            many: context.many,
            batch: context.batch,
            partitioned: context.partitioned,
            choices: context.choices.clone(),
            loaded,
            insert_from: dataset.keys + context.inserted_before + thread,
            insert_step: threads,
            inserted: 0,
            dataset,
        }
    }

    /// The index of an existing key: loaded, or inserted by this stream.
    #[inline]
    fn existing(&mut self) -> u64 {
        let drawn = self.chooser.draw(&mut self.random);
        if self.partitioned {
            return surviving_key(drawn);
        }
        if drawn < self.loaded {
            let position = self.choices.as_ref().map(|part| part.start + drawn);
            return position.map_or(drawn, |position| self.dataset.shuffled.apply(position));
        }
        self.insert_from + (drawn - self.loaded) * self.insert_step
    }

    #[inline]
    fn pick(&mut self, op: &mut Op) {
        op.index = self.existing();
        op.partition = if self.partitioned { partition_of(op.index) } else { 0 };
        if self.missing {
            self.pick_missing(op);
        } else {
            self.dataset.key_set.write(op.index, &mut op.key);
        }
    }

    fn pick_missing(&mut self, op: &mut Op) {
        let (first, last) = self.dataset.bounds();
        loop {
            self.dataset.key_set.write_missing(op.index, &mut op.key);
            if *first < op.key && op.key < *last || self.dataset.keys < 2 {
                return;
            }
            op.index = self.chooser.draw(&mut self.random);
        }
    }

    fn get_many(&mut self, op: &mut Op) {
        op.kind = OpKind::GetMany;
        op.partition = 0;
        for at in 0..self.many {
            let index = self.existing();
            let entry = &mut op.entries_mut(self.many)[at];
            entry.index = index;
            self.dataset.key_set.write(index, &mut entry.key);
        }
    }

    fn put_many(&mut self, op: &mut Op) {
        op.kind = OpKind::PutMany;
        op.partition = 0;
        op.fresh = false;
        for at in 0..self.batch {
            let index = self.existing();
            let len = self.dataset.sizes.of(index) as usize;
            let entry = &mut op.entries_mut(self.batch)[at];
            entry.index = index;
            self.dataset.key_set.write(index, &mut entry.key);
            self.values.fill(index, len, &mut entry.value);
        }
    }

    fn fill_value(&mut self, op: &mut Op) {
        self.values.fill(op.index, self.dataset.sizes.of(op.index) as usize, &mut op.value);
    }

    fn insert(&mut self, op: &mut Op) {
        op.kind = OpKind::Put;
        op.partition = 0;
        op.index = self.insert_from + self.inserted * self.insert_step;
        op.fresh = true;
        self.dataset.key_set.write(op.index, &mut op.key);
        self.fill_value(op);
        self.inserted += 1;
        self.chooser.grow();
    }

    fn draw_scan_len(&mut self) -> usize {
        match self.scan_len {
            ScanLen::Fixed(len) => len,
            ScanLen::UpTo(most) => 1 + self.random.below(most as u64) as usize,
            ScanLen::Mixgraph => {
                MIXGRAPH_SCANS.quantile(self.random.unit()).clamp(1.0, MIXGRAPH_SCAN_MAX) as usize
            }
        }
    }
}

impl OpStream for MixStream {
    fn next(&mut self, op: &mut Op) -> bool {
        let mix = self.mix;
        if self.many > 1 {
            self.get_many(op);
            return true;
        }
        // Draws no number if there is no choice.
        let drawn = if mix == Mix::GETS { 0 } else { self.random.below(100) as u8 };
        if drawn < mix.get {
            op.kind = OpKind::Get;
            self.pick(op);
        } else if drawn < mix.get + mix.put {
            if self.batch > 1 {
                self.put_many(op);
                return true;
            }
            op.kind = OpKind::Put;
            op.fresh = false;
            self.pick(op);
            self.fill_value(op);
        } else if drawn < mix.get + mix.put + mix.insert {
            self.insert(op);
        } else if drawn < mix.get + mix.put + mix.insert + mix.scan {
            op.kind = OpKind::Scan;
            op.limit = self.draw_scan_len();
            self.pick(op);
        } else {
            op.kind = OpKind::ReadModifyWrite;
            op.fresh = false;
            self.pick(op);
            self.fill_value(op);
        }
        true
    }
}

/// How many keys lie in partitions that are not dropped.
fn surviving_keys(keys: u64) -> u64 {
    keys / PARTITIONS as u64 * (PARTITIONS - DROPPED.len()) as u64
}

/// The `drawn`th key that lies in partitions that are not dropped.
#[inline]
fn surviving_key(drawn: u64) -> u64 {
    let surviving = (PARTITIONS - DROPPED.len()) as u64;
    let partition = match drawn % surviving {
        0 => 0,
        other => other + DROPPED.end as u64 - 1,
    };
    drawn / surviving * PARTITIONS as u64 + partition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{KeySet, ValueSizes};

    #[test]
    fn surviving_keys_are_in_surviving_partitions() {
        let keys: Vec<u64> = (0..surviving_keys(100)).map(surviving_key).collect();
        assert_eq!(keys.len(), 50);
        assert!(keys.iter().all(|&key| key < 100 && !DROPPED.contains(&partition_of(key))));
    }

    #[test]
    fn keys_are_of_the_chosen_part_of_the_load() {
        let dataset = Arc::new(Dataset::new(1000, KeySet::Decimal, ValueSizes::Fixed(10), 1));
        let part: Vec<u64> = (100..110).map(|position| dataset.shuffled.apply(position)).collect();
        let context = StreamContext {
            dataset,
            purpose: "test",
            thread: 0,
            threads: 1,
            turn: 0,
            batch: 1,
            many: 1,
            scan_len: ScanLen::Fixed(1),
            missing: false,
            partitioned: false,
            choices: Some(100..110),
            inserted_before: 0,
        };
        let mut stream =
            MixStream::new(&context, Mix { get: 50, insert: 50, ..Mix::NOTHING }, Distribution::Uniform);
        let mut op = Op::new();
        let mut inserted = Vec::new();
        for _ in 0..100 {
            assert!(stream.next(&mut op));
            if op.kind == OpKind::Put {
                inserted.push(op.index);
            }
            assert!(part.contains(&op.index) || inserted.contains(&op.index));
        }
        assert!(inserted.len() > 10 && inserted.iter().all(|&index| index >= 1000));
    }
}
