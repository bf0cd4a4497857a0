//! Options so small that a few hundred operations reach sections, clips and several stages.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Env, SimEnv};
use pleach::{Conversion, Db, LearnedIndex, Options, Shape, Thresholds};

use crate::rig::tuning::thresholds;

/// Where the store is.
pub(crate) const DIR: &str = "/store";

const CHOICES: [LearnedIndex; 3] = [LearnedIndex::Never, LearnedIndex::Always, LearnedIndex::Adaptive];

/// Of [`Setup::separate_at`]. Values of the rigs have up to some hundred bytes, and a few have thousands.
const SEPARATIONS: [usize; 4] = [0, 1, 40, 200];

/// A machine; every other one maps the files that expect small writes.
pub(crate) fn machine(seed: u64) -> Arc<SimEnv> {
    let env = SimEnv::new(seed);
    env.set_maps_files(seed.is_multiple_of(2));
    env
}

/// The options of a store, as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) memtable_bytes: usize,
    pub(crate) sst_bytes: u64,
    /// `None`: each open takes another shape.
    pub(crate) shape: Option<Shape>,
    pub(crate) compaction_threads: usize,
    pub(crate) runs_per_stage: usize,
    pub(crate) clean_every: usize,
    pub(crate) filter_bits: u8,
    /// `None`: another answer with each open.
    pub(crate) compression: Option<bool>,
    pub(crate) direct_reads: bool,
    /// Which new SSTs get a learned index, if they have two blocks. `None`: another answer with each open.
    pub(crate) learned: Option<LearnedIndex>,
    /// Length from which on values are separated; 0 for never. `None`: another one with each open.
    pub(crate) separate_at: Option<usize>,
}

impl Setup {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self {
            memtable_bytes: rng.usize(16..48) << 10,
            sst_bytes: rng.u64(4..16) << 10,
            shape: if rng.u8(..3) == 0 { None } else { Some(any_shape(rng.u64(..))) },
            compaction_threads: rng.usize(1..=2),
            runs_per_stage: rng.usize(2..=4),
            clean_every: rng.usize(1..=3),
            filter_bits: if rng.u8(..4) == 0 { 0 } else { 10 },
            // Every other value can be compressed.
            compression: [Some(false), Some(false), Some(true), None][usize::from(rng.u8(..4))],
            direct_reads: rng.u8(..4) == 0,
            learned: CHOICES.get(rng.usize(..=CHOICES.len())).copied(),
            separate_at: SEPARATIONS.get(rng.usize(..=SEPARATIONS.len())).copied(),
        }
    }

    pub(crate) fn open(&self, env: &Arc<SimEnv>) -> pleach::Result<Db> {
        self.options(env).open(Path::new(DIR))
    }

    pub(crate) fn options(&self, env: &Arc<SimEnv>) -> Options {
        let learned = self.learned.unwrap_or_else(|| CHOICES[usize::try_from(env.random_u64() % 3).unwrap()]);
        let any = || SEPARATIONS[usize::try_from(env.random_u64() % SEPARATIONS.len() as u64).unwrap()];
        let separate_at = self.separate_at.unwrap_or_else(any);
        let space_target =
            [None, Some(1.0), Some(1.0), Some(1.2)][usize::try_from(env.random_u64() % 4).unwrap()];
        // At 0 only compactions train while they write, and the rest is left for idle time.
        let training_writers = if env.random_u64().is_multiple_of(2) { 0 } else { 8 };
        // Values in order are those that a conversion wrote. At 1.3 it has room for few copies at a time.
        let (ordered_gap, space_for_copies) = (0, [1.3, 4.0][usize::try_from(env.random_u64() % 2).unwrap()]);
        // In one history of eight with separated values.
        let is_always = separate_at > 0 && env.random_u64().is_multiple_of(8);
        let conversion = if is_always { Conversion::Always } else { Conversion::ForScans };
        let others = thresholds();
        Options::new()
            .env(Arc::<SimEnv>::clone(env))
            .memory(1 << 20)
            .memtable_bytes(self.memtable_bytes)
            .sst_bytes(self.sst_bytes)
            .shape(self.shape.unwrap_or_else(|| any_shape(env.random_u64())))
            .compaction_threads(self.compaction_threads)
            .runs_per_stage(self.runs_per_stage)
            .clean_every(self.clean_every)
            .filter_bits_per_key(self.filter_bits.into())
            .compression(self.compression.unwrap_or_else(|| env.random_u64().is_multiple_of(2)))
            .direct_reads(self.direct_reads)
            .learned_index(learned)
            .separate_at(separate_at)
            .space_target(space_for_copies)
            .conversion(conversion)
            .thresholds(Thresholds {
                larger_models: true,
                training_writers,
                space_target,
                ordered_gap,
                ..others
            })
    }
}

fn any_shape(number: u64) -> Shape {
    [Shape::Forest, Shape::ForestOverBottom, Shape::Leveled][usize::try_from(number % 3).unwrap()]
}
