//! The `io_uring` of a thread.
//!
//! Each thread that reads keeps one ring, made when it is needed first. While a queue has it, reads are in flight on it; it
//! goes back empty. A ring with an [`Alarm`] belongs to a thread that also waits for other threads.

#![expect(unsafe_code, reason = "the kernel is given addresses")]

use std::cell::Cell;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, getpid};

use super::{ReadBuffer, Slot, Source};

/// Reads in flight on one ring at most. Devices gain little beyond: 256 are hardly faster than 128 (measured).
const ENTRIES: u32 = 256;

thread_local! {
    static IDLE: Cell<Option<Box<Thread>>> = const { Cell::new(None) };
}

/// A ring, and the process that may use it: a forked one shares the memory with its parent.
struct Thread {
    ring: IoUring,
    process: Pid,
}

/// A ring in use; on drop it goes back to the thread.
pub(super) struct Ring {
    /// Absent only after the system gave the ring up.
    thread: Option<Box<Thread>>,
    alarm: Option<Armed>,
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
    /// Requires: `depth` is at most [`ENTRIES`].
    pub(super) fn of_thread(depth: u32) -> io::Result<Self> {
        assert!(depth <= ENTRIES, "a ring has room for {ENTRIES} reads");
        let process = getpid();
        let idle = IDLE.take().filter(|thread| thread.process == process);
        let thread = match idle {
            Some(thread) => thread,
            None => Box::new(Thread { ring: new_ring()?, process }),
        };
        Ok(Self { thread: Some(thread), alarm: None })
    }

    /// Gives the ring an alarm.
    pub(super) fn with_alarm(mut self) -> io::Result<(Self, Arc<Alarm>)> {
        let alarm = Arc::new(Alarm(eventfd(0, EventfdFlags::CLOEXEC)?));
        self.alarm = Some(Armed { alarm: Arc::clone(&alarm), counter: Box::new([0; 8]), in_flight: false });
        Ok((self, alarm))
    }

    fn ring(&mut self) -> &mut IoUring {
        &mut self.thread.as_mut().expect("the ring was not given up").ring
    }

    /// Queues what is left to read of a slot.
    ///
    /// Requires: the slot stays in the queue's table until [`Ring::next`] returns `number`.
    pub(super) fn push<B: ReadBuffer>(&mut self, number: u32, slot: &mut Slot<B>) {
        let Source::Descriptor(descriptor) = &slot.source else { unreachable!("the queue has checked it") };
        let rest = &mut slot.buffer.bytes_mut()[slot.filled..];
        let len = u32::try_from(rest.len()).expect("a read is shorter than 4 GiB");
        let entry = opcode::Read::new(types::Fd(descriptor.as_raw_fd()), rest.as_mut_ptr(), len)
            .offset(slot.offset + slot.filled as u64)
            .build()
            .user_data(u64::from(number));
        while !self.try_push(&entry) {
            self.enter(0);
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: a slot owns memory and descriptor until the completion has been taken. Its buffer's memory does not move
        // with the slot, and nobody else uses it ([`ReadBuffer`]). The alarm and its counter live as long as the ring.
        unsafe { self.ring().submission().push(entry).is_ok() }
    }

    /// Queues the read of the alarm, if there is one and it is not in flight.
    fn arm(&mut self) {
        let Some(armed) = self.alarm.as_mut().filter(|armed| !armed.in_flight) else { return };
        armed.in_flight = true;
        let descriptor = types::Fd(armed.alarm.0.as_raw_fd());
        let entry = opcode::Read::new(descriptor, armed.counter.as_mut_ptr(), 8).build().user_data(ALARM);
        while !self.try_push(&entry) {
            self.enter(0);
        }
    }

    /// Whether [`Ring::next`] returns at once.
    pub(super) fn has_completion(&mut self) -> bool {
        !self.ring().completion().is_empty()
    }

    /// Submits what is queued, if nothing is done yet, and waits.
    ///
    /// Requires: a read is in flight, or the ring has an alarm.
    pub(super) fn next(&mut self) -> Event {
        self.arm();
        loop {
            let next = self.ring().completion().next();
            if let Some(entry) = next {
                if entry.user_data() == ALARM {
                    self.alarm.as_mut().expect("it rang").in_flight = false;
                    return Event::Alarm;
                }
                let number = u32::try_from(entry.user_data()).expect("the number of a slot");
                let result = usize::try_from(entry.result());
                let result = result.map_err(|_| io::Error::from_raw_os_error(-entry.result()));
                return Event::Read(number, result);
            }
            self.enter(1);
        }
    }

    fn enter(&mut self, wanted: usize) {
        match self.ring().submit_and_wait(wanted) {
            Ok(_) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock
                ) => {}
            Err(e) => {
                // Whether the kernel still uses the buffers is not known. They are leaked with the ring.
                mem::forget((self.thread.take(), self.alarm.take()));
                panic!("the system gave up a ring in use: {e}");
            }
        }
    }

    /// Whether the ring works, so that its queue may drop its slots.
    pub(super) fn is_intact(&self) -> bool {
        self.thread.is_some()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while let Some(armed) = self.alarm.take_if(|_| self.thread.is_some()) {
            if !armed.in_flight {
                break;
            }
            armed.alarm.ring();
            self.alarm = Some(armed);
            let _alarm = self.next();
        }
        if let Some(thread) = self.thread.take() {
            IDLE.set(Some(thread));
        }
    }
}

/// A ring for one thread, with the fewest interrupts that the kernel offers. Flags that it does not know are given up one by
/// one.
fn new_ring() -> io::Result<IoUring> {
    // Linux 6.1 knows the first, 5.19 the second.
    let deferred = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
    deferred
        .or_else(|_| IoUring::builder().setup_coop_taskrun().build(ENTRIES))
        .or_else(|_| IoUring::new(ENTRIES))
}
