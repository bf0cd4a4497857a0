//! Reads of single separated values: by a thread, or for a task.
//!
//! # Concurrency
//! A read for a task is made by a service. Its state is locked for a moment by the task and by the thread that reads, and not
//! while a task is woken, because a waker is the caller's code.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use pleach_env::sync::Mutex;
use pleach_env::{Error, ErrorKind, QueuedRead, ReadRequest, ReadService, Result, wake};
use pleach_table::AlignedBuffer;

use super::file::{ValueFile, ValueSpan};
use super::home::ValueHome;
use super::pointer::ValuePointer;
use super::segments::ValueSegments;
use crate::context::Context;
use crate::keys::{PartitionId, PartitionKey, split_partition_key};
use crate::value::Value;

/// A value that is to be read: its home and its place there.
pub(super) struct Place<'v> {
    pub(super) pointer: ValuePointer,
    pub(super) home: &'v Arc<ValueHome>,
    pub(super) file: &'v ValueFile,
    pub(super) span: ValueSpan,
}

impl<'v> Place<'v> {
    /// Finds the place to which the bytes of `value` point.
    pub(super) fn find(ctx: &Context, segments: &'v ValueSegments, value: &Value) -> Result<Self> {
        let damaged = |message: String| Error::new(ErrorKind::Corruption, message).at_path(&ctx.dir);
        let pointer = ValuePointer::decode(value)
            .ok_or_else(|| damaged("expected a value pointer in an SST, found other bytes".to_owned()))?;
        let segment = segments.find(pointer.segment).ok_or_else(|| {
            damaged(format!("a pointer leads to value segment {}, which is unknown", pointer.segment))
        })?;
        let file = segment.home.reader(&ctx.env, &ctx.dir, ctx.options.direct_reads)?;
        Ok(Self { pointer, home: &segment.home, file, span: file.span(pointer)? })
    }
}

/// The value to which `value` points, if it is cached. If the read `fills_cache`, the value is kept longer.
pub(crate) fn cached_value(ctx: &Context, value: &Value, fills_cache: bool) -> Option<Value> {
    let pointer = ValuePointer::decode(value)?;
    ctx.value_cache.get(pointer, fills_cache).map(Value::separated)
}

/// The value of `user_key` to which `value` points: from the cache, or from its home and then, if the read `fills_cache`, into
/// the cache.
///
/// # Errors
/// As [`read_value`].
pub(crate) fn get_value(
    ctx: &Context,
    segments: &ValueSegments,
    key: (PartitionId, &[u8]),
    value: &Value,
    fills_cache: bool,
) -> Result<Value> {
    if let Some(found) = cached_value(ctx, value, fills_cache) {
        return Ok(found);
    }
    ctx.value_cache.note_reads(1);
    let (pointer, found) = read(ctx, segments, key, value)?;
    if fills_cache {
        ctx.value_cache.admit(pointer, &found);
    }
    Ok(Value::separated(found))
}

/// Reads the value of `user_key` to which `value` points, past the cache.
///
/// # Errors
/// `Io` if it cannot be read, `Corruption` if it is not there.
pub(crate) fn read_value(
    ctx: &Context,
    segments: &ValueSegments,
    key: (PartitionId, &[u8]),
    value: &Value,
) -> Result<Value> {
    read(ctx, segments, key, value).map(|(_, found)| Value::separated(found))
}

fn read(
    ctx: &Context,
    segments: &ValueSegments,
    key: (PartitionId, &[u8]),
    value: &Value,
) -> Result<(ValuePointer, Arc<[u8]>)> {
    let read = || {
        let Place { pointer, file, span, .. } = Place::find(ctx, segments, value)?;
        Ok((pointer, file.take(pointer, key, &span, file.read(&span))?))
    };
    read().map_err(|error| ctx.status.read_failed(error))
}

/// A value that is being read for a task.
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
    fn file(&self) -> &ValueFile {
        self.home.opened().expect("it was opened to find the place")
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

/// The value of a key, for a task. It can be dropped at any time.
pub(crate) struct ValueLoad {
    key: PartitionKey,
    read: Arc<ValueRead>,
    service: Arc<ReadService<ValueRead>>,
    fills_cache: bool,
}

impl ValueLoad {
    /// Begins to read the value of `key`, a partition key, to which `value` points.
    pub(crate) fn begin(
        ctx: &Context,
        segments: &ValueSegments,
        key: PartitionKey,
        value: &Value,
        fills_cache: bool,
    ) -> Result<Self> {
        let begin = || {
            let Place { pointer, home, span, .. } = Place::find(ctx, segments, value)?;
            let service = ctx.value_reads.get(ctx.read_driver()).ok_or_else(Error::closed)?;
            let (home, is_given_up) = (Arc::clone(home), AtomicBool::new(false));
            let read = Arc::new(ValueRead { home, pointer, span, is_given_up, state: Mutex::default() });
            if !service.submit(Arc::clone(&read)) {
                return Err(Error::closed());
            }
            ctx.value_cache.note_reads(1);
            Ok(Self { key, read, service, fills_cache })
        };
        begin().map_err(|error| ctx.status.read_failed(error))
    }

    /// The value, once it is there. It is given once.
    pub(crate) fn poll(&mut self, ctx: &Context, waker: &Waker) -> Poll<Result<Value>> {
        // Where those who wait read, the task does so at its second turn, so that others can ask for their reads before.
        let is_first = self.set_task(waker);
        if self.service.wants_help() && (is_first || self.service.help()) {
            waker.wake_by_ref();
        }
        let Some(read) = self.read.state.lock().ended.take() else { return Poll::Pending };
        let key = split_partition_key(&self.key).expect("a partition key");
        let ValueRead { pointer, span, .. } = &*self.read;
        let value = self.read.file().take(*pointer, key, span, read);
        if let (Ok(value), true) = (&value, self.fills_cache) {
            ctx.value_cache.admit(*pointer, value);
        }
        Poll::Ready(value.map(Value::separated).map_err(|error| ctx.status.read_failed(error)))
    }

    /// Sets the task to wake. Returns whether there was none.
    fn set_task(&self, waker: &Waker) -> bool {
        let mut state = self.read.state.lock();
        if state.task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            return false;
        }
        let before = mem::replace(&mut state.task, Some(waker.clone()));
        drop(state);
        before.is_none()
    }
}

impl Drop for ValueLoad {
    fn drop(&mut self) {
        self.read.is_given_up.store(true, Ordering::Relaxed);
        self.service.withdraw(&self.read);
        let task = self.read.state.lock().task.take();
        drop(task);
    }
}
