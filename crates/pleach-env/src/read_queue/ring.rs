//! The `io_uring` of a thread.
//!
//! Each thread that reads keeps one ring, made when it is needed first. While a queue has it, reads are in flight on it; it
//! goes back empty. A ring with an [`Alarm`] belongs to a thread that also waits for other threads.
//!
//! # Polling
//! Two kinds of rings are polled ([`ReadDriver`]). With `DevicePolled` completions appear only while a system call looks for
//! them, and the ring cannot read an alarm: the thread waits for the alarm only when no read is in flight. With
//! `KernelPolled` a thread of the kernel takes entries as soon as they are queued, and completions appear by themselves.
//!
//! # Failure
//! A system call may fail permanently, for instance because a policy refuses it from then on, or because the descriptor was
//! closed by mistake. [`Ring::next`] then returns the error, and [`Ring::give_up`] the reads that the kernel has not taken.
//! They can be made otherwise. With `KernelPolled` there are none, because a thread of the kernel may take entries at any time.
//! The kernel may write to the buffers of the other reads at any time, so these must never be freed. The ring is leaked:
//! without a further system call the kernel takes nothing from it, and its descriptor may be somebody else's by now.

#![expect(unsafe_code, reason = "the kernel is given addresses")]

mod poller;

use std::cell::Cell;
use std::hint;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, getpid};

use super::{ReadBuffer, ReadDriver, Slot, Source};
use poller::Poller;

/// Reads in flight on one ring at most: twice as many as the engine's reads have, so that raw reads can show what more would
/// gain.
pub(super) const ENTRIES: u32 = 256;

/// This many queued reads are submitted without waiting for more. Reads that are submitted together end together, and the
/// device is idle until the next ones come: at depth 32, reads a second were 58 k with one submission for each wait, 79 k
/// with 4, and 64 k with 16 (medians of 4 runs of `pleach-bench device --depths 32`).
const SUBMIT_AT: usize = 4;

/// As [`SUBMIT_AT`] while few reads are in flight, so that the device is not idle while the thread prepares the next ones:
/// `get_many` of 8 blocks reached 0.83 of the device's reads with 2, and 0.75 with 4 (medians of 4 runs of the command in
/// docs/benchmarks.md, by depth).
const SUBMIT_EARLY_AT: usize = 2;
/// Few reads (arbitrary).
const FEW: u32 = 8;

/// After this many rings that failed permanently the process makes no more: each may leak a ring and the buffers of its
/// reads. Arbitrary.
const FAILED_MAX: u32 = 8;

/// Rings that failed permanently. A statistic: relaxed.
static FAILED: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
pub(super) fn forget_failures() {
    FAILED.store(0, Ordering::Relaxed);
}

thread_local! {
    static IDLE: Cell<Option<Box<ThreadRing>>> = const { Cell::new(None) };
}

/// Time of polling before a thread sleeps: longer than a fast device reads (arbitrary).
const POLL_MAX: Duration = Duration::from_micros(100);
/// Polls between two looks at the clock and at `is_over`.
const POLLS: u32 = 16;

/// The ring that a thread keeps, and the process that may use it: a forked one shares the memory with its parent.
struct ThreadRing {
    ring: IoUring,
    driver: ReadDriver,
    process: Pid,
    /// What takes the entries of a ring with `KernelPolled`. Dropped after the ring.
    _poller: Option<Arc<Poller>>,
}

/// A ring in use; on drop it goes back to the thread.
pub(super) struct Ring {
    /// Absent only after the ring was given up.
    own: Option<Box<ThreadRing>>,
    alarm: Option<Armed>,
    driver: ReadDriver,
    /// `user_data` of the entries that the kernel has not taken, oldest first.
    queued: Vec<u64>,
    /// Reads of slots that were pushed and have not ended.
    in_flight: u32,
}

/// Lets any thread wake the one that waits for a ring.
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    /// Ends the wait that goes on now, or the next one.
    pub(super) fn ring(&self) {
        // Any number but 0 will do. It fails only when the counter is full, and then the alarm rings already.
        let _ = rustix::io::write(&self.0, &[1; 8]);
    }
}

/// An alarm, and the read that is in flight on it.
struct Armed {
    alarm: Arc<Alarm>,
    /// Where the kernel writes the counter.
    counter: Box<[u8; 8]>,
    in_flight: bool,
}

/// What ended a wait.
pub(super) enum Event {
    /// The read of this slot returned this.
    Read(u32, io::Result<usize>),
    /// The alarm rang.
    Alarm,
}

/// `user_data` of the read of the alarm. Those of slots are smaller.
const ALARM: u64 = u64::MAX;

impl Ring {
    /// The calling thread's ring.
    ///
    /// Requires: `driver` is one of the rings; `depth` is at most [`ENTRIES`].
    pub(super) fn of_thread(driver: ReadDriver, depth: u32) -> io::Result<Self> {
        assert!(depth <= ENTRIES, "a ring has room for {ENTRIES} reads");
        let process = getpid();
        // There is no place for a ring any more while the values of a thread that ends are dropped.
        let idle = IDLE.try_with(Cell::take).ok().flatten();
        let idle = idle.filter(|idle| idle.process == process && idle.driver == driver);
        let own = match idle {
            Some(idle) => idle,
            None => Box::new(ThreadRing::new(driver, process)?),
        };
        Ok(Self { own: Some(own), alarm: None, driver, queued: Vec::new(), in_flight: 0 })
    }

    /// The ring's kind.
    pub(super) fn driver(&self) -> ReadDriver {
        self.driver
    }

    /// Whether rings of this process failed so often that no more are made.
    pub(super) fn are_given_up() -> bool {
        FAILED.load(Ordering::Relaxed) >= FAILED_MAX
    }

    /// Gives the ring an alarm.
    ///
    /// Requires: the ring's depth is less than [`ENTRIES`].
    pub(super) fn with_alarm(mut self) -> io::Result<(Self, Arc<Alarm>)> {
        let alarm = Arc::new(Alarm(eventfd(0, EventfdFlags::CLOEXEC)?));
        self.alarm = Some(Armed { alarm: Arc::clone(&alarm), counter: Box::new([0; 8]), in_flight: false });
        Ok((self, alarm))
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> u32 {
        self.own.as_ref().expect("the ring was not given up").ring.params().sq_entries()
    }

    fn ring(&mut self) -> &mut IoUring {
        &mut self.own.as_mut().expect("the ring was not given up").ring
    }

    /// Queues what is left to read of a slot. Submits what is queued if it is [`SUBMIT_AT`] reads, or
    /// [`SUBMIT_EARLY_AT`].
    ///
    /// Requires: the slot stays in the queue's table until [`Ring::next`] returns `number`, or the ring was given up and
    /// `number` is one of those that the kernel has not taken.
    pub(super) fn push<B: ReadBuffer>(&mut self, number: u32, slot: &mut Slot<B>) {
        let Source::Descriptor(descriptor) = &slot.source else { unreachable!("the queue has checked it") };
        let rest = &mut slot.buffer.bytes_mut()[slot.filled..];
        let len = u32::try_from(rest.len()).expect("a read is shorter than 4 GiB");
        let entry = opcode::Read::new(types::Fd(descriptor.as_raw_fd()), rest.as_mut_ptr(), len)
            .offset(slot.offset + slot.filled as u64)
            .build();
        self.push_entry(entry, u64::from(number), 1);
    }

    fn push_entry(&mut self, entry: squeue::Entry, user_data: u64, reads: u32) {
        let entry = entry.user_data(user_data);
        // SAFETY: a slot owns memory and descriptor until the completion has been taken, and forever if the ring fails
        // while the kernel has the read. Its buffer's memory does not move with the slot, and nobody else uses it
        // ([`ReadBuffer`]). The alarm and its counter live as long as the ring.
        let pushed = unsafe { self.ring().submission().push(&entry) };
        pushed.expect("a ring has an entry for each read in flight and for the alarm");
        self.queued.push(user_data);
        self.in_flight += reads;
        let enough = if self.in_flight <= FEW { SUBMIT_EARLY_AT } else { SUBMIT_AT };
        if self.queued.len() >= enough {
            // A permanent error comes again when the ring waits.
            let _ = self.enter(0);
        }
    }

    /// Queues the read of the alarm, if there is one and it is not in flight.
    fn arm(&mut self) {
        if self.driver == ReadDriver::DevicePolled {
            return;
        }
        let Some(armed) = self.alarm.as_mut().filter(|armed| !armed.in_flight) else { return };
        armed.in_flight = true;
        let descriptor = types::Fd(armed.alarm.0.as_raw_fd());
        let entry = opcode::Read::new(descriptor, armed.counter.as_mut_ptr(), 8).build();
        self.push_entry(entry, ALARM, 0);
    }

    /// Whether [`Ring::next`] returns immediately.
    pub(super) fn has_completion(&mut self) -> bool {
        !self.ring().completion().is_empty()
    }

    /// With a polled driver, submits what is queued, and polls until a read has ended, or `is_over`, or for [`POLL_MAX`].
    #[expect(clippy::disallowed_methods, reason = "rings are the real machine's")]
    pub(super) fn poll(&mut self, mut is_over: impl FnMut() -> bool) {
        if self.driver == ReadDriver::Ring {
            return;
        }
        let began = Instant::now();
        while !self.has_completion() && !is_over() && began.elapsed() < POLL_MAX {
            // A permanent error comes again when the ring waits.
            let _ = self.enter(0);
            for _ in 0..POLLS {
                hint::spin_loop();
            }
        }
    }

    /// Waits for the alarm of a ring that cannot read it.
    fn wait_for_alarm(&mut self) -> io::Result<Event> {
        let armed = self.alarm.as_mut().expect("no read is in flight");
        rustix::io::retry_on_intr(|| rustix::io::read(&armed.alarm.0, &mut *armed.counter))?;
        Ok(Event::Alarm)
    }

    /// Submits what is queued, if nothing is done yet, and waits.
    ///
    /// Requires: a read is in flight, or the ring has an alarm.
    ///
    /// # Errors
    /// When the ring has failed permanently. The caller gives it up.
    pub(super) fn next(&mut self) -> io::Result<Event> {
        self.arm();
        loop {
            let next = self.ring().completion().next();
            if let Some(entry) = next {
                if entry.user_data() == ALARM {
                    self.alarm.as_mut().expect("it rang").in_flight = false;
                    return Ok(Event::Alarm);
                }
                self.in_flight -= 1;
                let number = u32::try_from(entry.user_data()).expect("the number of a slot");
                let result = usize::try_from(entry.result());
                let result = result.map_err(|_| io::Error::from_raw_os_error(-entry.result()));
                return Ok(Event::Read(number, result));
            }
            // A wait for nothing never ends. After another panic this one ends the process, so the kernel writes to no memory
            // that was freed.
            assert!(self.in_flight > 0 || self.alarm.is_some(), "no read is in flight");
            if self.driver == ReadDriver::DevicePolled && self.in_flight == 0 {
                return self.wait_for_alarm();
            }
            self.enter(1)?;
        }
    }

    /// Submits what is queued, and waits until `done` reads have ended; with 0 it does not wait.
    fn enter(&mut self, done: usize) -> io::Result<()> {
        let entered = self.system_call(done);
        let left = self.ring().submission().len();
        self.queued.drain(..self.queued.len() - left);
        match entered.map_err(|e| (e.kind(), e)) {
            Ok(_)
            | Err((
                io::ErrorKind::Interrupted | io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock,
                _,
            )) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    fn system_call(&mut self, done: usize) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(failure) = super::tests::ring_failures::planted() {
            return failure.instead_of_system_call(self.ring());
        }
        self.ring().submit_and_wait(done)
    }

    /// Leaves the ring after an error of [`Ring::next`]. Returns the reads that the kernel has not taken and will not take.
    /// Buffers and descriptors of all others in flight must be leaked.
    pub(super) fn give_up(&mut self) -> Vec<u32> {
        FAILED.fetch_add(1, Ordering::Relaxed);
        mem::forget((self.own.take(), self.alarm.take()));
        let mut queued = mem::take(&mut self.queued);
        if self.driver == ReadDriver::KernelPolled {
            queued.clear();
        }
        let reads = queued.into_iter().filter(|user_data| *user_data != ALARM);
        reads.map(|number| u32::try_from(number).expect("the number of a slot")).collect()
    }
}

impl Drop for Ring {
    /// Requires: no read is in flight.
    fn drop(&mut self) {
        while let Some(armed) = self.alarm.take_if(|armed| armed.in_flight) {
            armed.alarm.ring();
            self.alarm = Some(armed);
            if self.next().is_err() {
                self.give_up();
            }
        }
        if let Some(own) = self.own.take() {
            let _dropped_instead = IDLE.try_with(|idle| idle.set(Some(own)));
        }
    }
}

impl ThreadRing {
    fn new(driver: ReadDriver, process: Pid) -> io::Result<Self> {
        let (ring, poller) = match driver {
            ReadDriver::KernelPolled => {
                let poller = Poller::of(process)?;
                // The kernel's thread takes several entries, and frees their places only when it has begun all of them: their
                // reads may have ended by then, and others have been queued.
                (poller.ring(2 * ENTRIES)?, Some(poller))
            }
            ReadDriver::DevicePolled => (new_ring(|| IoUring::builder().setup_iopoll().clone())?, None),
            _ => (new_ring(IoUring::builder)?, None),
        };
        Ok(Self { ring, driver, process, _poller: poller })
    }
}

/// A ring for one thread, with the fewest interrupts that the kernel offers. Flags that it does not know are given up one
/// by one.
fn new_ring(builder: impl Fn() -> io_uring::Builder) -> io::Result<IoUring> {
    // Linux 6.1 knows the first, 5.19 the second.
    let deferred = builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
    deferred.or_else(|_| builder().setup_coop_taskrun().build(ENTRIES)).or_else(|_| builder().build(ENTRIES))
}
