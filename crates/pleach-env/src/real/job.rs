//! A background job's thread: steps the job until it is idle, then parks until it is woken or stopped.
//!
//! # Concurrency
//! One atomic byte of flags holds the whole state. A waker sets `WOKEN` and then unparks. The thread clears `WOKEN`, and parks
//! only if the flag was clear. A wake between the two leaves the park token, so the park returns at once. A wake during a step
//! leaves the flag. So no wake is lost, even if the step uses up park tokens. The step sees what the waker wrote before: the
//! flag is set with `Release` and taken with `Acquire`.
//!
//! # Panics
//! A panic in a step runs the panic hook, which prints it, and ends the thread. The unwinding drops the job. Later wakes have
//! no effect, and dropping the handle does not panic. A job that must report its panic does so in the `Drop` of a value it
//! owns.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use crate::job::{Job, JobHandle, JobStep, JobWaker};

const WOKEN: u8 = 1;
const STOPPED: u8 = 2;

/// Starts the job's thread, parked.
pub(super) fn spawn(name: &str, job: Box<dyn Job>) -> io::Result<JobHandle> {
    let flags = Arc::new(AtomicU8::new(0));
    let body = {
        let flags = Arc::clone(&flags);
        move || run(&flags, job)
    };
    let joiner = thread::Builder::new().name(name.to_owned()).spawn(body)?;

    let thread = joiner.thread().clone();
    let waker = {
        let flags = Arc::clone(&flags);
        JobWaker(Arc::new(move || {
            if flags.fetch_or(WOKEN, Ordering::AcqRel) & WOKEN == 0 {
                thread.unpark();
            }
        }))
    };
    let stop = move || stop(&flags, joiner);
    Ok(JobHandle { waker, stop: Some(Box::new(stop)) })
}

/// Nice value of a job that gives way: it gets about a quarter of the share of an ordinary thread (arbitrary).
const NICE: i32 = 6;

fn run(flags: &AtomicU8, mut job: Box<dyn Job>) {
    if job.gives_way() {
        // On Linux a nice value belongs to a thread, and only the superuser can lower it again. If the system refuses, the job
        // runs as any other.
        let _best_effort = rustix::process::setpriority_process(None, NICE);
    }
    let mut timeout = None;
    loop {
        let seen = flags.fetch_and(!WOKEN, Ordering::AcqRel);
        if seen & STOPPED != 0 {
            return;
        }
        if seen & WOKEN == 0 {
            match timeout.take() {
                // If something else ends the wait, an extra step does no harm.
                Some(timeout) => {
                    thread::park_timeout(timeout);
                    flags.fetch_or(WOKEN, Ordering::AcqRel);
                }
                None => thread::park(),
            }
            continue;
        }
        timeout = loop {
            match job.step() {
                JobStep::Again if flags.load(Ordering::Acquire) & STOPPED == 0 => {}
                JobStep::Again | JobStep::Idle => break None,
                JobStep::IdleFor(timeout) => break Some(timeout),
            }
        };
    }
}

/// Waits for the thread to end. On that thread itself it does not wait: a job may drop its own handle, and then ends after
/// that step.
fn stop(flags: &AtomicU8, joiner: thread::JoinHandle<()>) {
    flags.fetch_or(STOPPED, Ordering::AcqRel);
    joiner.thread().unpark();
    if thread::current().id() != joiner.thread().id() {
        let _ = joiner.join(); // An error means the job panicked, which the panic hook has reported.
    }
}
