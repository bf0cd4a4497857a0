//! Window in the background: one that a service reads while the scan consumes another.
//!
//! A scan that comes to it too early waits: a thread for the condition, a task for its waker.
//!
//! # Concurrency
//! `state` is locked for a moment by the scan and by the thread that reads. It is not locked while a task is woken or a waker
//! is dropped, because a waker is the caller's code. `models/` runs this module in all orders of threads.

use std::io;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

use pleach_env::sync::{Condvar, Mutex};
use pleach_env::{QueuedRead, ReadRequest, ReadService, Result, wake};

use super::reader::Sst;
use super::window::{Span, Window, WindowBuffer};

/// A window that is being read in the background. One scan wants it.
pub struct WindowRead {
    sst: Arc<Sst>,
    pub(super) span: Span,
    state: Mutex<ReadState>,
    ended: Condvar,
}

struct ReadState {
    phase: Phase,
    /// Woken at the end: the task of the last poll.
    task: Option<Waker>,
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
        let state = Mutex::new(ReadState { phase: Phase::Waiting(spare), task: None });
        Self { sst: Arc::clone(sst), span, state, ended: Condvar::default() }
    }

    /// Waits for the window.
    ///
    /// Requires: the read was handed to `service`, and the window has not been taken.
    pub(super) fn wait(&self, service: &ReadService<Self>) -> Result<Window> {
        let mut state = self.state.lock();
        loop {
            if let Some(read) = state.phase.take_ended() {
                return Window::of_read(&self.sst, &self.span, read);
            }
            drop(state);
            let helped = service.help();
            state = self.state.lock();
            if !helped && !matches!(state.phase, Phase::Ended(_)) {
                self.ended.wait(&mut state);
            }
        }
    }

    /// The window, if it is there; otherwise `waker` is woken when it is, or when the task should help to read.
    ///
    /// Requires: as [`WindowRead::wait`].
    pub(super) fn poll(&self, service: &ReadService<Self>, waker: &Waker) -> Poll<Result<Window>> {
        // Where those who wait read, the task does so at its second turn, so that others can ask for their reads before.
        let is_first = self.set_task(waker);
        if service.wants_help() && (is_first || service.help()) {
            waker.wake_by_ref();
        }
        let read = self.state.lock().phase.take_ended();
        read.map_or(Poll::Pending, |read| Poll::Ready(Window::of_read(&self.sst, &self.span, read)))
    }

    /// Sets the task to wake. Returns whether there was none.
    fn set_task(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            return false;
        }
        let before = state.task.replace(waker.clone());
        drop(state);
        before.is_none()
    }
}

impl QueuedRead for WindowRead {
    type Buffer = WindowBuffer;

    fn request(&self, tag: u64) -> ReadRequest<'_, WindowBuffer> {
        let spare = match mem::replace(&mut self.state.lock().phase, Phase::Reading) {
            Phase::Waiting(spare) => spare,
            _ => None,
        };
        self.span.request(&self.sst, spare, tag)
    }

    fn complete(&self, result: io::Result<WindowBuffer>) {
        let mut state = self.state.lock();
        state.phase = Phase::Ended(result);
        let task = state.task.take();
        drop(state);
        self.ended.notify_all();
        if let Some(task) = task {
            wake(task);
        }
    }
}

/// Who reads windows in the background, for the cursors of a scan.
pub trait BackgroundReads: Send + Sync {
    /// The service that reads; `None` once the store is closed.
    fn service(&self) -> Option<Arc<ReadService<WindowRead>>>;
}
