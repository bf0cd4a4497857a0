//! Open of a store: lock, manifest, log, and the removal of files that a crash left behind.
//!
//! # Order
//! 1. Read and check everything. Write nothing.
//! 2. Write a new manifest with the recovered version, and let `CURRENT` name it.
//! 3. Remove the files that the version does not name, except for log segments. The next step may need their space.
//! 4. Write the log's tail into fresh segments, and sync them: the page cache may show bytes that are not on the medium.
//! 5. Move the log's floor to the fresh segments by one edit. From here on the old segments are obsolete.
//! 6. Remove the old segments.
//! 7. Extend the reserve to its full length, if there is room: `version_set/reserve`.
//!
//! After a crash between any two steps, the next open recovers the same state.
//!
//! # A full disk
//! If a step after the first finds the disk full, the open removes the files that it made, releases the reserve and starts
//! over with short log segments. If that fails too, the store is opened for reading only, as below. Writes then return the
//! error for a full disk until the store is opened again.
//!
//! # Reading only
//! The open stops after step 1 and reads the log's tail into memtables. No byte of the directory changes: no job runs, and
//! every writing call is refused before it reaches the log or the manifest.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, FileId, FileLock, Result};
use pleach_log::{LogWriter, RECORD_HEADER_LEN, Record, recover, segment_path};
use pleach_table::{Encoders, FrameCache};

use super::directory::{
    Listing, check_absent, create_store, enter, list, no_store, remove_leftovers, remove_old_segments,
};
use super::inner::Inner;
use super::recovery::{Found, read_store};
use crate::attached::Attached;
use crate::manifest::{self, Current, Layout, Manifest, manifest_path};
use crate::memtable::{MemtableMemory, MemtableWriter};
use crate::operations::Operations;
use crate::options::{IMMUTABLE_MEMTABLES_MAX, Options};
use crate::state::State;
use crate::trace;
use crate::trash::Trash;
use crate::upkeep::filters::open_ssts;
use crate::version::FileTable;
use crate::version::edit::{Edit, EditItem};
use crate::version_set::reserve;
use crate::write_path::{PayloadPlace, insert_operations};

/// Name of the partition that every store has.
pub(crate) const DEFAULT_PARTITION: &str = "default";

/// Longest log segment of a store that was opened on a full disk: short enough to find room in the reserve.
const CRAMPED_SEGMENT_BYTES: u64 = 64 << 10;

/// A store that was read and checked, with its SSTs open.
pub(super) struct Ready {
    pub(super) found: Found,
    pub(super) files: FileTable,
    pub(super) trash: Arc<Trash>,
    pub(super) cache: Arc<FrameCache>,
    pub(super) encoders: Encoders,
}

/// Opens the store and recovers it. Background work is not started yet.
pub(crate) fn open(dir: &Path, options: &Options) -> Result<(Inner, Box<dyn FileLock>)> {
    let _span = trace::open(dir);
    let env = Arc::clone(&options.env);
    let lock = enter(&env, dir, options)?;
    check_absent(&*env, dir, options)?;
    let inner = open_as_possible(dir, options)?;
    inner.ctx.choose_read_driver()?;
    Ok((inner, lock))
}

fn open_as_possible(dir: &Path, options: &Options) -> Result<Inner> {
    if options.read_only {
        return open_for_reading(dir, options, read_only_error(dir));
    }
    let full = match open_for_writing(dir, options, options.segment_bytes()) {
        Err(error) if error.is_out_of_space() => error,
        opened => return opened,
    };
    reserve::release(&*options.env, dir);
    match open_for_writing(dir, options, options.segment_bytes().min(CRAMPED_SEGMENT_BYTES)) {
        // A store that does not exist yet cannot be read. If the read fails, return the error of the first try.
        Err(error) if error.is_out_of_space() => open_for_reading(dir, options, error).map_err(|_| full),
        opened => opened,
    }
}

fn open_for_writing(dir: &Path, options: &Options, segment_len: u64) -> Result<Inner> {
    let env = &options.env;
    let listing = list(&**env, dir)?;
    let current = if let Some(current) = manifest::read_current(&**env, dir)? {
        current
    } else {
        let manifest = create_store(&**env, dir, options, &listing)?;
        Current { layout: Layout::Plain, manifest, closed: None }
    };
    let ready = read(dir, options, current, listing)?;
    let (inner, found) = start(dir, options, ready, segment_len)?;
    remove_leftovers(&inner, &found);
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
    let (mut found, mut files) = read_store(&options.env, dir, current, &trash, listing)?;
    let encoders = Encoders::new();
    let cache;
    (found.version, cache) = open_ssts(&options.env, dir, &found.version, options, &encoders)?;
    files.count_open_indexes();
    Ok(Ready { found, files, trash, cache, encoders })
}

/// Opens the store for reading only. Writes return the error `why`.
fn open_for_reading(dir: &Path, options: &Options, why: Error) -> Result<Inner> {
    let listing = list(&*options.env, dir)?;
    let Some(current) = manifest::read_current(&*options.env, dir)? else {
        listing.check_fresh(dir)?;
        return Err(no_store(dir));
    };
    let ready = read(dir, options, current, listing)?;
    let version = ready.found.version.clone();
    let writers = Writers {
        log: Attached::none(),
        manifest: Attached::none(),
        memtable: first_memtable(options)?,
        first_segment: FileId(0),
        read_only: Some(why),
    };
    let (inner, found) = Inner::new(dir, options, ready, version, writers);
    read_again(&inner, &found)?;
    trace::recovery(&found.recovery);
    Ok(inner)
}

/// The first memtable of a store, and the memory of all its memtables.
pub(super) type FirstMemtable = (Arc<MemtableMemory>, MemtableWriter);

fn first_memtable(options: &Options) -> Result<FirstMemtable> {
    let memory = MemtableMemory::new(options.memtable_budget(), IMMUTABLE_MEMTABLES_MAX);
    let memtable = MemtableWriter::new(options.memtable_budget(), &memory)?;
    Ok((memory, memtable))
}

/// The writers of a store, or the reason why it has none.
pub(super) struct Writers {
    pub(super) log: Attached<LogWriter>,
    pub(super) manifest: Attached<Manifest>,
    pub(super) memtable: FirstMemtable,
    pub(super) first_segment: FileId,
    pub(super) read_only: Option<Error>,
}

/// Writes the new manifest and the first fresh segment. From here on files are written.
fn start(dir: &Path, options: &Options, ready: Ready, segment_len: u64) -> Result<(Inner, Found)> {
    let (env, found) = (&options.env, &ready.found);
    // Allocated before anything is written, so that an open without memory changes nothing.
    let memtable = first_memtable(options)?;
    // Whoever renamed `CURRENT` may have been killed before the name was durable. Then a power cut could lose it, and leave names
    // of files that this open creates.
    manifest::sync_rename(&**env, dir)?;
    let mut version = found.version.clone();
    let next_id = version.next_id.max(found.listing.last_id() + 1);
    let (manifest_id, segment) = (FileId(next_id), FileId(next_id + 1));
    version.next_id = next_id + 2;
    let layout = Layout::of(options.separates() || found.layout == Layout::Values);
    let manifest = Manifest::create(&**env, dir, (manifest_id, layout), &version)?;
    let (hint, flushed_seq) = (manifest.hint(), version.flushed_seq);
    let created = LogWriter::create(Arc::clone(env), dir, segment, hint, segment_len, flushed_seq);
    let log = created.inspect_err(|_| {
        // CURRENT names the new manifest. Otherwise each failed open would leave one more manifest behind.
        let _stays_for_the_next_open = env.remove_file(&manifest_path(dir, found.manifest_id));
    })?;
    let (log, manifest) = (Attached::new(log), Attached::new(manifest));
    let writers = Writers { log, manifest, memtable, first_segment: segment, read_only: None };
    Ok(Inner::new(dir, options, ready, version, writers))
}

/// Reads the log for the second time, and recovers its batches. An error if it reads differently.
fn read_again(inner: &Inner, found: &Found) -> Result<()> {
    let (env, dir, first_seq) = (&inner.ctx.env, &inner.ctx.dir, found.version.flushed_seq + 1);
    let again = recover(env, dir, &found.segments, first_seq, &mut |record| recover_batch(inner, &record))?;
    if again == found.recovery {
        return Ok(());
    }
    let message = "the log read differently the second time; the device is failing";
    Err(Error::new(ErrorKind::Corruption, message).at_path(dir))
}

/// Writes the recovered batches into fresh segments and the memtable, and moves the log's floor to them.
fn rewrite_log_tail(inner: &Inner, found: &Found) -> Result<()> {
    let first_segment = inner.writes.lock().log.segment_id();
    read_again(inner, found)?;
    inner.writes.lock().log.sync()?;
    inner.version_set.lock().floor_is_pinned = false;
    let state = inner.version_set.state.load_full();
    let oldest = state.immutable.last().unwrap_or(&state.active);
    let mut edit = Edit::default();
    edit.push(EditItem::LogFloor(oldest.first_segment.max(first_segment)));
    drop(state);
    inner.version_set.commit_edit(edit, Vec::new(), State::with_version)
}

/// Removes the segments of an open that found the disk full. The manifest does not name them, and the old segments hold
/// the same records.
///
/// The newest goes first, and each removal is durable before the next one: after a power cut a marker of the newest could
/// state that records are durable which only an older fresh segment had.
fn discard_fresh_segments(inner: &Inner, error: &Error) {
    // In a poisoned store the edit that moves the log's floor to them may be durable.
    if !error.is_out_of_space() || inner.ctx.status.poison().is_some() {
        return;
    }
    let (env, dir) = (&inner.ctx.env, &inner.ctx.dir);
    let segments = std::mem::take(&mut inner.version_set.record_files.lock().segments);
    for id in segments.iter().rev() {
        let removed = env.remove_file(&segment_path(dir, *id));
        if removed.and_then(|()| env.sync_dir(dir, "log.dir_sync")).is_err() {
            // The next open recovers the same from what is left.
            return;
        }
    }
}

/// Inserts a batch of the log into the memtable and shows it to readers. In a store that is open for writing, appends it to
/// the fresh segments first.
fn recover_batch(inner: &Inner, record: &Record<'_>) -> Result<()> {
    let writes = &inner.writes;
    let is_writable = inner.ctx.status.read_only().is_none();
    let mut writer = writes.lock();
    let footprint = Operations::footprint_of(record.payload);
    if writes.is_full_for(&writer, footprint) {
        if is_writable {
            writes.switch_memtable(&mut writer)?;
            while inner.upkeep.flush_oldest()? {}
        } else {
            writes.start_memtable(&mut writer, writes.new_memtable()?, FileId(0));
        }
    }
    if !writer.memtable.reserve(footprint) {
        let message = format!(
            "a batch in the log needs {} bytes of memory, which the system does not give; let the process have more",
            footprint.bytes_in_memtable()
        );
        return Err(Error::new(ErrorKind::Io, message).at_path(&segment_path(&inner.ctx.dir, record.segment)));
    }
    writes.shares.follow_memtables();
    let mut place = None;
    if is_writable {
        if writer.log.should_rotate(RECORD_HEADER_LEN + record.payload.len()) {
            writes.rotate_log(&mut writer)?;
        }
        let offset = writer.log.append_recovered(record, inner.ctx.options.thresholds.large_value_len)?;
        place = Some(PayloadPlace { segment: writer.log.segment_id(), offset });
    }
    let mut next_seq = record.first_seq;
    writer.tombstone_spans.announce(next_seq + u64::from(record.count) - 1);
    insert_operations(&mut writer.memtable, record.payload, place, &mut next_seq);
    writer.next_seq = next_seq;
    inner.version_set.state.show_up_to(next_seq - 1);
    Ok(())
}
