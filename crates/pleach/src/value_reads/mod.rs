//! Reads of separated values: single ones by a thread or for a task, and many at once ([`batch`]).
//!
//! An entry has a pointer. The version says which file that leads to. The value comes from the cache or from the file. What is
//! read for a task is a [`ValueRead`], which a service makes.

mod batch;

use std::sync::Arc;
use std::task::{Poll, Waker};

use pleach_env::{Error, ErrorKind, ReadService, Result};
use pleach_table::{BlockRef, key_hash};

use crate::context::Context;
use crate::keys::{PartitionId, PartitionKey, split_partition_key};
use crate::value::Value;
use crate::values::{ProvedValue, ValueFile, ValueHome, ValuePointer, ValueRead, ValueSegments, ValueSpan};

pub(crate) use batch::{ReadBuffers, read_movable_values, read_resident_values, read_values};

/// A value that is to be read: its home and its place there.
pub(super) struct Place<'v> {
    pub(super) pointer: ValuePointer,
    pub(super) home: &'v Arc<ValueHome>,
    pub(super) file: &'v ValueFile,
    pub(super) span: ValueSpan,
}

impl<'v> Place<'v> {
    /// Finds the place to which `value` points.
    pub(super) fn find(ctx: &Context, segments: &'v ValueSegments, value: &Value) -> Result<Self> {
        let damaged = |message: String| Error::new(ErrorKind::Corruption, message).at_path(&ctx.dir);
        let pointer = value
            .as_pointer()
            .ok_or_else(|| damaged("expected a value pointer in an SST, found other bytes".to_owned()))?;
        let segment = segments.find(pointer.segment).ok_or_else(|| {
            damaged(format!("a pointer leads to value segment {}, which is unknown", pointer.segment))
        })?;
        let file = segment.home.reader(&ctx.env, &ctx.dir, ctx.options.direct_reads)?;
        Ok(Self { pointer, home: &segment.home, file, span: file.span(pointer)? })
    }
}

/// The hash by which the cache finds the value of a key: that of the filters, which a lookup has before it has the pointer.
fn hash_of((partition, user_key): (PartitionId, &[u8])) -> u64 {
    key_hash(partition.0, user_key)
}

/// The value to which `value` points, if it is cached; `hash` is that of the key, by `key_hash`. If the read `fills_cache`, the
/// value is kept longer.
#[inline]
pub(crate) fn cached_value(ctx: &Context, hash: u64, value: &Value, fills_cache: bool) -> Option<Value> {
    let pointer = value.as_pointer()?;
    ctx.value_cache.get(hash, pointer, fills_cache).map(Value::separated)
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
    if let Some(found) = cached_value(ctx, hash_of(key), value, fills_cache) {
        return Ok(found);
    }
    ctx.value_cache.note_reads(1);
    read(ctx, segments, key, value, fills_cache)
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
    read(ctx, segments, key, value, false)
}

fn read(
    ctx: &Context,
    segments: &ValueSegments,
    key: (PartitionId, &[u8]),
    value: &Value,
    fills_cache: bool,
) -> Result<Value> {
    let read = || {
        let Place { pointer, file, span, .. } = Place::find(ctx, segments, value)?;
        let read = file.take(pointer, key, &span, file.read(&span))?;
        Ok(keep_read(ctx, key, pointer, read, fills_cache))
    };
    read().map_err(|error| ctx.status.read_failed(error))
}

/// Values of so many bytes are not copied out of what was read (arbitrary): a buffer may have two pages more.
const LENT_MIN: usize = 64 << 10;

/// The value of these bytes, which were proved: in the cache, if the read `fills_cache`, or else a copy.
fn keep(
    ctx: &Context,
    key: (PartitionId, &[u8]),
    pointer: ValuePointer,
    bytes: &[u8],
    fills_cache: bool,
) -> Value {
    let cached = if fills_cache { ctx.value_cache.admit(hash_of(key), pointer, bytes) } else { None };
    Value::separated(cached.unwrap_or_else(|| bytes.into()))
}

/// As [`keep`], but a large value that does not enter the cache stays in the memory that it was read into.
fn keep_read(
    ctx: &Context,
    key: (PartitionId, &[u8]),
    pointer: ValuePointer,
    read: ProvedValue,
    fills_cache: bool,
) -> Value {
    let (buffer, range) = match read {
        ProvedValue::InBuffer(buffer, range) if range.len() >= LENT_MIN => (buffer, range),
        read => return keep(ctx, key, pointer, read.bytes(), fills_cache),
    };
    let bytes = &buffer[range.clone()];
    let cached = if fills_cache { ctx.value_cache.admit(hash_of(key), pointer, bytes) } else { None };
    cached.map_or_else(|| Value::in_block(BlockRef::heap(buffer), range), Value::separated)
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
            let read = Arc::new(ValueRead::new(Arc::clone(home), pointer, span));
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
        let Poll::Ready(read) = self.read.poll(&self.service, waker) else { return Poll::Pending };
        let key = split_partition_key(&self.key).expect("a partition key");
        let pointer = self.read.pointer();
        let value = self.read.take(key, read);
        let value = value.map(|value| keep_read(ctx, key, pointer, value, self.fills_cache));
        Poll::Ready(value.map_err(|error| ctx.status.read_failed(error)))
    }
}

impl Drop for ValueLoad {
    fn drop(&mut self) {
        self.read.give_up();
        self.service.withdraw(&self.read);
    }
}

#[cfg(test)]
mod tests;
