//! The capture of a simulated disk at a moment, from which crashes are sampled later.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::SimEnv;
use super::crash::CrashPolicy;
use super::disk::Disk;
use super::machine::Machine;

/// The disk at one moment, with everything pending. Cheap to take, to clone and to keep: it shares all bytes that do not
/// change afterwards.
#[derive(Clone)]
pub struct Capture {
    pub(super) disk: Arc<Disk>,
    pub(super) capacity: Option<u64>,
    pub(super) maps: bool,
    pub(super) is_in_store: bool,
}

impl Capture {
    /// Whether it was taken in the middle of a store into a mapped range.
    pub fn is_in_store(&self) -> bool {
        self.is_in_store
    }

    /// A new machine whose disk holds one legal outcome of a crash at this moment, and whose random numbers come from
    /// `seed` too. Its counters start at zero; it has no jobs, locks, open files or faults. The capacity is the same.
    pub fn crash_image(&self, policy: CrashPolicy, seed: u64) -> Arc<SimEnv> {
        let disk = self.disk.crash(policy, seed);
        let mapped = self.maps.then(BTreeMap::new);
        let machine = Machine { mapped, ..Machine::new(seed, disk, self.capacity) };
        SimEnv::with_machine(seed, machine)
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
