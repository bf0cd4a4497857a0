//! Threads that read for others.
//!
//! The process has one set of them for all queues. They start when there is something to read, and end when there was
//! nothing for a while.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Threads at most: as many reads as a simple device does at the same time (arbitrary).
const THREADS_MAX: usize = 16;
/// A thread that had nothing to do for this time ends (arbitrary).
const IDLE_MAX: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(2) };

type Task = Box<dyn FnOnce() + Send>;

static TASKS: Mutex<Tasks> = Mutex::new(Tasks { waiting: VecDeque::new(), threads: 0, idle: 0 });
static CHANGED: Condvar = Condvar::new();

struct Tasks {
    waiting: VecDeque<Task>,
    threads: usize,
    idle: usize,
}

/// Reads of one queue that threads make.
pub(super) struct Pool<S> {
    sender: Sender<(u32, S, io::Result<()>)>,
    done: Receiver<(u32, S, io::Result<()>)>,
}

/// A read that a thread can make.
pub(super) trait PoolRead: Send + 'static {
    fn read(&mut self) -> io::Result<()>;
}

impl<S: PoolRead> Pool<S> {
    /// Fails where the system has no thread at all.
    pub(super) fn new() -> io::Result<Self> {
        let mut tasks = TASKS.lock();
        if tasks.threads == 0 {
            start(&mut tasks)?;
        }
        let (sender, done) = channel();
        Ok(Self { sender, done })
    }

    /// Has a thread make the read.
    pub(super) fn push(&mut self, number: u32, mut slot: S) {
        let sender = self.sender.clone();
        run(Box::new(move || {
            let result = slot.read();
            // The queue waits for all its reads before it goes.
            let _ = sender.send((number, slot, result));
        }));
    }

    /// Waits for one of the reads pushed to end.
    pub(super) fn next(&mut self) -> (u32, S, io::Result<()>) {
        self.done.recv().expect("the sender is in this pool")
    }
}

/// Has a thread run the task, or runs it, where the system has no thread.
pub(super) fn run(task: Task) {
    let mut tasks = TASKS.lock();
    tasks.waiting.push_back(task);
    if tasks.idle < tasks.waiting.len() && tasks.threads < THREADS_MAX {
        // Without a further thread, those that run take the tasks in turn.
        let started = start(&mut tasks);
        if started.is_err() && tasks.threads == 0 {
            let task = tasks.waiting.pop_back().expect("pushed above");
            drop(tasks);
            return task();
        }
    }
    drop(tasks);
    CHANGED.notify_one();
}

fn start(tasks: &mut Tasks) -> io::Result<()> {
    std::thread::Builder::new().name("pleach-read".to_owned()).spawn(work)?;
    tasks.threads += 1;
    Ok(())
}

fn work() {
    let mut tasks = TASKS.lock();
    loop {
        while let Some(task) = tasks.waiting.pop_front() {
            parking_lot::MutexGuard::unlocked(&mut tasks, task);
        }
        tasks.idle += 1;
        let timed_out = CHANGED.wait_for(&mut tasks, IDLE_MAX).timed_out();
        tasks.idle -= 1;
        if timed_out && tasks.waiting.is_empty() {
            tasks.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::time::Instant;

    use super::*;

    /// Has threads run as many tasks as there may be threads, and waits for them.
    fn run_many() {
        let (sender, done) = channel();
        for number in 0..THREADS_MAX {
            let sender = sender.clone();
            run(Box::new(move || sender.send(number).expect("the test waits")));
        }
        for _ in 0..THREADS_MAX {
            done.recv_timeout(Duration::from_secs(60)).expect("each task runs");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads of the real machine")]
    fn threads_that_ended_are_replaced() {
        for _ in 0..3 {
            run_many();
            let begin = Instant::now();
            // Other tests use them too.
            let have_ended = || {
                let tasks = TASKS.lock();
                assert!(tasks.threads > 0 || tasks.idle == 0);
                tasks.threads == 0
            };
            while !have_ended() {
                assert!(begin.elapsed() < Duration::from_secs(60), "threads with nothing to do end");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Each task waits until the others have begun.
    #[test]
    fn as_many_tasks_as_threads_run_at_the_same_time() {
        let barrier = Arc::new(Barrier::new(THREADS_MAX));
        let (sender, done) = channel();
        for _ in 0..THREADS_MAX {
            let (sender, barrier) = (sender.clone(), Arc::clone(&barrier));
            run(Box::new(move || {
                barrier.wait();
                sender.send(()).expect("the test waits");
            }));
        }
        for _ in 0..THREADS_MAX {
            done.recv_timeout(Duration::from_secs(60)).expect("no task waits for another");
        }
    }
}
