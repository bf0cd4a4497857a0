//! The capture of a simulated disk at a moment, from which crashes are sampled later.

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
}

impl Capture {
    /// A new machine whose disk holds one legal outcome of a crash at this moment, and whose random numbers come from
    /// `seed` too. Its counters start at zero; it has no jobs, locks, open files or faults. The capacity is the same.
    pub fn crash_image(&self, policy: CrashPolicy, seed: u64) -> Arc<SimEnv> {
        let disk = self.disk.crash(policy, seed);
        SimEnv::with_machine(seed, Machine::new(seed, disk, self.capacity))
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
