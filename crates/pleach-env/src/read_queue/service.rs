//! Service of reads: any thread hands reads in, and each read is completed when it has ended.
//!
//! With a ring, one thread of the service submits the reads that others hand in and takes what has ended. It is woken only
//! when it sleeps, so under load one system call submits several reads and takes those that have ended. Without a ring, or
//! after it has failed permanently, threads of the process read. With [`ReadDriver::Blocking`], the tasks that wait read
//! ([`ReadService::help`]).
//!
//! # Concurrency
//! Callers and the thread share the [`Inbox`], and nothing else.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::inbox::{Inbox, InboxState};
use super::pool::{self, PoolRead};
#[cfg(target_os = "linux")]
use super::ring::{Alarm, Ring};
use super::{CompletedRead, Engine, ReadBuffer, ReadDriver, ReadQueue, ReadRequest, Slot, Source};
use crate::env::Env;
#[cfg(target_os = "linux")]
use crate::error::is_out_of_files;
use crate::failpoint;

thread_local! {
    /// Addresses of the `Shared`s for which this thread reads as one of the pool. Several, where the system has no thread
    /// for a read that a waker begins.
    static READS_FOR: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Reads in flight at most: as many as a device gains by.
const DEPTH: u32 = 128;

/// A read that a [`ReadService`] makes.
pub trait QueuedRead: Send + Sync + 'static {
    /// Memory for its bytes.
    type Buffer: ReadBuffer;

    /// The read, now that its turn has come.
    fn request(&self, tag: u64) -> ReadRequest<'_, Self::Buffer>;

    /// Whether nobody wants the read any more. It is asked when the read's turn has come; if it says so, the read is
    /// neither made nor completed.
    fn give_up(&self) -> bool {
        false
    }

    /// Takes what was read. It runs on a thread that reads for others, so it is short.
    fn complete(&self, result: io::Result<Self::Buffer>);
}

/// A service of reads. It is closed when it is dropped.
pub struct ReadService<R: QueuedRead> {
    env: Arc<dyn Env>,
    shared: Arc<Shared<R>>,
    worker: Worker,
}

enum Worker {
    #[cfg(target_os = "linux")]
    Ring(Mutex<Option<RingThread>>),
    Threads,
    /// The threads that wait.
    Waiters,
}

/// The thread with the ring, until the service is closed. Then the alarm's descriptor is closed too.
#[cfg(target_os = "linux")]
struct RingThread {
    alarm: Arc<Alarm>,
    thread: JoinHandle<()>,
}

struct Shared<R> {
    inbox: Inbox<Arc<R>>,
    /// Signalled when a read of the pool's threads has ended after the close.
    idle: Condvar,
}

impl<R: QueuedRead> ReadService<R> {
    /// Starts a service. Threads read where the system gives no ring now, or where rings of this process have failed too
    /// often.
    pub fn new(env: &Arc<dyn Env>, driver: ReadDriver) -> Self {
        let shared = Arc::new(Shared { inbox: Inbox::new(), idle: Condvar::new() });
        let worker = match driver {
            ReadDriver::Blocking => Worker::Waiters,
            #[cfg(target_os = "linux")]
            ring if ring.is_ring() && !Ring::are_given_up() => {
                start_ring(&shared, env, ring).unwrap_or(Worker::Threads)
            }
            _ => Worker::Threads,
        };
        Self { env: Arc::clone(env), shared, worker }
    }

    /// Hands a read in. `false` when the service is closed: the read was completed with an error.
    pub fn submit(&self, read: Arc<R>) -> bool {
        let mut inbox = self.shared.inbox.lock();
        if inbox.is_closed {
            drop(inbox);
            read.complete(Err(io::ErrorKind::NotConnected.into()));
            return false;
        }
        match &self.worker {
            #[cfg(target_os = "linux")]
            Worker::Ring(thread) if inbox.has_ring => {
                let sleeps = inbox.push(read);
                drop(inbox);
                // A close that comes between wakes the thread itself.
                if sleeps && let Some(thread) = &*thread.lock() {
                    thread.alarm.ring();
                }
            }
            #[cfg(target_os = "linux")]
            Worker::Ring(..) => read_by_pool(&self.shared, inbox, [read]),
            Worker::Threads => read_by_pool(&self.shared, inbox, [read]),
            Worker::Waiters => inbox.reads.push(read),
        }
        true
    }

    /// The thread that has the ring.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn ring_thread(&self) -> Option<std::thread::ThreadId> {
        let Worker::Ring(thread) = &self.worker else { return None };
        thread.lock().as_ref().map(|thread| thread.thread.thread().id())
    }

    /// Whether the ring has not failed permanently.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn has_ring(&self) -> bool {
        self.shared.inbox.lock().has_ring
    }

    /// Takes back a read that nobody waits for any more, if it has not begun.
    pub fn withdraw(&self, read: &Arc<R>) {
        let mut inbox = self.shared.inbox.lock();
        let place = inbox.reads.iter().position(|other| Arc::ptr_eq(other, read));
        let withdrawn = place.map(|place| inbox.reads.swap_remove(place));
        drop(inbox);
        drop(withdrawn);
    }

    /// Whether reads are made only by [`ReadService::help`].
    pub fn wants_help(&self) -> bool {
        matches!(self.worker, Worker::Waiters)
    }

    /// Makes one of the reads that were handed in. `false` if there is none, or if others make them.
    pub fn help(&self) -> bool {
        let mut inbox = self.shared.inbox.lock();
        if !self.wants_help() || inbox.reads.is_empty() {
            return false;
        }
        let next = self.env.next_read(inbox.reads.len());
        let read = inbox.reads.swap_remove(next);
        drop(inbox);
        read_alone(&*read);
        true
    }
}

impl<R: QueuedRead> ReadService<R> {
    /// Waits for the reads that were handed in, and takes no more.
    pub fn close(&self) {
        let mut inbox = self.shared.inbox.lock();
        inbox.is_closed = true;
        match &self.worker {
            #[cfg(target_os = "linux")]
            Worker::Ring(thread) => {
                drop(inbox);
                let Some(RingThread { alarm, thread }) = thread.lock().take() else { return };
                alarm.ring();
                // A task that is dropped when it is woken may close the service on its own thread, which then ends by
                // itself.
                if thread.thread().id() != std::thread::current().id() {
                    // A panic of the thread was reported by the panic hook.
                    let _ = thread.join();
                    self.wait_for_pool(self.shared.inbox.lock());
                }
            }
            Worker::Threads => self.wait_for_pool(inbox),
            Worker::Waiters => {
                drop(inbox);
                while self.help() {}
            }
        }
    }
}

impl<R: QueuedRead> ReadService<R> {
    /// Waits until threads of the pool make no reads for this service.
    fn wait_for_pool(&self, mut inbox: MutexGuard<'_, InboxState<Arc<R>>>) {
        // A task that is dropped when it is woken may close the service inside of the read that it waited for.
        let address = Arc::as_ptr(&self.shared).addr();
        let count = |services: &RefCell<Vec<usize>>| {
            services.borrow().iter().filter(|&&reads| reads == address).count()
        };
        // A thread whose values are being dropped makes no read.
        let own = READS_FOR.try_with(count).unwrap_or(0);
        while inbox.running > own {
            self.shared.idle.wait(&mut inbox);
        }
    }
}

/// Has threads of the pool make the reads.
fn read_by_pool<R: QueuedRead>(
    shared: &Arc<Shared<R>>,
    mut inbox: MutexGuard<'_, InboxState<Arc<R>>>,
    reads: impl IntoIterator<Item = Arc<R>, IntoIter: ExactSizeIterator>,
) {
    let reads = reads.into_iter();
    inbox.running += reads.len();
    drop(inbox);
    for read in reads {
        let shared = Arc::clone(shared);
        pool::run(Box::new(move || {
            READS_FOR.with_borrow_mut(|services| services.push(Arc::as_ptr(&shared).addr()));
            read_alone(&*read);
            drop(read);
            READS_FOR.with_borrow_mut(Vec::pop);
            let mut inbox = shared.inbox.lock();
            inbox.running -= 1;
            if inbox.is_closed {
                shared.idle.notify_all();
            }
        }));
    }
}

/// Completes a read. A task that panics when it is woken must not end a thread that reads for others; the panic hook has
/// reported it.
fn complete<R: QueuedRead>(read: &R, result: io::Result<R::Buffer>) {
    let _reported = catch_unwind(AssertUnwindSafe(|| read.complete(result)));
}

/// The request of a read whose turn has come; `None` if nobody wants it. A read that panics ends with an error, and the
/// thread goes on.
fn request<R: QueuedRead>(read: &R, tag: u64) -> Option<ReadRequest<'_, R::Buffer>> {
    let asked = catch_unwind(AssertUnwindSafe(|| (!read.give_up()).then(|| read.request(tag))));
    asked.unwrap_or_else(|_reported| {
        complete(read, Err(io::Error::other("the read panicked before it began")));
        None
    })
}

/// Makes a read on this thread, if it is wanted.
fn read_alone<R: QueuedRead>(read: &R) {
    let Some(ReadRequest { file, offset, buffer, needed, tag }) = request(read, 0) else { return };
    let mut slot = Slot { source: Source::File(Arc::clone(file)), buffer, offset, filled: 0, needed, tag };
    let result = slot.read();
    complete(read, result.map(|()| slot.buffer));
}

#[cfg(target_os = "linux")]
fn start_ring<R: QueuedRead>(
    shared: &Arc<Shared<R>>,
    env: &Arc<dyn Env>,
    driver: ReadDriver,
) -> io::Result<Worker> {
    let (sender, started) = std::sync::mpsc::sync_channel(1);
    let (shared, env) = (Arc::clone(shared), Arc::clone(env));
    let run = move || {
        let (ring, alarm) = match Ring::of_thread(driver, DEPTH).and_then(Ring::with_alarm) {
            Ok(made) => made,
            Err(error) => return drop(sender.send(Err(error))),
        };
        let queue = ReadQueue::with_engine(&*env, Engine::Ring(ring), DEPTH);
        shared.inbox.lock().has_ring = true;
        drop(sender.send(Ok(alarm)));
        serve(&shared, queue);
    };
    let thread = std::thread::Builder::new().name("pleach-reads".to_owned()).spawn(run)?;
    let alarm = started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for reads ended")))?;
    Ok(Worker::Ring(Mutex::new(Some(RingThread { alarm, thread }))))
}

/// The life of the thread with the ring. Each turn empties the inbox, submits what fits, waits for one read and takes all
/// that have ended.
#[cfg(target_os = "linux")]
fn serve<R: QueuedRead>(shared: &Arc<Shared<R>>, mut queue: ReadQueue<'_, R::Buffer>) {
    let mut waiting = VecDeque::new();
    let mut reads =
        Reads { in_flight: (0..DEPTH).map(|_| None).collect(), free: (0..DEPTH as usize).collect() };
    loop {
        let is_closed = shared.inbox.take(&mut waiting);
        failpoint::reached("reads.looked");
        while !queue.is_full()
            && let Some(read) = waiting.pop_front()
        {
            if let Err(later) = reads.push(&mut queue, read) {
                waiting.push_front(later);
                break;
            }
        }
        if is_closed && reads.free.len() == reads.in_flight.len() && waiting.is_empty() {
            return;
        }
        queue.poll(|| shared.inbox.has_reads());
        // A full queue takes no more before one of its reads has ended.
        if !queue.has_completion() && !queue.is_full() && !shared.inbox.fall_asleep() {
            continue;
        }
        let mut done = queue.wait();
        shared.inbox.wake_up();
        while let Some(read) = done {
            reads.complete(read);
            done = if queue.has_completion() { queue.wait() } else { None };
        }
        if !queue.driver().is_ring() {
            return leave_ring(shared, waiting, queue, reads);
        }
    }
}

/// The end of the thread after its ring has failed permanently: threads of the pool make what has not begun.
#[cfg(target_os = "linux")]
#[cold]
fn leave_ring<R: QueuedRead>(
    shared: &Arc<Shared<R>>,
    mut waiting: VecDeque<Arc<R>>,
    mut queue: ReadQueue<'_, R::Buffer>,
    mut reads: Reads<R>,
) {
    let mut inbox = shared.inbox.lock();
    inbox.has_ring = false;
    waiting.extend(mem::take(&mut inbox.reads));
    read_by_pool(shared, inbox, waiting);
    while let Some(read) = queue.next() {
        reads.complete(read);
    }
}

/// The reads in flight on the ring, by the tags of their requests.
#[cfg(target_os = "linux")]
struct Reads<R> {
    in_flight: Vec<Option<Arc<R>>>,
    free: Vec<usize>,
}

#[cfg(target_os = "linux")]
impl<R: QueuedRead> Reads<R> {
    /// Begins a read. The error is the read, if no descriptor is left before another read has ended.
    fn push(&mut self, queue: &mut ReadQueue<'_, R::Buffer>, read: Arc<R>) -> Result<(), Arc<R>> {
        let place = *self.free.last().expect("a place for each read in flight");
        let Some(request) = request(&*read, place as u64) else { return Ok(()) };
        self.free.pop();
        match queue.push(request) {
            Ok(()) => self.in_flight[place] = Some(read),
            Err(error) => {
                self.free.push(place);
                if is_out_of_files(&error) && self.free.len() < self.in_flight.len() {
                    return Err(read);
                }
                complete(&*read, Err(error));
            }
        }
        Ok(())
    }

    fn complete(&mut self, done: CompletedRead<R::Buffer>) {
        let place = usize::try_from(done.tag).expect("a place in the list");
        self.free.push(place);
        let read = self.in_flight[place].take().expect("it was in flight");
        complete(&*read, done.result);
    }
}

impl<R: QueuedRead> Drop for ReadService<R> {
    fn drop(&mut self) {
        self.close();
    }
}
