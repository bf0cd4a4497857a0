//! Reads of separated values: one by a thread, many by a thread, one by a task.
//!
//! Many values are read in the order of their places; values that lie close to each other share a read.
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
use pleach_env::{
    Error, ErrorKind, QueuedRead, ReadQueue, ReadRequest, ReadService, Result, is_out_of_files, wake,
};
use pleach_table::AlignedBuffer;

use super::file::{ValueFile, ValueSpan};
use super::home::ValueHome;
use super::pointer::ValuePointer;
use super::segments::ValueSegments;
use crate::context::Context;
use crate::keys::{PartitionId, PartitionKey, split_partition_key};
use crate::value::Value;

/// Reads in flight at most, as for blocks.
const READS_MAX: u32 = 128;

/// Bytes between two values that share a read, at most: a device reads so much more in less time than another read takes.
const GAP_MAX: u64 = 16 << 10;

/// Bytes of a read that values share, at most.
const SPAN_MAX: u64 = 256 << 10;

/// A value that is to be read: its home and its place there.
struct Place<'v> {
    pointer: ValuePointer,
    home: &'v Arc<ValueHome>,
    file: &'v ValueFile,
    span: ValueSpan,
}

impl<'v> Place<'v> {
    /// Finds the place to which the bytes of `value` point.
    fn find(ctx: &Context, segments: &'v ValueSegments, value: &Value) -> Result<Self> {
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

/// Reads the value of `user_key` to which `value` points.
///
/// # Errors
/// `Io` if it cannot be read, `Corruption` if it is not there.
#[cold]
pub(crate) fn read_value(
    ctx: &Context,
    segments: &ValueSegments,
    key: (PartitionId, &[u8]),
    value: &Value,
) -> Result<Value> {
    let read = || {
        let Place { pointer, file, span, .. } = Place::find(ctx, segments, value)?;
        file.take(pointer, key, &span, file.read(&span))
    };
    read().map(Value::separated).map_err(|error| ctx.status.read_failed(error))
}

/// Reads the values of keys of a partition: replaces all pointers in `values`, which are those of `keys`.
///
/// # Errors
/// As [`read_value`], of any of them.
pub(crate) fn read_values<'k, 'v>(
    ctx: &Context,
    segments: &ValueSegments,
    partition: PartitionId,
    entries: impl Iterator<Item = (&'k [u8], &'v mut Value)>,
) -> Result<()> {
    let mut wanted = Vec::new();
    for (key, value) in entries.filter(|(_, value)| value.is_pointer()) {
        let place = Place::find(ctx, segments, value).map_err(|error| ctx.status.read_failed(error))?;
        wanted.push((place, key, value));
    }
    wanted.sort_by_key(|(place, ..)| (place.home.file, place.span.offset));
    let read = read_in_order(ctx, partition, wanted);
    read.map_err(|error| ctx.status.read_failed(error))
}

/// A value that is wanted, its key, and where to put it.
type Wanted<'s, 'k, 'v> = (Place<'s>, &'k [u8], &'v mut Value);

fn read_in_order(ctx: &Context, partition: PartitionId, wanted: Vec<Wanted<'_, '_, '_>>) -> Result<()> {
    let mut groups: Vec<(ValueSpan, Vec<Wanted<'_, '_, '_>>)> = Vec::new();
    for next in wanted {
        match groups.last_mut() {
            Some((span, group)) if is_close(span, &group[0].0, &next.0) => {
                let end = (span.offset + span.len as u64).max(next.0.span.offset + next.0.span.len as u64);
                span.len = usize::try_from(end - span.offset).expect("a read fits into memory");
                group.push(next);
            }
            _ => groups.push((ValueSpan::plain(next.0.span.offset, next.0.span.len), vec![next])),
        }
    }
    let finish = |(span, group): (ValueSpan, Vec<Wanted<'_, '_, '_>>), read: io::Result<AlignedBuffer>| {
        let buffer = read.map_err(|error| group[0].0.file.read_failed(group[0].0.pointer, error))?;
        for (place, key, value) in group {
            let bytes = place.file.bytes_of(&span, &buffer);
            let skip = usize::try_from(place.span.offset - span.offset).expect("inside of the read");
            let bytes = &bytes[skip..][..place.span.len];
            let found = place.file.prove(place.pointer, (partition, key), &place.span, bytes)?;
            *value = Value::separated(found);
        }
        Ok(())
    };
    if groups.len() <= 1 {
        let Some((span, group)) = groups.pop() else { return Ok(()) };
        let read = group[0].0.file.read(&span);
        return finish((span, group), read);
    }
    let mut queue: ReadQueue<'_, AlignedBuffer> = ctx.read_queue(READS_MAX)?;
    let mut in_flight: Vec<Option<_>> = Vec::with_capacity(groups.len());
    let end = |in_flight: &mut Vec<Option<_>>, queue: &mut ReadQueue<'_, AlignedBuffer>| {
        let Some(done) = queue.next() else { return Ok(false) };
        let tag = usize::try_from(done.tag).expect("a place in memory");
        finish(in_flight[tag].take().expect("its read was in flight"), done.result).map(|()| true)
    };
    for (span, group) in groups {
        while queue.is_full() {
            end(&mut in_flight, &mut queue)?;
        }
        let tag = in_flight.len() as u64;
        let file = group[0].0.file;
        let pointer = group[0].0.pointer;
        in_flight.push(Some((span, group)));
        while let Err(error) = queue.push(file.request(&span, tag)) {
            // A read in flight owns its descriptor until it has ended.
            if !is_out_of_files(&error) || !end(&mut in_flight, &mut queue)? {
                return Err(file.read_failed(pointer, error));
            }
        }
    }
    while end(&mut in_flight, &mut queue)? {}
    Ok(())
}

/// Whether a value is read together with those from `first` on, which `span` covers.
fn is_close(span: &ValueSpan, first: &Place<'_>, next: &Place<'_>) -> bool {
    let (end, next_end) = (span.offset + span.len as u64, next.span.offset + next.span.len as u64);
    first.home.file == next.home.file
        && next.span.offset <= end + GAP_MAX
        && next_end.max(end) - span.offset <= SPAN_MAX
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
}

impl ValueLoad {
    /// Begins to read the value of `key`, a partition key, to which `value` points.
    pub(crate) fn begin(
        ctx: &Context,
        segments: &ValueSegments,
        key: PartitionKey,
        value: &Value,
    ) -> Result<Self> {
        let begin = || {
            let Place { pointer, home, span, .. } = Place::find(ctx, segments, value)?;
            let service = ctx.value_reads.get(ctx.read_driver()).ok_or_else(Error::closed)?;
            let (home, is_given_up) = (Arc::clone(home), AtomicBool::new(false));
            let read = Arc::new(ValueRead { home, pointer, span, is_given_up, state: Mutex::default() });
            if !service.submit(Arc::clone(&read)) {
                return Err(Error::closed());
            }
            Ok(Self { key, read, service })
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
