//! Batches: many separated values read by one thread.
//!
//! Values are read in the order of their places. Values that lie close to each other share a read. First comes what the system
//! has in memory, by plain calls; a queue of reads then brings the rest from the device.
//!
//! # Cost
//! A value that the system has in memory costs a call, or a share of one. A value that it does not have costs a call more than
//! the read of the device.

use std::io;
use std::ops::Range;
use std::time::Duration;

use pleach_env::{Error, ErrorKind, FileId, ReadQueue, Result, is_out_of_files};
use pleach_table::{AlignedBuffer, BlockRef};
use smallvec::SmallVec;

use super::{Place, cached_value, hash_of, keep};
use crate::context::Context;
use crate::keys::PartitionId;
use crate::value::Value;
use crate::values::{HomeKind, ValueSegments, ValueSpan, range_in};
use crate::version::reads::{DEVICE_VALUE_NS, MEMORY_VALUE_NS};

/// Reads in flight at most, as for blocks.
const READS_MAX: u32 = 128;

/// How close values have to be to share a read.
#[derive(Clone, Copy)]
struct Closeness {
    /// Bytes between two values at most.
    gap_max: u64,
    /// Bytes of the read at most.
    span_max: u64,
}

/// A device reads a gap of 16 KiB in less time than another read takes.
const ON_DEVICE: Closeness = Closeness { gap_max: 16 << 10, span_max: 256 << 10 };

/// A call costs as much as a copy of 4 KiB (measured); a larger span would not fit into a processor's cache.
const IN_MEMORY: Closeness = Closeness { gap_max: 4 << 10, span_max: 64 << 10 };

/// Values that are looked for in the cache together, so that they wait for memory together.
const GROUP_LEN: usize = 16;

/// A value that is wanted, its key, and where to put it.
struct Wanted<'s, 'k, 'v> {
    place: Place<'s>,
    key: &'k [u8],
    value: &'v mut Value,
}

/// Values that share a read: those of these that were not read before.
struct Group {
    span: ValueSpan,
    members: Range<usize>,
}

/// What happens to a value that cannot be read or proved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDamage {
    Fails,
    /// Its pointer is left. The others are given as they are stored.
    Leaves,
}

/// Files that could not be opened or read, each with an error of it.
pub(crate) type UnreadableFiles = Vec<(FileId, Error)>;

/// Reads that were made.
#[derive(Default)]
struct Reads {
    count: u64,
    bytes: u64,
}

impl Reads {
    /// Adds the read of a group that begins with `first`. Values that gain nothing by order do not count.
    fn add(&mut self, group: &Group, first: &Place<'_>) {
        if first.pointer.gains_by_order() {
            self.count += 1;
            self.bytes += group.span.len as u64;
        }
    }

    /// How many more there were than values in order need.
    fn needless(&self, closeness: Closeness) -> u64 {
        self.count.saturating_sub(1 + self.bytes / closeness.span_max)
    }
}

/// Buffers of reads. Values that are not cached stay in the buffers that they were read into; when all values of a buffer are
/// gone, it serves another read.
#[derive(Default)]
pub(crate) struct ReadBuffers {
    /// Those that may still have values.
    lent: Vec<BlockRef>,
    free: Vec<AlignedBuffer>,
}

impl ReadBuffers {
    /// Takes back the buffers whose values are gone, and forgets the others.
    fn take_back(&mut self) {
        self.free.extend(self.lent.drain(..).filter_map(BlockRef::into_buffer));
    }
}

/// The values that one call reads, in the order of their places.
struct Batch<'s, 'k, 'v> {
    ctx: &'s Context,
    buffers: ReadBuffers,
    fills_cache: bool,
    on_damage: OnDamage,
    partition: PartitionId,
    wanted: Vec<Wanted<'s, 'k, 'v>>,
    /// Files whose values are left because they cannot be read.
    unreadable: UnreadableFiles,
    /// Where packed values are unpacked.
    scratch: Vec<u8>,
    /// The time that reads took because values lie apart.
    disorder_ns: u64,
}

/// Gets the values of keys of a partition, from the cache or from their homes: replaces all pointers among the values of
/// `entries`. After an error some are left. If it `fills_cache`, values that were read enter the cache.
///
/// Returns about the time, in nanoseconds, that would have been saved if the values had been in the order of their keys.
///
/// # Errors
/// As [`read_value`](super::read_value), of any of them.
pub(crate) fn read_values<'k, 'v>(
    ctx: &Context,
    buffers: &mut ReadBuffers,
    segments: &ValueSegments,
    partition: PartitionId,
    entries: impl Iterator<Item = (&'k [u8], &'v mut Value)>,
    fills_cache: bool,
) -> Result<u64> {
    let read = || {
        let mut batch = Batch::new((ctx, fills_cache, OnDamage::Fails), segments, partition, entries)?;
        batch.buffers = std::mem::take(buffers);
        batch.buffers.take_back();
        ctx.value_cache.note_reads(batch.unread());
        batch.read_resident()?;
        batch.read_rest()?;
        *buffers = std::mem::take(&mut batch.buffers);
        Ok(batch.disorder_ns)
    };
    read().map_err(|error| ctx.status.read_failed(error))
}

/// As [`read_values`], but past the cache, and as they are stored, with their checksums in front. Values that cannot be read or
/// proved are left as pointers. Returns the files that cannot be read.
///
/// # Errors
/// `Io` after a shortage, such as of descriptors.
pub(crate) fn read_movable_values<'k, 'v>(
    ctx: &Context,
    segments: &ValueSegments,
    partition: PartitionId,
    entries: impl Iterator<Item = (&'k [u8], &'v mut Value)>,
) -> Result<UnreadableFiles> {
    let read = || {
        let mut batch = Batch::new((ctx, false, OnDamage::Leaves), segments, partition, entries)?;
        batch.read_resident()?;
        batch.read_rest()?;
        Ok(batch.unreadable)
    };
    read().map_err(|error| ctx.status.read_failed(error))
}

/// As [`read_values`], but only those that can be had without waiting for the device. The other pointers are left. The time that
/// is returned counts for them what [`read_values`] would need.
///
/// # Errors
/// As [`read_values`].
pub(crate) fn read_resident_values<'k, 'v>(
    ctx: &Context,
    segments: &ValueSegments,
    partition: PartitionId,
    entries: impl Iterator<Item = (&'k [u8], &'v mut Value)>,
    fills_cache: bool,
) -> Result<u64> {
    let read = || {
        let mut batch = Batch::new((ctx, fills_cache, OnDamage::Fails), segments, partition, entries)?;
        let all = batch.unread();
        batch.read_resident()?;
        ctx.value_cache.note_reads(all - batch.unread());
        batch.note_rest(&batch.groups(ON_DEVICE), Duration::ZERO);
        Ok(batch.disorder_ns)
    };
    read().map_err(|error| ctx.status.read_failed(error))
}

/// The file to which `value` points, if it could not be opened.
fn unopened(segments: &ValueSegments, value: &Value) -> Option<FileId> {
    let home = &segments.find(value.as_pointer()?.segment)?.home;
    (home.kind != HomeKind::Gone && home.opened().is_none()).then_some(home.file)
}

impl OnDamage {
    /// Whether the error of a file that cannot be read fails. A shortage may pass.
    fn fails(self, error: &Error) -> bool {
        self == Self::Fails || error.is_shortage()
    }

    /// `None` for damage that does not fail.
    fn check<T>(self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Err(error) if self == Self::Leaves && error.kind() == ErrorKind::Corruption => Ok(None),
            found => found.map(Some),
        }
    }
}

impl<'s, 'k, 'v> Batch<'s, 'k, 'v> {
    fn new(
        (ctx, fills_cache, on_damage): (&'s Context, bool, OnDamage),
        segments: &'s ValueSegments,
        partition: PartitionId,
        entries: impl Iterator<Item = (&'k [u8], &'v mut Value)>,
    ) -> Result<Self> {
        let mut pointers: Vec<_> = entries.filter(|(_, value)| value.is_pointer()).collect();
        if on_damage == OnDamage::Fails {
            Self::take_cached((ctx, fills_cache), partition, &mut pointers);
        }
        let (mut wanted, mut unreadable) = (Vec::new(), UnreadableFiles::new());
        for (key, value) in pointers.into_iter().filter(|(_, value)| value.is_pointer()) {
            match Place::find(ctx, segments, value) {
                Ok(place) => wanted.push(Wanted { place, key, value }),
                Err(error) if on_damage.fails(&error) => return Err(error),
                Err(error) => unreadable.extend(unopened(segments, value).map(|file| (file, error))),
            }
        }
        wanted.sort_unstable_by_key(|wanted| (wanted.place.home.file, wanted.place.span.offset));
        let (buffers, scratch) = (ReadBuffers::default(), Vec::new());
        let disorder_ns = 0;
        Ok(Self { ctx, buffers, fills_cache, on_damage, partition, wanted, unreadable, scratch, disorder_ns })
    }

    /// Replaces the pointers to values that are cached.
    fn take_cached(
        (ctx, fills_cache): (&Context, bool),
        partition: PartitionId,
        pointers: &mut [(&'k [u8], &'v mut Value)],
    ) {
        for group in pointers.chunks_mut(GROUP_LEN) {
            let hashes: SmallVec<[u64; GROUP_LEN]> =
                group.iter().map(|(key, _)| hash_of((partition, key))).collect();
            hashes.iter().for_each(|hash| ctx.value_cache.prefetch(*hash));
            for hash in &hashes {
                ctx.value_cache.prefetch_value(*hash);
            }
            for ((_, value), hash) in group.iter_mut().zip(hashes) {
                if let Some(found) = cached_value(ctx, hash, value, fills_cache) {
                    **value = found;
                }
            }
        }
    }

    /// Values that are still to be read.
    fn unread(&self) -> u64 {
        self.wanted.iter().filter(|wanted| wanted.value.is_pointer()).count() as u64
    }

    /// What is still to be read, by the reads that bring it.
    fn groups(&self, closeness: Closeness) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (at, next) in self.wanted.iter().enumerate().filter(|(_, next)| next.value.is_pointer()) {
            let place = &next.place;
            match groups.last_mut() {
                Some(group) if self.is_close(group, place, closeness) => {
                    group.span.extend(&place.span);
                    group.members.end = at + 1;
                }
                _ => groups.push(Group { span: place.span, members: at..at + 1 }),
            }
        }
        groups
    }

    /// Whether a value is read together with a group in front of it.
    fn is_close(&self, group: &Group, next: &Place<'_>, closeness: Closeness) -> bool {
        let (end, next_end) = (group.span.end(), next.span.end());
        self.first(group).home.file == next.home.file
            && next.span.offset <= end + closeness.gap_max
            && next_end.max(end) - group.span.offset <= closeness.span_max
    }

    fn first(&self, group: &Group) -> &Place<'s> {
        &self.wanted[group.members.start].place
    }

    /// Reads what the system has in memory.
    fn read_resident(&mut self) -> Result<()> {
        let mut read = Reads::default();
        for group in self.groups(IN_MEMORY) {
            let file = self.first(&group).file;
            match file.read_resident(&group.span, self.buffers.free.pop()) {
                Ok(buffer) => {
                    read.add(&group, self.first(&group));
                    self.take(&group, buffer)?;
                }
                Err(unused) => self.buffers.free.extend(unused),
            }
        }
        self.disorder_ns += read.needless(IN_MEMORY) * MEMORY_VALUE_NS;
        Ok(())
    }

    /// Takes the values of a group from the buffer that its span was read into. Values that do not enter the cache and are not
    /// packed stay in the buffer, unless it is mostly something else.
    fn take(&mut self, group: &Group, buffer: AlignedBuffer) -> Result<()> {
        let (partition, on_damage) = (self.partition, self.on_damage);
        let members = &mut self.wanted[group.members.clone()];
        let unread = members.iter().filter(|wanted| wanted.value.is_pointer());
        let wanted_bytes: usize = unread.map(|wanted| wanted.place.pointer.len as usize).sum();
        let is_lent = !self.fills_cache && wanted_bytes >= buffer.len() / 2;
        let buffer = BlockRef::heap(buffer);
        for Wanted { place, key, value } in members {
            if value.is_pointer() {
                let skip =
                    usize::try_from(place.span.offset - group.span.offset).expect("inside of the read");
                let bytes = &place.file.bytes_of(&group.span, &buffer)[skip..][..place.span.len];
                let (key, span) = ((partition, *key), &place.span);
                let found = match on_damage {
                    OnDamage::Fails => place.file.prove(place.pointer, key, span, bytes, &mut self.scratch),
                    OnDamage::Leaves => place.file.prove_stored(place.pointer, key, span, bytes),
                };
                let Some(found) = on_damage.check(found)? else { continue };
                let lent = if is_lent { range_in(&buffer, found) } else { None };
                **value = match lent {
                    Some(range) => Value::in_block(buffer.clone(), range),
                    None => keep(self.ctx, key, place.pointer, found, self.fills_cache),
                };
            }
        }
        if is_lent {
            self.buffers.lent.push(buffer);
        } else {
            self.buffers.free.extend(buffer.into_buffer());
        }
        Ok(())
    }

    /// Takes the values of a read that has ended.
    fn end(&mut self, group: &Group, read: io::Result<AlignedBuffer>) -> Result<()> {
        match read {
            Ok(buffer) => self.take(group, buffer),
            Err(error) => self.read_failed(group, error),
        }
    }

    /// Leaves the values of a read that has failed, or fails.
    fn read_failed(&mut self, group: &Group, error: io::Error) -> Result<()> {
        let &Place { file, pointer, home, .. } = self.first(group);
        let (id, error) = (home.file, file.read_failed(pointer, &group.span, error));
        if self.on_damage.fails(&error) {
            return Err(error);
        }
        self.unreadable.push((id, error));
        Ok(())
    }

    /// Counts what it takes to read these groups from the device: their part of the time that it took, if that is more than
    /// usual.
    fn note_rest(&mut self, groups: &[Group], took: Duration) {
        let mut read = Reads::default();
        for group in groups {
            read.add(group, self.first(group));
        }
        let needless = read.needless(ON_DEVICE);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / (groups.len() as u64).max(1);
        self.disorder_ns += needless.saturating_mul(took.max(DEVICE_VALUE_NS));
    }

    /// Reads what is left: a lone group by this thread, others by a queue.
    fn read_rest(&mut self) -> Result<()> {
        let groups = self.groups(ON_DEVICE);
        match &groups[..] {
            [] => return Ok(()),
            [group] => {
                let used = self.buffers.free.pop();
                return self.end(group, self.first(group).file.read_into(&group.span, used));
            }
            _ => {}
        }
        let start = self.ctx.env.now();
        self.read_groups(&groups)?;
        self.note_rest(&groups, self.ctx.env.now().saturating_sub(start));
        Ok(())
    }

    /// Reads groups by a queue.
    fn read_groups(&mut self, groups: &[Group]) -> Result<()> {
        let mut queue: ReadQueue<'_, AlignedBuffer> = self.ctx.read_queue(READS_MAX)?;
        for (tag, group) in groups.iter().enumerate() {
            while queue.is_full() {
                self.end_one(groups, &mut queue)?;
            }
            let file = self.first(group).file;
            while let Err(error) =
                queue.push(file.request_into(&group.span, tag as u64, self.buffers.free.pop()))
            {
                // A read in flight owns its descriptor until it has ended.
                if !is_out_of_files(&error) || !self.end_one(groups, &mut queue)? {
                    self.read_failed(group, error)?;
                    break;
                }
            }
        }
        while self.end_one(groups, &mut queue)? {}
        Ok(())
    }

    /// Waits for a read. Returns whether one was in flight.
    fn end_one(&mut self, groups: &[Group], queue: &mut ReadQueue<'_, AlignedBuffer>) -> Result<bool> {
        let Some(done) = queue.next() else { return Ok(false) };
        let tag = usize::try_from(done.tag).expect("a place in memory");
        self.end(&groups[tag], done.result).map(|()| true)
    }
}
