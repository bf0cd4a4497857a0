//! The state of a simulated machine behind its lock, and the start of every mutating call.
//!
//! [`SimEnv::begin`] counts the call, calls the test's hook, takes the captures and finds the fault of the call's number, in
//! this order. So hook and captures see the disk before the call.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::MutexGuard;
use rustix::io::Errno;

use super::SimEnv;
use super::block::BLOCK_LEN;
use super::capture::Capture;
use super::disk::Disk;
use super::fault::{Counter, FaultKind, Faults, JOB_PANIC, check};
use super::file::Held;
use super::inode::Ino;
use crate::processor::ProcessorTime;
use crate::sync::point;

/// Virtual time that a mutating call takes. Arbitrary, near what a fast SSD takes.
const OP_TIME: Duration = Duration::from_micros(10);
/// Virtual time that a read takes; arbitrary likewise.
const READ_TIME: Duration = Duration::from_micros(5);
/// Free space reported where no capacity is set; arbitrary.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// State that the machine's lock guards.
pub(super) struct Machine {
    pub(super) disk: Disk,
    /// How many handles each open inode has.
    pub(super) open: BTreeMap<Ino, usize>,
    /// How many handles directories have.
    pub(super) open_dirs: usize,
    /// The holders of each locked file.
    pub(super) locks: BTreeMap<PathBuf, Held>,
    pub(super) clock: Duration,
    /// Answers `random_u64`.
    pub(super) numbers: Rng,
    /// Decides how short a struck write is.
    pub(super) lengths: Rng,
    /// Decides which of several reads ends first.
    pub(super) read_order: Rng,
    pub(super) op_count: u64,
    pub(super) read_count: u64,
    /// Bytes that reads have asked for.
    pub(super) read_bytes: u64,
    /// Reads of a queue that were not its last in flight.
    pub(super) overlapped_reads: u64,
    pub(super) open_count: u64,
    pub(super) handle_limit: Option<usize>,
    pub(super) other_handles: usize,
    pub(super) job_limit: Option<usize>,
    /// Grows with each call of `processor_time`, busy by the share `processor_use`.
    pub(super) processor: ProcessorTime,
    pub(super) processor_use: f64,
    pub(super) faults: Faults,
    /// The ranges that are mapped, by file. `None`: files map nothing.
    pub(super) mapped: Option<BTreeMap<Ino, Range<u64>>>,
    /// Stores into mapped ranges.
    pub(super) store_count: u64,
    /// The next call completes a store.
    pub(super) is_in_store: bool,
    /// Bytes of files whose reads fail.
    pub(super) unreadable: Vec<(Ino, Range<u64>)>,
    pub(super) capacity: Option<u64>,
    /// Bytes that files may still write. `None`: any number.
    pub(super) write_quota: Option<u64>,
    pub(super) powered_off: bool,
    pub(super) read_only: bool,
    pub(super) capture_wanted: BTreeSet<u64>,
    pub(super) captured: Vec<(u64, Capture)>,
}

impl Machine {
    pub(super) fn new(seed: u64, disk: Disk, capacity: Option<u64>) -> Self {
        let mut seeds = Rng::with_seed(seed);
        Self {
            disk,
            open: BTreeMap::new(),
            open_dirs: 0,
            locks: BTreeMap::new(),
            clock: Duration::ZERO,
            numbers: seeds.fork(),
            lengths: seeds.fork(),
            read_order: seeds.fork(),
            op_count: 0,
            read_count: 0,
            read_bytes: 0,
            overlapped_reads: 0,
            open_count: 0,
            handle_limit: None,
            other_handles: 0,
            job_limit: None,
            processor: ProcessorTime::default(),
            processor_use: 0.0,
            faults: Faults::default(),
            mapped: None,
            store_count: 0,
            is_in_store: false,
            unreadable: Vec::new(),
            capacity,
            write_quota: None,
            powered_off: false,
            read_only: false,
            capture_wanted: BTreeSet::new(),
            captured: Vec::new(),
        }
    }

    /// The disk at this moment, with everything pending.
    pub(super) fn capture(&self) -> Capture {
        let disk = Arc::new(self.disk.clone());
        Capture { disk, capacity: self.capacity, maps: self.mapped.is_some(), is_in_store: self.is_in_store }
    }

    pub(super) fn check_power(&mut self) -> io::Result<()> {
        self.powered_off |= self.faults.is_crashed(self.op_count);
        if self.powered_off { Err(power_off_error()) } else { Ok(()) }
    }

    /// Fails if the disk is mounted read-only.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        if self.read_only { Err(Errno::ROFS.into()) } else { Ok(()) }
    }

    /// Counts a read of `len` bytes. An error if a fault strikes it; otherwise how many bytes are read at most.
    pub(super) fn begin_read(&mut self, len: usize) -> io::Result<usize> {
        self.check_power()?;
        self.read_count += 1;
        self.read_bytes += len as u64;
        self.clock += READ_TIME;
        let fault = self.faults.strike(self.read_count - 1, Counter::Reads);
        check(fault.and_then(FaultKind::error))?;
        Ok(if fault == Some(FaultKind::ReadShort) && len > 1 { self.lengths.usize(1..len) } else { len })
    }

    /// Fails if one of the bytes cannot be read.
    pub(super) fn check_readable(&self, ino: Ino, bytes: &Range<u64>) -> io::Result<()> {
        let is_struck = |(damaged, range): &(Ino, Range<u64>)| {
            *damaged == ino && range.start < bytes.end && bytes.start < range.end
        };
        if self.unreadable.iter().any(is_struck) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Counts a call that opens something and changes nothing. An error if a fault strikes it or no handle is left.
    pub(super) fn begin_open(&mut self) -> io::Result<()> {
        self.check_power()?;
        self.open_count += 1;
        let fault = self.faults.strike(self.open_count - 1, Counter::Opens);
        check(fault.and_then(FaultKind::error))?;
        self.check_handles()
    }

    /// Fails if no further file or directory can be opened.
    pub(super) fn check_handles(&self) -> io::Result<()> {
        match self.handle_limit {
            Some(limit) if self.handle_count() + self.other_handles >= limit => Err(Errno::MFILE.into()),
            _ => Ok(()),
        }
    }

    /// Open handles of files and directories, and locks, which are open files too.
    pub(super) fn handle_count(&self) -> usize {
        let locks = self.locks.values().map(|held| held.count());
        self.open.values().sum::<usize>() + self.open_dirs + locks.sum::<usize>()
    }

    /// Bytes that files can still take.
    pub(super) fn free_bytes(&self) -> u64 {
        if self.faults.is_full(self.op_count) {
            return 0;
        }
        match self.capacity {
            Some(capacity) => capacity.saturating_sub(self.disk.used_bytes(self.open.keys().copied())),
            None => UNLIMITED_BYTES,
        }
    }

    /// Blocks that files can still take.
    pub(super) fn free_blocks(&self) -> u64 {
        self.free_bytes() / BLOCK_LEN as u64
    }

    /// Fails if no block is left, for calls that may grow a directory.
    pub(super) fn check_space(&self) -> io::Result<()> {
        if self.free_blocks() == 0 { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    /// How many of `len` bytes the quota lets a file write.
    pub(super) fn within_quota(&self, len: usize) -> usize {
        self.write_quota.map_or(len, |left| len.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    pub(super) fn open_handle(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
    }

    pub(super) fn close_handle(&mut self, ino: Ino) {
        let Some(handles) = self.open.get_mut(&ino) else { return };
        *handles -= 1;
        if *handles == 0 {
            self.open.remove(&ino);
            self.disk.release_if_unnamed(ino);
        }
    }
}

fn power_off_error() -> io::Error {
    io::Error::other("simulated power off")
}

/// A mutating call that has begun: the locked machine, and the fault of the call.
pub(super) struct Turn<'a> {
    pub(super) machine: MutexGuard<'a, Machine>,
    pub(super) fault: Option<FaultKind>,
}

impl Turn<'_> {
    /// Fails if the call's fault makes any call fail.
    pub(super) fn check_fault(&self) -> io::Result<()> {
        check(self.fault.and_then(FaultKind::error))
    }

    /// As [`Turn::check_fault`], for a call that opens a file or directory. Also fails if no more can be opened.
    pub(super) fn check_open(&self) -> io::Result<()> {
        check(self.fault.and_then(FaultKind::open_error))?;
        self.machine.check_handles()
    }

    /// The result of a call that has done its work.
    pub(super) fn end(&self) -> io::Result<()> {
        check(self.fault.and_then(FaultKind::late_error))
    }
}

impl SimEnv {
    /// Begins a mutating call with this name. Calls the hook without the lock; calls that the hook makes do not call it.
    #[cfg_attr(feature = "failpoints", track_caller)]
    pub(super) fn begin(&self, op: &'static str) -> io::Result<Turn<'_>> {
        point();
        let number = {
            let mut machine = self.machine.lock();
            machine.check_power()?;
            machine.op_count += 1;
            machine.clock += OP_TIME;
            machine.op_count - 1
        };
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook {
            hook(number, op);
            self.hook.lock().get_or_insert(hook);
        }
        let mut machine = self.machine.lock();
        if machine.powered_off {
            return Err(power_off_error()); // The hook did it.
        }
        if machine.capture_wanted.remove(&number) {
            let capture = machine.capture();
            machine.captured.push((number, capture));
        }
        machine.check_writable()?;
        let fault = machine.faults.strike(number, Counter::Ops);
        if fault == Some(FaultKind::JobPanics) {
            drop(machine);
            self.panic_in_job(op, number);
            machine = self.machine.lock();
        }
        Ok(Turn { machine, fault })
    }

    /// Panics if a job makes this call. Requires: no lock is held.
    fn panic_in_job(&self, op: &'static str, number: u64) {
        if self.is_in_job() {
            resume_unwind(Box::new(format!("{JOB_PANIC} at call {number}, {op}")));
        }
    }
}
