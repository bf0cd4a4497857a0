//! Window in the background: one that a service reads while the scan consumes another.
//!
//! A scan that comes to it too early waits: a thread for the condition, a task for its waker.
//!
//! # Concurrency
//! `phase` is locked for a moment by the scan and by the thread that reads. `models/` runs this module in all orders of threads.

use std::io;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

use pleach_env::sync::{Condvar, Mutex};
use pleach_env::{QueuedRead, ReadRequest, ReadService, Result, WaitingTask};

use super::reader::Sst;
use super::window::{Span, Window, WindowBuffer};

/// A window that is being read in the background. One scan wants it.
pub struct WindowRead {
    sst: Arc<Sst>,
    pub(super) span: Span,
    phase: Mutex<Phase>,
    ended: Condvar,
    task: WaitingTask,
}

enum Phase {
    /// Not begun: the memory to read to.
    Waiting(Option<WindowBuffer>),
    /// In flight, or ended and taken.
    Reading,
    Ended(io::Result<WindowBuffer>),
}

impl Phase {
    fn take_ended(&mut self) -> Option<io::Result<WindowBuffer>> {
        match mem::replace(self, Self::Reading) {
            Self::Ended(read) => Some(read),
            unchanged => {
                *self = unchanged;
                None
            }
        }
    }
}

impl WindowRead {
    pub(super) fn new(sst: &Arc<Sst>, span: Span, spare: Option<WindowBuffer>) -> Self {
        let phase = Mutex::new(Phase::Waiting(spare));
        Self { sst: Arc::clone(sst), span, phase, ended: Condvar::default(), task: WaitingTask::default() }
    }

    /// Waits for the window.
    ///
    /// Requires: the read was handed to `service`, and the window has not been taken.
    pub(super) fn wait(&self, service: &ReadService<Self>) -> Result<Window> {
        let mut phase = self.phase.lock();
        loop {
            if let Some(read) = phase.take_ended() {
                return Window::of_read(&self.sst, &self.span, read);
            }
            drop(phase);
            let helped = service.help();
            phase = self.phase.lock();
            if !helped && !matches!(*phase, Phase::Ended(_)) {
                self.ended.wait(&mut phase);
            }
        }
    }

    /// The window, if it is there; otherwise `waker` is woken when it is, or when the task should help to read.
    ///
    /// Requires: as [`WindowRead::wait`].
    pub(super) fn poll(&self, service: &ReadService<Self>, waker: &Waker) -> Poll<Result<Window>> {
        // Where those who wait read, the task does so at its second turn, so that others can ask for their reads before.
        let is_first = self.task.set(waker);
        if service.wants_help() && (is_first || service.help()) {
            waker.wake_by_ref();
        }
        let read = self.phase.lock().take_ended();
        read.map_or(Poll::Pending, |read| Poll::Ready(Window::of_read(&self.sst, &self.span, read)))
    }
}

impl QueuedRead for WindowRead {
    type Buffer = WindowBuffer;

    fn request(&self, tag: u64) -> ReadRequest<'_, WindowBuffer> {
        let spare = match mem::replace(&mut *self.phase.lock(), Phase::Reading) {
            Phase::Waiting(spare) => spare,
            _ => None,
        };
        self.span.request(&self.sst, spare, tag)
    }

    fn complete(&self, result: io::Result<WindowBuffer>) {
        *self.phase.lock() = Phase::Ended(result);
        self.ended.notify_all();
        self.task.wake();
    }
}

/// Who reads windows in the background, for the cursors of a scan.
pub trait BackgroundReads: Send + Sync {
    /// The service that reads; `None` once the store is closed.
    fn service(&self) -> Option<Arc<ReadService<WindowRead>>>;
}
