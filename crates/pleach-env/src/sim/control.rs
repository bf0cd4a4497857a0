//! Control of a simulated machine, for tests only: crash it, plant faults, look at the disk and damage it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::{Capture, CrashPolicy, Fault, Hook, SimEnv};

impl SimEnv {
    /// A new machine whose disk holds one legal outcome of a crash at this moment; see [`Capture::crash_image`]. This
    /// machine goes on as if nothing had happened, so many crashes can be sampled from one moment.
    pub fn crash_image(&self, policy: CrashPolicy, seed: u64) -> Arc<SimEnv> {
        self.capture().crash_image(policy, seed)
    }

    /// This moment, for crashes to be sampled from later.
    pub fn capture(&self) -> Capture {
        self.machine.lock().capture()
    }

    /// Asks for a capture of the moment just before each of these mutating calls, in addition to those asked for
    /// already. Numbers of calls that have begun are never reached.
    pub fn capture_at(&self, ops: &[u64]) {
        self.machine.lock().capture_wanted.extend(ops);
    }

    /// The captures taken so far, with the numbers of their calls, in order.
    pub fn captured(&self) -> Vec<(u64, Capture)> {
        self.machine.lock().captured.clone()
    }

    /// Number of mutating calls begun so far: `write_at`, `sync`, `sync_dir`, `create_file`, `rename`, `remove_file`,
    /// `set_len`, `allocate`, `punch`, and `create_dir_all` where something was missing. Calls that fail count too, except
    /// after the power went off. The next call has this number.
    pub fn op_count(&self) -> u64 {
        self.machine.lock().op_count
    }

    /// Number of calls of `read_at` begun so far.
    pub fn read_count(&self) -> u64 {
        self.machine.lock().read_count
    }

    /// Number of calls of `open_file`, `open_dir`, `list_dir` and `lock_file` begun so far.
    pub fn open_count(&self) -> u64 {
        self.machine.lock().open_count
    }

    /// Limits the handles that are open at a time, or no longer: where there are as many, every call that opens a file or
    /// directory fails with `EMFILE`, be it only for the time of the call. Locks count as handles. A crash image has no limit.
    ///
    /// A store is told at once, as if it had been opened under this limit. With [`SimEnv::set_other_handles`] it is not.
    pub fn set_handle_limit(&self, limit: Option<usize>) {
        self.open_files.set_descriptors(limit.unwrap_or(usize::MAX));
        self.machine.lock().handle_limit = limit;
    }

    /// Whether the calling thread is in a step of a job, as hooks may want to know.
    pub fn is_in_job(&self) -> bool {
        self.schedule.lock().steps_here()
    }

    /// Limits the jobs that exist at a time, or no longer: where there are as many, the next cannot be spawned.
    pub fn set_job_limit(&self, limit: Option<usize>) {
        self.machine.lock().job_limit = limit;
    }

    /// Has somebody else in the process open this many handles, of which the store learns only when it finds none left.
    pub fn set_other_handles(&self, count: usize) {
        self.machine.lock().other_handles = count;
    }

    /// Handles of files and directories that are open now, and locks that are held.
    pub fn handle_count(&self) -> usize {
        self.machine.lock().handle_count()
    }

    /// Has `hook` called before each mutating call, with the call's number and name and with no lock held. It replaces
    /// the hook before it. Calls that the hook makes itself do not call it.
    ///
    /// A hook that owns the environment keeps it alive; let it own a `Weak` or what it reports to.
    pub fn on_op(&self, hook: Hook) {
        *self.hook.lock() = Some(hook);
    }

    /// Replaces all planted faults by this one, or by none.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.clear_faults();
        if let Some(fault) = fault {
            self.add_fault(fault);
        }
    }

    /// Plants a fault beside those that are planted already.
    pub fn add_fault(&self, fault: Fault) {
        self.machine.lock().faults.add(fault);
    }

    /// Removes all faults, in particular the sticky ones. What they have done stays done.
    pub fn clear_faults(&self) {
        let mut machine = self.machine.lock();
        let _ = machine.check_power(); // Notices a power failure before its fault is forgotten.
        machine.faults.clear();
    }

    /// How many calls were struck by a fault of their own number, whether or not it had an effect on them.
    pub fn faults_struck(&self) -> u64 {
        self.machine.lock().faults.struck()
    }

    /// Limits the space that files take, in blocks of 4096 bytes; a crash image inherits the limit.
    pub fn set_capacity(&self, bytes: u64) {
        self.machine.lock().capacity = Some(bytes);
    }

    /// Bytes that files take at present, including removed files that are still open.
    pub fn used_space(&self) -> u64 {
        let machine = self.machine.lock();
        machine.disk.used_bytes(machine.open.keys().copied())
    }

    /// Mounts the disk read-only, or for writing again. Where it is read-only, every mutating call fails with `EROFS`, and
    /// so do opening a file for writing and locking one exclusively. Crash images can be written.
    pub fn set_read_only(&self, read_only: bool) {
        self.machine.lock().read_only = read_only;
    }

    /// Lets every later call to files and directories fail, so that a store can be dropped without touching its disk.
    /// Crash images can still be taken, and the helpers below still work.
    pub fn power_off(&self) {
        self.machine.lock().powered_off = true;
    }

    /// Whether the power went off, by [`SimEnv::power_off`] or by a fault.
    pub fn is_powered_off(&self) -> bool {
        self.machine.lock().check_power().is_err()
    }

    /// The present content of the file of this name, `None` when there is none. Not counted.
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let machine = self.machine.lock();
        let inode = machine.disk.inode(machine.disk.find(path)?);
        let len = usize::try_from(inode.len()).expect("simulated files are shorter than the address space");
        let mut bytes = vec![0; len];
        inode.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Replaces what the file of this name holds, durably at once and without being counted; creates it, and its
    /// directories, where needed. Open handles see the new bytes. Pending names of its directory become durable too.
    ///
    /// # Panics
    /// When the path cannot be a file's.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        let result = self.machine.lock().disk.settle_file(path, bytes);
        result.unwrap_or_else(|e| panic!("cannot write the simulated file {}: {e}", path.display()));
    }

    /// Names of the files in `dir`, sorted; none when there is no such directory. Not counted.
    pub fn file_names(&self, dir: &Path) -> Vec<String> {
        let names = self.machine.lock().disk.list(dir).unwrap_or_default();
        names.into_iter().filter(|(_, metadata)| metadata.is_file).map(|(name, _)| name).collect()
    }
}

impl fmt::Debug for SimEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine.lock();
        f.debug_struct("SimEnv")
            .field("op_count", &machine.op_count)
            .field("read_count", &machine.read_count)
            .field("clock", &machine.clock)
            .finish_non_exhaustive()
    }
}
