//! Options so small that a few hundred operations lead to every shape a store can have.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::SimEnv;
use pleach::{Db, Options};

/// Where the store is.
pub(crate) const DIR: &str = "/store";

/// The options of a store, as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) memtable_bytes: usize,
    pub(crate) sst_bytes: u64,
    pub(crate) runs_per_stage: usize,
    pub(crate) clean_every: usize,
    pub(crate) filter_bits: u8,
    pub(crate) compression: bool,
    pub(crate) direct_reads: bool,
}

impl Setup {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self {
            memtable_bytes: rng.usize(16..48) << 10,
            sst_bytes: rng.u64(4..16) << 10,
            runs_per_stage: rng.usize(2..=4),
            clean_every: rng.usize(1..=3),
            filter_bits: if rng.u8(..4) == 0 { 0 } else { 10 },
            compression: rng.u8(..4) == 0,
            direct_reads: rng.u8(..4) == 0,
        }
    }

    pub(crate) fn open(&self, env: &Arc<SimEnv>) -> pleach::Result<Db> {
        Options::new()
            .env(Arc::<SimEnv>::clone(env))
            .memory(1 << 20)
            .memtable_bytes(self.memtable_bytes)
            .sst_bytes(self.sst_bytes)
            .runs_per_stage(self.runs_per_stage)
            .clean_every(self.clean_every)
            .filter_bits_per_key(self.filter_bits.into())
            .compression(self.compression)
            .direct_reads(self.direct_reads)
            .open(Path::new(DIR))
    }
}
