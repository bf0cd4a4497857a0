//! Queue of reads: many reads of files in flight, each returned when it has ended.
//!
//! A device does many reads at the same time, and a system call that submits many costs hardly more than one that submits
//! one. A [`ReadQueue`] takes reads until it is full, and returns them in the order in which they end. What brings the
//! bytes is a [`ReadDriver`]: an `io_uring` ([`ring`]), which may be polled, threads ([`pool`]), or `pread` on the calling
//! thread.
//!
//! # Invariants
//! 1. A slot owns a read's buffer and descriptor until the read has ended, whatever the caller does: the kernel never
//!    writes to memory, nor reads from a descriptor, that was given back.
//! 2. A read ends with all bytes that it needs, or with an error. Short and interrupted reads go on.
//! 3. Each read ends, also when a ring fails permanently. Threads make the reads that the kernel has not taken; the others
//!    end with an error, and their slots are leaked.
//!
//! # Concurrency
//! A queue belongs to the thread that made it.

mod driver;
mod inbox;
mod lazy;
mod pool;
#[cfg(target_os = "linux")]
mod ring;
mod service;

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::env::{Env, File};
pub use driver::ReadDriver;
pub use lazy::LazyReadService;
use pool::{Pool, PoolRead};
#[cfg(target_os = "linux")]
use ring::{Event, Ring};
pub use service::{QueuedRead, ReadService};

/// Memory that a read fills.
///
/// # Safety
/// [`ReadBuffer::bytes_mut`] returns the same memory each time, moving the value does not move that memory, and nobody else
/// uses it as long as the value lives. If the value is leaked, the memory is never freed.
#[expect(unsafe_code, reason = "the kernel writes to the memory while the value is being moved")]
pub unsafe trait ReadBuffer: Send + 'static {
    /// The memory.
    fn bytes_mut(&mut self) -> &mut [u8];
}

// SAFETY: a vector's elements are on the heap, and nothing here makes it grow.
#[expect(unsafe_code, reason = "see above")]
unsafe impl ReadBuffer for Vec<u8> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// A read to make.
pub struct ReadRequest<'f, B> {
    /// The file.
    pub file: &'f Arc<dyn File>,
    /// Where to begin.
    pub offset: u64,
    /// Memory for the bytes; at most `u32::MAX` of them.
    pub buffer: B,
    /// Bytes that must be there; the file may end behind them. At most the buffer's length.
    pub needed: usize,
    /// The caller's name for the read.
    pub tag: u64,
}

/// A read that has ended.
pub struct CompletedRead<B> {
    /// The caller's name for it.
    pub tag: u64,
    /// The buffer, filled. `UnexpectedEof` where the file ended before the bytes needed.
    pub result: io::Result<B>,
}

/// A bounded queue of reads.
pub struct ReadQueue<'e, B: ReadBuffer> {
    env: &'e dyn Env,
    engine: Engine<B>,
    /// A read in flight is in the slot that its number names.
    slots: Vec<Option<Slot<B>>>,
    free: Vec<u32>,
    /// Reads that were lost with a ring: their numbers, tags and errors.
    lost: Vec<(u32, u64, io::Error)>,
    was_refused_polling: bool,
    /// A ring, and the thread-local place it goes back to, are the calling thread's.
    not_send: PhantomData<*const ()>,
}

enum Engine<B> {
    #[cfg(target_os = "linux")]
    Ring(Ring),
    Threads(Pool<Slot<B>>),
    Blocking(Vec<u32>),
}

/// A read in flight.
struct Slot<B> {
    source: Source,
    buffer: B,
    offset: u64,
    filled: usize,
    needed: usize,
    tag: u64,
}

/// What a read reads from; keeps the file's descriptor open.
enum Source {
    Descriptor(Arc<fs::File>),
    File(Arc<dyn File>),
}

impl<B: ReadBuffer> Slot<B> {
    /// Takes what one read returned. `None` when the read goes on.
    fn take(&mut self, result: io::Result<usize>) -> Option<io::Result<()>> {
        match result {
            Ok(0) if self.filled < self.needed => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                self.filled += n;
                (self.filled >= self.needed).then_some(Ok(()))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => None,
            Err(e) => Some(Err(e)),
        }
    }

    fn completed(self, result: io::Result<()>) -> CompletedRead<B> {
        CompletedRead { tag: self.tag, result: result.map(|()| self.buffer) }
    }
}

impl<B: ReadBuffer> PoolRead for Slot<B> {
    fn read(&mut self) -> io::Result<()> {
        loop {
            let rest = &mut self.buffer.bytes_mut()[self.filled..];
            let at = self.offset + self.filled as u64;
            let result = match &self.source {
                Source::Descriptor(descriptor) => descriptor.read_at(rest, at),
                // Others wait for the end of the read, and the file may be one of the user's own environment.
                Source::File(file) => catch_unwind(AssertUnwindSafe(|| file.read_at(rest, at)))
                    .unwrap_or_else(|_reported| Err(io::Error::other("the read panicked"))),
            };
            if let Some(result) = self.take(result) {
                return result;
            }
        }
    }
}

impl<'e, B: ReadBuffer> ReadQueue<'e, B> {
    /// A queue of up to `depth` reads in flight. Threads read where rings of this process have failed too often.
    ///
    /// # Errors
    /// Where the system has no ring, or no thread, for it.
    ///
    /// # Panics
    /// If `depth` is above 256 and a ring reads.
    pub fn new(env: &'e dyn Env, driver: ReadDriver, depth: u32) -> io::Result<Self> {
        let engine = match driver {
            ReadDriver::Threads => Engine::Threads(Pool::new()?),
            ReadDriver::Blocking => Engine::Blocking(Vec::new()),
            #[cfg(target_os = "linux")]
            _ if Ring::are_given_up() => Engine::Threads(Pool::new()?),
            #[cfg(target_os = "linux")]
            ring => Engine::Ring(Ring::of_thread(ring, depth)?),
            #[cfg(not(target_os = "linux"))]
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Self::with_engine(env, engine, depth))
    }

    fn with_engine(env: &'e dyn Env, engine: Engine<B>, depth: u32) -> Self {
        let (slots, free) = ((0..depth).map(|_| None).collect(), (0..depth).rev().collect());
        let (lost, was_refused_polling) = (Vec::new(), false);
        Self { env, engine, slots, free, lost, was_refused_polling, not_send: PhantomData }
    }

    /// What brings the bytes now: threads or this thread, after the ring has failed permanently.
    pub fn driver(&self) -> ReadDriver {
        match &self.engine {
            #[cfg(target_os = "linux")]
            Engine::Ring(ring) => ring.driver(),
            Engine::Threads(_) => ReadDriver::Threads,
            Engine::Blocking(_) => ReadDriver::Blocking,
        }
    }

    /// Whether a wait returns immediately.
    #[cfg(target_os = "linux")]
    fn has_completion(&mut self) -> bool {
        if let Engine::Ring(ring) = &mut self.engine { ring.has_completion() } else { false }
    }

    /// Whether the file system or the device has refused to be polled for a read, which this thread then made.
    pub(crate) fn was_refused_polling(&self) -> bool {
        self.was_refused_polling
    }

    /// Polls for a short time, if the driver does, until a read has ended or `is_over`.
    #[cfg(target_os = "linux")]
    fn poll(&mut self, is_over: impl FnMut() -> bool) {
        if let Engine::Ring(ring) = &mut self.engine {
            ring.poll(is_over);
        }
    }

    /// Whether [`ReadQueue::push`] must wait for [`ReadQueue::next`].
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes a read. It begins at the latest with the next [`ReadQueue::next`] that finds nothing done.
    ///
    /// Requires: the queue is not full.
    ///
    /// # Errors
    /// When the file cannot be opened, or a ring cannot read it; then the read is not made. Errors of the read itself come
    /// with its completion.
    pub fn push(&mut self, read: ReadRequest<'_, B>) -> io::Result<()> {
        let source = match read.file.descriptor()? {
            Some(descriptor) => Source::Descriptor(descriptor),
            None => Source::File(Arc::clone(read.file)),
        };
        #[cfg(target_os = "linux")]
        if matches!((&self.engine, &source), (Engine::Ring(_), Source::File(_))) {
            let message = "a ring reads files of the operating system only; choose another driver of reads";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let ReadRequest { offset, buffer, needed, tag, .. } = read;
        let number = self.free.pop().expect("the queue is not full");
        let slot =
            self.slots[number as usize].insert(Slot { source, buffer, offset, filled: 0, needed, tag });
        match &mut self.engine {
            #[cfg(target_os = "linux")]
            Engine::Ring(ring) => ring.push(number, slot),
            Engine::Threads(pool) => {
                let slot = self.slots[number as usize].take().expect("filled above");
                pool.push(number, slot);
            }
            Engine::Blocking(pending) => pending.push(number),
        }
        Ok(())
    }

    /// Waits for the read that ends next. `None` when none is in flight.
    #[expect(clippy::should_implement_trait, reason = "pushing between two calls makes it no iterator")]
    pub fn next(&mut self) -> Option<CompletedRead<B>> {
        while self.free.len() < self.slots.len() {
            #[cfg(target_os = "linux")]
            self.poll(|| false);
            let done = self.wait();
            if done.is_some() {
                return done;
            }
        }
        None
    }

    /// Waits for the read that ends next; `None` when the alarm rang, or the ring has failed permanently.
    ///
    /// Requires: a read is in flight, or the ring has an alarm.
    fn wait(&mut self) -> Option<CompletedRead<B>> {
        if let Some((number, tag, error)) = self.lost.pop() {
            self.free.push(number);
            return Some(CompletedRead { tag, result: Err(error) });
        }
        let (number, slot, result) = match &mut self.engine {
            #[cfg(target_os = "linux")]
            Engine::Ring(ring) => loop {
                let (number, result) = match ring.next() {
                    Ok(Event::Read(number, result)) => (number, result),
                    Ok(Event::Alarm) => return None,
                    Err(error) => {
                        self.leave_ring(&error);
                        return None;
                    }
                };
                let slot = self.slots[number as usize].as_mut().expect("its read is in flight");
                let taken = match result {
                    Err(e) if ring.driver() == ReadDriver::DevicePolled && is_refusal(&e) => {
                        self.was_refused_polling = true;
                        Some(slot.read())
                    }
                    result => slot.take(result),
                };
                match taken {
                    None => ring.push(number, slot),
                    Some(result) => {
                        break (number, self.slots[number as usize].take().expect("as above"), result);
                    }
                }
            },
            Engine::Threads(pool) => pool.next(),
            Engine::Blocking(pending) => {
                let number = pending.swap_remove(self.env.next_read(pending.len()));
                let mut slot = self.slots[number as usize].take().expect("its read is in flight");
                let result = slot.read();
                (number, slot, result)
            }
        };
        self.free.push(number);
        Some(slot.completed(result))
    }

    /// Goes on without the ring, which has failed permanently.
    #[cfg(target_os = "linux")]
    #[cold]
    fn leave_ring(&mut self, error: &io::Error) {
        let Engine::Ring(ring) = &mut self.engine else { unreachable!("it has failed") };
        let untaken = ring.give_up();
        for (number, place) in (0..).zip(&mut self.slots) {
            if !untaken.contains(&number)
                && let Some(slot) = place.take()
            {
                let error = io::Error::other(format!("the ring failed while it read: {error}"));
                self.lost.push((number, slot.tag, error));
                // The kernel may write to its buffer at any time.
                mem::forget(slot);
            }
        }
        self.engine = match Pool::new() {
            Ok(mut pool) => {
                for number in untaken {
                    let slot = self.slots[number as usize].take().expect("its read is in flight");
                    pool.push(number, slot);
                }
                Engine::Threads(pool)
            }
            // The system has no thread.
            Err(_) => Engine::Blocking(untaken),
        };
    }
}

/// Whether a read failed because its file cannot be polled.
#[cfg(target_os = "linux")]
fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
}

impl<B: ReadBuffer> Drop for ReadQueue<'_, B> {
    /// Waits for what is in flight.
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

#[cfg(test)]
mod tests;
