//! A separated value that is being read for a task, by a service of reads.
//!
//! # Concurrency
//! `ended` is locked for a moment by the task and by the thread that reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use pleach_env::sync::Mutex;
use pleach_env::{QueuedRead, ReadRequest, ReadService, Result, WaitingTask};
use pleach_table::AlignedBuffer;

use super::file::{ValueFile, ValueSpan};
use super::home::ValueHome;
use super::pointer::ValuePointer;
use super::read_value::ProvedValue;
use crate::keys::PartitionId;

/// See the module's text. One task wants it.
pub(crate) struct ValueRead {
    home: Arc<ValueHome>,
    pointer: ValuePointer,
    span: ValueSpan,
    /// Whether nobody wants it any more. Relaxed: a read more does no harm.
    is_given_up: AtomicBool,
    /// What was read, until it is taken.
    ended: Mutex<Option<io::Result<AlignedBuffer>>>,
    task: WaitingTask,
}

impl ValueRead {
    /// Requires: `home` was opened to find the span.
    pub(crate) fn new(home: Arc<ValueHome>, pointer: ValuePointer, span: ValueSpan) -> Self {
        let (is_given_up, ended, task) = (AtomicBool::new(false), Mutex::default(), WaitingTask::default());
        Self { home, pointer, span, is_given_up, ended, task }
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
        let is_first = self.task.set(waker);
        if service.wants_help() && (is_first || service.help()) {
            waker.wake_by_ref();
        }
        self.ended.lock().take().map_or(Poll::Pending, Poll::Ready)
    }

    /// The value of the key in what was read.
    pub(crate) fn take(
        &self,
        key: (PartitionId, &[u8]),
        read: io::Result<AlignedBuffer>,
    ) -> Result<ProvedValue> {
        self.file().take(self.pointer, key, &self.span, read)
    }

    /// Notes that nobody wants it any more.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        self.task.forget();
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
        *self.ended.lock() = Some(result);
        self.task.wake();
    }
}
