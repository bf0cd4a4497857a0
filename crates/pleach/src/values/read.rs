//! A separated value that is being read for a task, by a service of reads.
//!
//! # Concurrency
//! `state` is locked for a moment by the task and by the thread that reads. It is not locked while a task is woken or a waker is
//! dropped, because a waker is the caller's code.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use pleach_env::sync::Mutex;
use pleach_env::{QueuedRead, ReadRequest, ReadService, Result, wake};
use pleach_table::AlignedBuffer;

use super::file::{ValueFile, ValueSpan};
use super::home::ValueHome;
use super::pointer::ValuePointer;
use crate::keys::PartitionId;

/// See the module's text. One task wants it.
pub(crate) struct ValueRead {
    home: Arc<ValueHome>,
    pointer: ValuePointer,
    span: ValueSpan,
    /// Whether nobody wants it any more. Relaxed: a read more does no harm.
    is_given_up: AtomicBool,
    state: Mutex<ReadState>,
}

#[derive(Default)]
struct ReadState {
    ended: Option<io::Result<AlignedBuffer>>,
    /// Woken at the end: the task of the last poll.
    task: Option<Waker>,
}

impl ValueRead {
    /// Requires: `home` was opened to find the span.
    pub(crate) fn new(home: Arc<ValueHome>, pointer: ValuePointer, span: ValueSpan) -> Self {
        Self { home, pointer, span, is_given_up: AtomicBool::new(false), state: Mutex::default() }
    }

    pub(crate) fn pointer(&self) -> ValuePointer {
        self.pointer
    }

    fn file(&self) -> &ValueFile {
        self.home.opened().expect("it was opened to find the span")
    }

    /// What was read, once it is there. It is given once. Otherwise `waker` is woken when it is, or when the task should help
    /// to read.
    ///
    /// Requires: the read was handed to `service`.
    pub(crate) fn poll(&self, service: &ReadService<Self>, waker: &Waker) -> Poll<io::Result<AlignedBuffer>> {
        // Where those who wait read, the task does so at its second turn, so that others can ask for their reads before.
        let is_first = self.set_task(waker);
        if service.wants_help() && (is_first || service.help()) {
            waker.wake_by_ref();
        }
        self.state.lock().ended.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// The value of the key in what was read.
    pub(crate) fn take(
        &self,
        key: (PartitionId, &[u8]),
        read: io::Result<AlignedBuffer>,
    ) -> Result<Arc<[u8]>> {
        self.file().take(self.pointer, key, &self.span, read)
    }

    /// Notes that nobody wants it any more.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        let task = self.state.lock().task.take();
        drop(task);
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

impl QueuedRead for ValueRead {
    type Buffer = AlignedBuffer;

    fn request(&self, tag: u64) -> ReadRequest<'_, AlignedBuffer> {
        self.file().request(&self.span, tag)
    }

    fn give_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    fn complete(&self, result: io::Result<AlignedBuffer>) {
        let mut state = self.state.lock();
        state.ended = Some(result);
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            wake(task);
        }
    }
}
