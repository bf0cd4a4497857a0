//! Opening a store: the lock, the manifest, the log, and the removal of what a crash left behind.
//!
//! # Order
//! 1. Everything is read and checked; nothing is written.
//! 2. A new manifest with the recovered version; `CURRENT` points to it.
//! 3. Files that nothing names are removed, except for the log's: their space may be needed.
//! 4. The log's tail is written into fresh segments and synced: what the page cache shows need not be on the medium.
//! 5. One edit moves the log's floor to the fresh segments. From here on the old ones are not needed.
//! 6. The old segments are removed.
//! 7. The reserve is made up to its length, if there is room: `version_set/reserve`.
//!
//! A crash anywhere in between leaves a store that the next open recovers to the same state.
//!
//! # A full disk
//! When a step after the first finds the disk full, the open removes the files it made and starts over: it releases the
//! reserve, and its log segments are short. When that fails too, the store is opened for reading only, as below, until it
//! is opened again: writes return the error for a full disk.
//!
//! # Reading only
//! The open stops after step 1 and reads the log's tail into memtables. Not a byte of the directory changes: no job runs,
//! and every writing call is refused before it reaches the log or the manifest.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pleach_env::memory::RegionPool;
use pleach_env::{Error, ErrorKind, FileId, FileLock, Result, failpoint};
use pleach_log::{LogWriter, RECORD_HEADER_LEN, Record, recover, segment_path};
use pleach_table::FrameCache;

use super::directory::{
    Listing, create_store, enter, list, no_store, remove_all, remove_leftovers, remove_old_segments,
};
use super::inner::{Inner, Parts};
use super::recovery::{Found, read_store};
use crate::attached::Attached;
use crate::manifest::{self, Current, Manifest, manifest_path};
use crate::memtable::Memtable;
use crate::operations::Operations;
use crate::options::{IMMUTABLE_MEMTABLES_MAX, Options};
use crate::state::{LoggedMemtable, State};
use crate::tombstone_spans::TombstoneSpans;
use crate::trace;
use crate::upkeep::filters::open_ssts;
use crate::version::edit::{Edit, EditItem};
use crate::version::{FileTable, Trash, Version};
use crate::version_set::{Versions, reserve};
use crate::write_path::{Writer, insert_operations};

/// Name of the partition that every store has.
pub(crate) const DEFAULT_PARTITION: &str = "default";

/// Longest log segment of a store that was opened on a full disk: short enough to find room in the reserve.
const CRAMPED_SEGMENT_BYTES: u64 = 64 << 10;

/// A store that was read and checked, with its SSTs open.
struct Ready {
    found: Found,
    files: FileTable,
    trash: Arc<Trash>,
    cache: Arc<FrameCache>,
}

/// Opens the store and recovers it. Background work is not started yet.
pub(crate) fn open(dir: &Path, options: &Options) -> Result<(Inner, Box<dyn FileLock>)> {
    let _span = trace::open(dir);
    let env = Arc::clone(&options.env);
    let lock = enter(&env, dir, options)?;
    if options.read_only {
        return Ok((open_for_reading(dir, options, read_only_error(dir))?, lock));
    }
    let full = match open_for_writing(dir, options, options.segment_bytes()) {
        Err(error) if error.is_out_of_space() => error,
        opened => return Ok((opened?, lock)),
    };
    reserve::release(&*env, dir);
    let opened = match open_for_writing(dir, options, options.segment_bytes().min(CRAMPED_SEGMENT_BYTES)) {
        // A store that does not exist yet cannot be read. If reading fails, the caller gets the error that led here.
        Err(error) if error.is_out_of_space() => open_for_reading(dir, options, error).map_err(|_| full),
        opened => opened,
    };
    Ok((opened?, lock))
}

fn open_for_writing(dir: &Path, options: &Options, segment_len: u64) -> Result<Inner> {
    let env = &options.env;
    let listing = list(&**env, dir)?;
    let current = match manifest::read_current(&**env, dir)? {
        Some(current) => current,
        None => Current { manifest: create_store(&**env, dir, options, &listing)?, closed: None },
    };
    let ready = read(dir, options, current, listing)?;
    let (inner, found) = start(dir, options, ready, segment_len)?;
    remove_leftovers(&inner, &found);
    if failpoint::skipped("plant.leftovers_early") {
        remove_old_segments(&inner, &found);
    }
    if let Err(error) = rewrite_log_tail(&inner, &found) {
        discard_fresh_segments(&inner, &error);
        return Err(error);
    }
    trace::recovery(&found.recovery);
    remove_old_segments(&inner, &found);
    inner.writes.measure_pressure();
    inner.version_set.refill_reserve();
    Ok(inner)
}

/// The error of writes to a store that was opened for reading only.
fn read_only_error(dir: &Path) -> Error {
    let message = "the store is open for reading only; open it without `read_only` to write";
    Error::io("write", dir, io::Error::new(io::ErrorKind::ReadOnlyFilesystem, message))
}

/// Reads and checks everything, and opens the SSTs.
fn read(dir: &Path, options: &Options, current: Current, listing: Listing) -> Result<Ready> {
    let trash = Arc::new(Trash::default());
    let (mut found, files) = read_store(&options.env, dir, current, &trash, listing)?;
    let cache;
    (found.version, cache) = open_ssts(&options.env, dir, &found.version, options)?;
    Ok(Ready { found, files, trash, cache })
}

/// Opens the store without writing anything. `why` is the error that writes will get.
fn open_for_reading(dir: &Path, options: &Options, why: Error) -> Result<Inner> {
    let listing = list(&*options.env, dir)?;
    let Some(current) = manifest::read_current(&*options.env, dir)? else {
        listing.check_fresh(dir)?;
        return Err(no_store(dir));
    };
    let ready = read(dir, options, current, listing)?;
    let (log, manifest) = (Attached::none(), Attached::none());
    let memtable = first_memtable(options)?;
    let version = ready.found.version.clone();
    let (inner, found) = assemble(
        dir,
        options,
        ready,
        version,
        Began { log, manifest, memtable, first_segment: FileId(0), read_only: Some(why) },
    );
    read_again(&inner, &found, &mut |record| {
        let mut writer = inner.writes.writer.lock();
        if inner.writes.is_full_for(&writer, Operations::footprint_of(record.payload)) {
            inner.writes.start_memtable(&mut writer, inner.writes.new_memtable()?, FileId(0));
        }
        reserve_memory(&inner, &writer, &record)?;
        insert_record(&inner, &mut writer, &record);
        Ok(())
    })?;
    trace::recovery(&found.recovery);
    Ok(inner)
}

/// The first memtable of a store, and the pool of its memtables' memory.
type FirstMemtable = (Arc<RegionPool>, Arc<Memtable>);

fn first_memtable(options: &Options) -> Result<FirstMemtable> {
    let pool = Memtable::pool(options.memtable_budget(), IMMUTABLE_MEMTABLES_MAX);
    let memtable = Arc::new(Memtable::new(options.memtable_budget(), &pool)?);
    Ok((pool, memtable))
}

/// The writers of an open, or why it has none.
struct Began {
    log: Attached<LogWriter>,
    manifest: Attached<Manifest>,
    memtable: FirstMemtable,
    first_segment: FileId,
    read_only: Option<Error>,
}

/// Writes the new manifest and the first fresh segment. From here on files are written.
fn start(dir: &Path, options: &Options, ready: Ready, segment_len: u64) -> Result<(Inner, Found)> {
    let (env, found) = (&options.env, &ready.found);
    // Before anything is written: without memory an open changes nothing.
    let memtable = first_memtable(options)?;
    let orphans = if failpoint::skipped("plant.orphans_ignored") { 0 } else { found.listing.last_id() };
    let mut version = found.version.clone();
    let next_id = version.next_id.max(orphans + 1);
    let (manifest_id, segment) = (FileId(next_id), FileId(next_id + 1));
    version.next_id = next_id + 2;
    let manifest = Manifest::create(&**env, dir, manifest_id, &version)?;
    let (hint, flushed_seq) = (manifest.hint(), version.flushed_seq);
    let created = LogWriter::create(Arc::clone(env), dir, segment, hint, segment_len, flushed_seq);
    let log = created.inspect_err(|_| {
        // CURRENT names the new manifest. Without this each failed open would leave another manifest behind.
        let _stays_for_the_next_open = env.remove_file(&manifest_path(dir, found.manifest_id));
    })?;
    let (log, manifest) = (Attached::new(log), Attached::new(manifest));
    let began = Began { log, manifest, memtable, first_segment: segment, read_only: None };
    Ok(assemble(dir, options, ready, version, began))
}

/// Puts together what all handles share. The memtable is still empty.
fn assemble(dir: &Path, options: &Options, ready: Ready, version: Version, began: Began) -> (Inner, Found) {
    let Ready { found, files, trash, cache } = ready;
    let Began { log, manifest, memtable: (memtable_pool, memtable), first_segment, read_only } = began;
    let next_id = version.next_id;
    let version = Arc::new(version);
    let active = Arc::new(LoggedMemtable { memtable, first_segment });
    let tombstone_spans = Arc::new(TombstoneSpans::new(version.flushed_seq));
    let writer = Writer {
        log,
        next_seq: version.flushed_seq + 1,
        room_until: 0,
        scant_bytes: 0,
        active: Arc::clone(&active),
        tombstone_spans: Arc::clone(&tombstone_spans),
    };
    let state = State {
        active,
        immutable: Vec::new(),
        version: Arc::clone(&version),
        partitions_since: 0,
        tombstone_spans,
        closed: Arc::default(),
    };
    let segments = if read_only.is_some() { Vec::new() } else { vec![first_segment] };
    let inner = Inner::new(Parts {
        dir: dir.to_path_buf(),
        options: options.clone(),
        cache,
        trash,
        state,
        writer,
        versions: Versions { version, files, manifest, floor_is_pinned: true },
        next_id,
        segments,
        recovery: found.recovery,
        memtable_pool,
        read_only,
    });
    (inner, found)
}

/// Reads the log once more, now that it is known to be sound. An error where it reads differently.
fn read_again(inner: &Inner, found: &Found, visit: &mut dyn FnMut(Record<'_>) -> Result<()>) -> Result<()> {
    let again =
        recover(&inner.ctx.env, &inner.ctx.dir, &found.segments, found.version.flushed_seq + 1, visit)?;
    if again == found.recovery {
        return Ok(());
    }
    let message = "the log read differently the second time; the device is failing";
    Err(Error::new(ErrorKind::Corruption, message).at_path(&inner.ctx.dir))
}

/// Writes the recovered batches into fresh segments and the memtable, and moves the log's floor to them.
fn rewrite_log_tail(inner: &Inner, found: &Found) -> Result<()> {
    let first_segment = inner.writes.writer.lock().log.segment_id();
    read_again(inner, found, &mut |record| rewrite_record(inner, &record))?;
    inner.writes.writer.lock().log.sync()?;
    inner.version_set.lock().floor_is_pinned = false;
    let floor = {
        let state = inner.version_set.state.load();
        state
            .immutable
            .last()
            .map_or(state.active.first_segment, |oldest| oldest.first_segment)
            .max(first_segment)
    };
    let mut edit = Edit::default();
    edit.push(EditItem::LogFloor(floor));
    inner.version_set.commit_edit(edit, Vec::new(), State::with_version)
}

/// Removes the segments of an open that found the disk full. The manifest does not name them, and the old segments hold
/// the same records.
fn discard_fresh_segments(inner: &Inner, error: &Error) {
    // In a poisoned store the edit that moves the log's floor to them may be durable.
    if error.is_out_of_space() && inner.ctx.status.poison().is_none() {
        let segments = std::mem::take(&mut inner.version_set.record_files.lock().segments);
        remove_all(inner, segments.iter().map(|id| segment_path(&inner.ctx.dir, *id)));
    }
}

fn rewrite_record(inner: &Inner, record: &Record<'_>) -> Result<()> {
    let mut writer = inner.writes.writer.lock();
    if inner.writes.is_full_for(&writer, Operations::footprint_of(record.payload)) {
        inner.writes.switch_memtable(&mut writer)?;
        while inner.upkeep.flush_oldest()? {}
    }
    reserve_memory(inner, &writer, record)?;
    if writer.log.should_rotate(RECORD_HEADER_LEN + record.payload.len()) {
        inner.writes.rotate_log(&mut writer)?;
    }
    writer.log.append_again(record)?;
    insert_record(inner, &mut writer, record);
    Ok(())
}

/// Reserves the memory that the batch takes in the memtable.
fn reserve_memory(inner: &Inner, writer: &Writer, record: &Record<'_>) -> Result<()> {
    let footprint = Operations::footprint_of(record.payload);
    if writer.active.memtable.reserve(footprint) {
        return Ok(());
    }
    let message = format!(
        "a batch in the log needs {} bytes of memory, which the system does not give; let the process have more",
        footprint.bytes_in_memtable()
    );
    Err(Error::new(ErrorKind::Io, message).at_path(&segment_path(&inner.ctx.dir, record.segment)))
}

/// Inserts a recovered batch into the memtable and shows it to readers.
fn insert_record(inner: &Inner, writer: &mut Writer, record: &Record<'_>) {
    let mut next_seq = record.first_seq;
    writer.tombstone_spans.announce(next_seq + u64::from(record.count) - 1);
    insert_operations(&writer.active.memtable, record.payload, &mut next_seq);
    writer.next_seq = next_seq;
    inner.version_set.state.show_up_to(next_seq - 1);
}
