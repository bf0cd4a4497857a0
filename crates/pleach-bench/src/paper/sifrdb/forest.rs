//! The split forest that the figures of searches read, and a measurement of it.
//!
//! The paper reads the forest that its load has left: 17 trees in six stages (Table 4). Here the load is flushed and settled in
//! steps of the same size. With four trees a stage, the runs are then the digits of the number of steps to the base 4:
//! 3 * 4^5 - 1 steps give two runs in the sixth stage and three in each other one.

use std::ops::Range;

use super::{filter_setting, is_pleach, scaled, tune, words};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::paper::Session;
use crate::report::{bytes, count, print};

/// Keys of a step with the figures' own number of keys: 123 kB, about as many write buffers of 128 KiB.
const STEP_KEYS: u64 = 1000;
/// Fewest keys of a step, and what its keys are a multiple of: the load's batch.
const STEP_KEYS_MIN: u64 = 100;
/// Larger than a step, so that only the steps' ends flush.
const MEMTABLE_BYTES: u64 = 512 << 10;
/// Bytes of a pair on average.
const PAIR_BYTES: u64 = 123;
/// The least memory that Pleach takes.
const MEMORY_MIN: u64 = 1 << 20;
/// Gets before a measurement that reads no device: enough to have every block in memory.
const CACHED_WARMUP: u64 = 200_000;

/// Seconds of a measurement.
pub(super) const SECONDS: f64 = 2.0;

/// The sizes of a forest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forest {
    stages: u32,
    step_keys: u64,
}

/// Memory of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Memory {
    /// A byte for so many of the data; reads go past the page cache.
    OneFor(u64),
    /// Enough for all data.
    Cached,
}

/// The paper's memories: 256 MB, 1, 4 and 16 GB, and enough, for 100 GB.
pub(super) const MEMORIES: [Memory; 5] =
    [Memory::OneFor(400), Memory::OneFor(100), Memory::OneFor(25), Memory::OneFor(6), Memory::Cached];

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    pub(super) workloads: &'a str,
    pub(super) memory: Memory,
    /// Pleach's `read_policy`.
    pub(super) policy: &'a str,
    pub(super) filter_bits: u32,
}

impl<'a> Search<'a> {
    /// Random gets without filters.
    pub(super) fn gets(memory: Memory, policy: &'a str) -> Self {
        Self { workloads: "readrandom", memory, policy, filter_bits: 0 }
    }
}

impl Memory {
    pub(super) fn name(self) -> String {
        match self {
            Self::OneFor(data) => format!("{data} : 1"),
            Self::Cached => "cached".to_owned(),
        }
    }

    /// Bytes for `data` bytes of pairs.
    fn bytes(self, data: u64) -> u64 {
        match self {
            Self::OneFor(ratio) => (data / ratio).max(MEMORY_MIN),
            // Memtables and indexes take a part of the memory.
            Self::Cached => (data * 3).max(MEMORY_MIN * 16),
        }
    }
}

impl Forest {
    /// The forest of the paper's six stages, or of as many as the caller's keys fill.
    pub(super) fn of(session: &Session<'_>) -> Self {
        Self::with(session.keys(steps(6) * STEP_KEYS), 6)
    }

    /// About `keys` keys in at most `stages_max` stages.
    pub(super) fn with(keys: u64, stages_max: u32) -> Self {
        let stages =
            (1..=stages_max).rev().find(|&stages| steps(stages) * STEP_KEYS_MIN <= keys).unwrap_or(1);
        let step_keys = (keys / steps(stages) / STEP_KEYS_MIN).max(1) * STEP_KEYS_MIN;
        Self { stages, step_keys }
    }

    pub(super) fn keys(self) -> u64 {
        steps(self.stages) * self.step_keys
    }

    pub(super) fn stages(self) -> u32 {
        self.stages
    }

    /// Runs, all of which may hold a key.
    pub(super) fn candidates(self) -> u32 {
        3 * self.stages - 1
    }

    /// The keys of a stage, the first of which is the newest, by their position in the load.
    pub(super) fn keys_of_stage(self, stage: u32) -> Range<u64> {
        let newer = |stage: u32| (4_u64.pow(stage) - 1) * self.step_keys;
        let after = if stage == self.stages { 0 } else { self.keys() - newer(stage) };
        after..self.keys() - newer(stage - 1)
    }

    /// Prints the conditions of the figures.
    pub(super) fn print_conditions(self, theirs: &str) {
        print(&format!(
            "Theirs: {theirs}\n\
             Ours: {} pairs of {PAIR_BYTES} B ({}), {} runs in {} stages, no filters unless it says so; reads past the page cache but\n\
             for \"cached\"; memory is the budget of the whole engine, 1 MiB at least. Indexes stay in memory and may exceed the smallest\n\
             budgets.\n",
            count(self.keys() as f64),
            bytes((self.keys() * PAIR_BYTES) as f64),
            self.candidates(),
            self.stages,
        ));
    }

    /// Measures `search` on a store that is loaded once. Engines that are no forest get the same keys without steps.
    pub(super) fn measure(
        self,
        session: &mut Session<'_>,
        engine: &EngineFactory,
        search: Search<'_>,
        further: &str,
    ) -> Result<Vec<Record>> {
        session.choose_memory()?;
        let name = engine.name;
        let seconds = session.seconds(SECONDS);
        let mut words = words(&format!(
            "--workloads {} --keys {} --key-set user --value-size uniform:1-200 --memory {} --duration {seconds} --keep \
             --reuse",
            search.workloads,
            self.keys(),
            search.memory.bytes(self.keys() * PAIR_BYTES),
        ));
        if is_pleach(name) {
            words.push(tune(name, "memtable_bytes", &MEMTABLE_BYTES.to_string()));
            words.push(tune(name, "runs_per_stage", "4"));
            words.push(tune(name, "read_policy", search.policy));
        } else {
            words.extend(scaled(name));
        }
        if name == "pleach-forest" {
            words.push(format!("--settle-every={}", self.step_keys));
        }
        words
            .extend(filter_setting(name).map(|setting| tune(name, setting, &search.filter_bits.to_string())));
        if search.memory == Memory::Cached {
            let gets = CACHED_WARMUP.min(self.keys() * 2);
            words.push(format!("--warmup={gets}"));
            words.push(format!("--warmup-limit={}", seconds * 15.0));
        } else if engine.capabilities.direct_reads {
            words.push("--direct".to_owned());
        }
        words.extend(super::words(further));
        session.run(name, &words)
    }

    /// The record of the only workload.
    pub(super) fn measure_one(
        self,
        session: &mut Session<'_>,
        engine: &EngineFactory,
        search: Search<'_>,
        further: &str,
    ) -> Result<Record> {
        let records = self.measure(session, engine, search, further)?;
        records.into_iter().next().ok_or_else(|| "a record was expected".into())
    }
}

/// Steps of a load that leaves three runs in each stage but the last one, and two in that.
fn steps(stages: u32) -> u64 {
    3 * 4_u64.pow(stages - 1) - 1
}

/// The engines of Pleach among those that were chosen, which have policies.
pub(super) fn with_policies(session: &Session<'_>) -> Vec<EngineFactory> {
    session.engines.iter().copied().filter(|engine| is_pleach(engine.name)).collect()
}

/// A count of Pleach's since the store was opened.
fn detail(record: &Record, name: &str) -> Option<f64> {
    record.engine_stats.details.get(name).map(|&number| number as f64)
}

/// The share of reads that were not used.
pub(super) fn wasted_share(record: &Record) -> String {
    let share = detail(record, "lookup_reads")
        .zip(detail(record, "wasted_reads"))
        .map(|(reads, wasted)| 100.0 * wasted / reads.max(1.0));
    share.map_or_else(|| "not reported".into(), |share| format!("{share:.1} %"))
}

/// Runs that a lookup may search.
pub(super) fn runs(record: &Record) -> String {
    detail(record, "runs").map_or_else(|| "not reported".into(), |runs| format!("{runs}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forest_has_the_papers_candidates() {
        let forest = Forest::with(steps(6) * STEP_KEYS, 6);
        assert_eq!((forest.candidates(), forest.keys(), forest.stages()), (17, 3_071_000, 6));
        let small = Forest::with(5000, 6);
        assert_eq!((small.candidates(), small.keys(), small.step_keys), (8, 4700, 100));
        assert_eq!(Forest::with(10, 6).keys(), 200);
    }

    #[test]
    fn stages_share_the_keys() {
        for forest in [Forest::with(3_071_000, 6), Forest::with(50_000, 6), Forest::with(1000, 6)] {
            let mut end = forest.keys();
            for stage in 1..=forest.stages() {
                let keys = forest.keys_of_stage(stage);
                let runs = if stage == forest.stages() { 2 } else { 3 };
                assert_eq!(
                    (keys.end, keys.end - keys.start),
                    (end, runs * 4_u64.pow(stage - 1) * forest.step_keys)
                );
                end = keys.start;
            }
            assert_eq!(end, 0);
        }
    }
}
