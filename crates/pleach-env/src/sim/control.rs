//! Control of a simulated machine, for tests only: crashes, faults, limits, and the bytes on the disk.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::{Capture, CrashPolicy, Fault, Hook, SimEnv};

impl SimEnv {
    /// A new machine whose disk holds one legal outcome of a crash at this moment; see [`Capture::crash_image`]. This machine
    /// does not change, so many crashes can be sampled from one moment.
    pub fn crash_image(&self, policy: CrashPolicy, seed: u64) -> Arc<SimEnv> {
        self.capture().crash_image(policy, seed)
    }

    /// A capture of this moment, from which crashes can be sampled later.
    pub fn capture(&self) -> Capture {
        self.machine.lock().capture()
    }

    /// Takes a capture just before each of these mutating calls, in addition to earlier requests. Numbers of calls that have
    /// begun have no effect.
    pub fn capture_at(&self, ops: &[u64]) {
        self.machine.lock().capture_wanted.extend(ops);
    }

    /// The captures taken so far, with the numbers of their calls, in order.
    pub fn captured(&self) -> Vec<(u64, Capture)> {
        self.machine.lock().captured.clone()
    }

    /// Lets files map the ranges that expect small writes, or not, as at the beginning. A write into such a range is two
    /// mutating calls, `store` and `write_at`: between them any of its bytes have changed. A crash image does as its machine.
    pub fn set_maps_files(&self, maps: bool) {
        self.machine.lock().mapped = maps.then(BTreeMap::new);
    }

    /// Number of writes into mapped ranges begun so far.
    pub fn store_count(&self) -> u64 {
        self.machine.lock().store_count
    }

    /// Number of mutating calls begun so far: `store`, `write_at`, `sync`, `sync_dir`, `create_file`, `rename`, `remove_file`,
    /// `set_len`, `allocate`, `punch`, and `create_dir_all` if something was missing. Failed calls count too, except those
    /// after the power went off. The next call has this number.
    pub fn op_count(&self) -> u64 {
        self.machine.lock().op_count
    }

    /// Number of calls of `read_at` begun so far.
    pub fn read_count(&self) -> u64 {
        self.machine.lock().read_count
    }

    /// Bytes that calls of `read_at` have asked for so far.
    pub fn read_bytes(&self) -> u64 {
        self.machine.lock().read_bytes
    }

    /// Number of reads so far that left no read of their queue in flight. A device that makes all reads of a queue at the same
    /// time is waited for about so often.
    pub fn read_wait_count(&self) -> u64 {
        let machine = self.machine.lock();
        machine.read_count.saturating_sub(machine.overlapped_reads)
    }

    /// Number of calls of `open_file`, `open_dir`, `list_dir` and `lock_file` begun so far.
    pub fn open_count(&self) -> u64 {
        self.machine.lock().open_count
    }

    /// Sets the share of the processors that is busy from now on, from 0 (the beginning) to 1, as [`Env::processor_time`]
    /// tells it.
    ///
    /// [`Env::processor_time`]: crate::Env::processor_time
    pub fn set_processor_use(&self, share: f64) {
        self.machine.lock().processor_use = share;
    }

    /// Sets or removes the limit of open handles. At the limit, every call that opens a file or directory, even for the time
    /// of the call, fails with `EMFILE`. Locks count as handles. A crash image has no limit.
    ///
    /// A store learns of the limit at once. It does not learn of [`SimEnv::set_other_handles`].
    pub fn set_handle_limit(&self, limit: Option<usize>) {
        self.open_files.set_descriptors(limit.unwrap_or(usize::MAX));
        self.machine.lock().handle_limit = limit;
    }

    /// Whether the calling thread is in a step of a job. For hooks.
    pub fn is_in_job(&self) -> bool {
        self.schedule.lock().steps_here()
    }

    /// Sets or removes the limit of jobs. At the limit, no further job can be spawned.
    pub fn set_job_limit(&self, limit: Option<usize>) {
        self.machine.lock().job_limit = limit;
    }

    /// Sets the number of handles that other code of the process has open. The store notices only that none is left.
    pub fn set_other_handles(&self, count: usize) {
        self.machine.lock().other_handles = count;
    }

    /// Handles of files and directories that are open now, and locks that are held.
    pub fn handle_count(&self) -> usize {
        self.machine.lock().handle_count()
    }

    /// Sets the hook that is called before each mutating call, with the call's number and name and with no lock held. Calls
    /// that the hook makes do not call it.
    ///
    /// A hook that owns the environment keeps it alive; let it own a `Weak`.
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

    /// Plants a further fault.
    pub fn add_fault(&self, fault: Fault) {
        self.machine.lock().faults.add(fault);
    }

    /// Makes bytes of a file unreadable, as a damaged sector does: each read of one of them fails with `EIO`, until
    /// [`SimEnv::clear_faults`]. Crash images can read them.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn add_unreadable(&self, path: &Path, bytes: Range<u64>) {
        let mut machine = self.machine.lock();
        let file = machine.disk.find(path).unwrap_or_else(|| panic!("no file {}", path.display()));
        machine.unreadable.push((file, bytes));
    }

    /// Removes all faults, also the sticky ones. Their effects stay.
    pub fn clear_faults(&self) {
        let mut machine = self.machine.lock();
        let _ = machine.check_power(); // Notices a power failure before its fault is forgotten.
        machine.faults.clear();
        machine.unreadable.clear();
    }

    /// How many calls a fault with their number has struck, with or without an effect.
    pub fn faults_struck(&self) -> u64 {
        self.machine.lock().faults.struck()
    }

    /// Limits the space of files, which take whole blocks of 4096 bytes. A crash image inherits the limit.
    pub fn set_capacity(&self, bytes: u64) {
        self.machine.lock().capacity = Some(bytes);
    }

    /// Sets or removes a quota, as of a file system that never overwrites in place: files may write so many bytes more. The write
    /// that exceeds it is short. Each later one fails with `EDQUOT`, also where the file has its space already. Neither
    /// [`Env::available_space`] nor a crash image knows of it.
    ///
    /// [`Env::available_space`]: crate::Env::available_space
    pub fn set_write_quota(&self, bytes: Option<u64>) {
        self.machine.lock().write_quota = bytes;
    }

    /// Bytes that files take at present, including removed files that are still open.
    pub fn used_space(&self) -> u64 {
        let machine = self.machine.lock();
        machine.disk.used_bytes(machine.open.keys().copied())
    }

    /// Mounts the disk read-only, or for writing again. On a read-only disk every mutating call fails with `EROFS`, and so do
    /// opening a file for writing and locking one exclusively. Crash images are writable.
    pub fn set_read_only(&self, read_only: bool) {
        self.machine.lock().read_only = read_only;
    }

    /// Makes every later call to files and directories fail, so that a store can be dropped without a change of its disk.
    /// Crash images and the helpers below still work.
    pub fn power_off(&self) {
        self.machine.lock().powered_off = true;
    }

    /// Whether the power went off, by [`SimEnv::power_off`] or by a fault.
    pub fn is_powered_off(&self) -> bool {
        self.machine.lock().check_power().is_err()
    }

    /// The current bytes of the file; `None` if there is none. Not counted.
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let machine = self.machine.lock();
        let inode = machine.disk.inode(machine.disk.find(path)?);
        let len = usize::try_from(inode.len()).expect("simulated files are shorter than the address space");
        let mut bytes = vec![0; len];
        inode.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Replaces the bytes of the file; they are durable at once. Creates the file and its directories if needed. Open handles
    /// see the new bytes. Pending names of its directory become durable too. Not counted.
    ///
    /// # Panics
    /// If the path cannot be a file's.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        let result = self.machine.lock().disk.settle_file(path, bytes);
        result.unwrap_or_else(|e| panic!("cannot write the simulated file {}: {e}", path.display()));
    }

    /// Names of the files in `dir`, sorted; none if there is no such directory. Not counted.
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
