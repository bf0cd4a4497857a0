//! Background jobs: closures that do one bounded step at a time.
//!
//! On a real machine a job has a thread, which steps it until it is idle and then sleeps until it is woken. In the simulator
//! the test, or a foreground call that waits, steps the jobs; the seed decides which one.

use std::sync::Arc;
use std::time::Duration;

/// The result of a job's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// There is, or may be, more to do.
    Again,
    /// Nothing to do until the job is woken.
    Idle,
    /// Nothing to do until the job is woken or the time has passed. The same as [`JobStep::Idle`] in the simulator, where time
    /// passes only in waits.
    IdleFor(Duration),
}

/// A background job. One step should take well under a second, so that stopping is prompt.
pub trait Job: Send {
    /// Does one step.
    fn step(&mut self) -> JobStep;

    /// Whether the job's thread has a lower priority than others (on Linux a higher nice value).
    fn gives_way(&self) -> bool {
        false
    }
}

impl<F: FnMut() -> JobStep + Send> Job for F {
    fn step(&mut self) -> JobStep {
        self()
    }
}

/// Wakes a job. Cheap if the job is awake.
#[derive(Clone)]
pub struct JobWaker(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl JobWaker {
    /// Makes the job's next step happen soon. A wake that arrives during a step is not lost.
    pub fn wake(&self) {
        (self.0)();
    }
}

/// Owner of a job. Dropping it stops the job: it waits for the step in progress and drops the job.
pub struct JobHandle {
    pub(crate) waker: JobWaker,
    pub(crate) stop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl JobHandle {
    /// A waker of this job.
    pub fn waker(&self) -> JobWaker {
        self.waker.clone()
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}
