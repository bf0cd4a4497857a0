//! Opening a store: the lock, the manifest, the log, and the removal of what a crash left behind.
//!
//! # Order
//! 1. Everything is read and checked; nothing is written.
//! 2. A new manifest with the recovered version; `CURRENT` points to it.
//! 3. Files that nothing names are removed, except for the log's: their space may be needed.
//! 4. The log's tail is written into fresh segments and synced: what the page cache shows need not be on the medium.
//! 5. One edit moves the log's floor to the fresh segments. From here on the old ones are not needed.
//! 6. The old segments are removed.
//!
//! A crash anywhere in between leaves a store that the next open recovers to the same state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Env, Error, ErrorKind, FileId, FileLock, LockMode, Result, failpoint};
use pleach_log::{
    Append, LogWriter, ManifestHint, Record, RecordBuf, Recovery, parse_segment_name, recover, segment_path,
};
use pleach_table::FrameCache;

use super::filters::open_ssts;
use super::inner::{Inner, Parts, Versions, Writer};
use super::sst_output::{parse_sst_name, sst_path};
use super::write::insert_operations;
use crate::batch::Operations;
use crate::keys::PartitionId;
use crate::limits::NEXT_ID_MAX;
use crate::manifest::{self, CURRENT_TMP, Closed, Current, Manifest};
use crate::memtable::Memtable;
use crate::options::{Options, SEALED_MAX};
use crate::scan::DeletedStretches;
use crate::state::{LoggedMemtable, State};
use crate::trace;
use crate::version::edit::{Edit, EditItem};
use crate::version::{FileTable, Trash, Version};

/// Name of the lock file. It is never removed.
pub(crate) const LOCK: &str = "LOCK";

/// Name of the partition that every store has.
pub(crate) const DEFAULT_PARTITION: &str = "default";

/// The number of the first manifest of a store.
const FIRST_MANIFEST: FileId = FileId(1);

/// The files of ours in a directory.
#[derive(Default)]
struct Listing {
    segments: Vec<FileId>,
    ssts: Vec<FileId>,
    manifests: Vec<FileId>,
    has_current_tmp: bool,
    /// A name that is not ours and not hidden.
    foreign: Option<String>,
}

/// What was read of a store, before anything is written.
struct Found {
    version: Version,
    manifest_id: FileId,
    listing: Listing,
    /// Segments of the log from the floor on.
    segments: Vec<FileId>,
    recovery: Recovery,
}

/// Opens the store and recovers it. Background work is not started yet.
pub(crate) fn open(dir: &Path, options: Options) -> Result<(Inner, Box<dyn FileLock>)> {
    let _span = trace::open(dir);
    let env = Arc::clone(&options.env);
    let lock = enter(&env, dir, &options)?;
    let listing = list(&*env, dir)?;
    let current = match manifest::read_current(&*env, dir)? {
        Some(current) => current,
        None => Current { manifest: create_store(&*env, dir, &options, &listing)?, closed: None },
    };
    let trash = Arc::new(Trash::default());
    let (mut found, files) = read_store(&env, dir, current, &trash, listing)?;
    let cache;
    (found.version, cache) = open_ssts(&env, dir, &found.version, &options)?;
    let inner = start(dir, options, cache, trash, files, &found)?;
    remove_leftovers(&inner, &found);
    if failpoint::skipped("plant.leftovers_early") {
        remove_old_segments(&inner, &found);
    }
    rewrite_log_tail(&inner, &found)?;
    trace::recovery(&found.recovery);
    remove_old_segments(&inner, &found);
    inner.measure_pressure();
    Ok((inner, lock))
}

/// Makes sure that the directory is there, and takes its lock. Refuses, before it creates anything, a directory that is
/// not to become a store.
fn enter(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> Result<Box<dyn FileLock>> {
    let metadata = env.metadata(dir).map_err(|e| Error::io("look for the directory", dir, e))?;
    match metadata {
        Some(metadata) if metadata.is_file => {
            return Err(Error::invalid(format!("{} is a file; a store is a directory", dir.display())));
        }
        Some(_) => look_before_locking(&**env, dir, options)?,
        None if options.create_if_missing => {
            env.create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, e))?;
        }
        None => return Err(no_store(dir)),
    }
    let path = dir.join(LOCK);
    match env.lock_file(&path, LockMode::Exclusive).map_err(|e| Error::io("lock the store", &path, e))? {
        Some(lock) => Ok(lock),
        None => Err(Error::new(
            ErrorKind::Conflict,
            "the store is open already, in this process or in another; close it there first",
        )
        .at_path(dir)),
    }
}

/// An error for a directory in which a lock file would be an intrusion. What else may be wrong is looked for under the
/// lock.
fn look_before_locking(env: &dyn Env, dir: &Path, options: &Options) -> Result<()> {
    let path = dir.join(manifest::CURRENT);
    if env.metadata(&path).map_err(|e| Error::io("look for", &path, e))?.is_some() {
        return Ok(());
    }
    let listing = list(env, dir)?;
    if listing.is_fresh() { listing.check_creatable(dir, options) } else { Ok(()) }
}

fn no_store(dir: &Path) -> Error {
    let message =
        "there is no store here, and creating one was not asked for; look at the path, or create it";
    Error::new(ErrorKind::NotFound, message).at_path(dir)
}

fn list(env: &dyn Env, dir: &Path) -> Result<Listing> {
    let names = env.list_dir(dir).map_err(|e| Error::io("list the directory", dir, e))?;
    let mut listing = Listing::default();
    for (name, metadata) in names {
        if let Some(id) = parse_segment_name(&name) {
            listing.segments.push(id);
        } else if let Some(id) = parse_sst_name(&name) {
            listing.ssts.push(id);
        } else if let Some(id) = manifest::parse_manifest_name(&name) {
            listing.manifests.push(id);
        } else if name == CURRENT_TMP {
            listing.has_current_tmp = true;
        } else if name != LOCK && name != manifest::CURRENT && !name.starts_with('.') && name != "lost+found"
        {
            listing.foreign = listing.foreign.or(Some(name));
            continue;
        } else {
            continue;
        }
        if listing.last_id() >= NEXT_ID_MAX {
            let message =
                "no store has counted this far; if the file is not the store's, give it another name";
            return Err(Error::corruption(&dir.join(&name), 0, message));
        }
        if !metadata.is_file {
            return Err(Error::corruption(
                &dir.join(&name),
                0,
                "this name is the store's, but it is no regular file",
            ));
        }
    }
    listing.segments.sort_unstable();
    Ok(listing)
}

impl Listing {
    /// Whether nothing in it shows that a store was ever finished being created here.
    fn is_fresh(&self) -> bool {
        self.segments.is_empty()
            && self.ssts.is_empty()
            && self.manifests.iter().all(|id| *id == FIRST_MANIFEST)
    }

    /// An error when no store may be created in the directory.
    fn check_creatable(&self, dir: &Path, options: &Options) -> Result<()> {
        match &self.foreign {
            _ if !options.create_if_missing => Err(no_store(dir)),
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "{} is no store: it holds other files ({name:?}); give an empty or a new directory",
                dir.display()
            ))),
        }
    }

    fn last_id(&self) -> u64 {
        self.segments.iter().chain(&self.ssts).chain(&self.manifests).map(|id| id.0).max().unwrap_or(0)
    }
}

/// Creates an empty store; an interrupted creation is done over.
fn create_store(env: &dyn Env, dir: &Path, options: &Options, listing: &Listing) -> Result<FileId> {
    if !listing.is_fresh() {
        return Err(Error::corruption(
            &dir.join(manifest::CURRENT),
            0,
            "CURRENT is missing, but the directory holds files of a store; restore CURRENT",
        ));
    }
    listing.check_creatable(dir, options)?;
    for id in &listing.manifests {
        let path = manifest::manifest_path(dir, *id);
        env.remove_file(&path).map_err(|e| Error::io("remove a half-made manifest", &path, e))?;
    }
    let files = FileTable::default();
    let mut edit = Edit::default();
    edit.push(EditItem::NextId(FIRST_MANIFEST.0 + 1));
    edit.push(EditItem::CreatePartition { id: PartitionId(0), name: DEFAULT_PARTITION.to_owned() });
    let applied = Version::empty().apply(&edit, &files, &[]);
    let (version, _no_files) = applied.expect("the first edit fits an empty version");
    Manifest::create(env, dir, FIRST_MANIFEST, &version)?;
    Ok(FIRST_MANIFEST)
}

/// Reads manifest and log and checks them against each other.
fn read_store(
    env: &Arc<dyn Env>,
    dir: &Path,
    current: Current,
    trash: &Arc<Trash>,
    listing: Listing,
) -> Result<(Found, FileTable)> {
    let manifest_id = current.manifest;
    let mut files = FileTable::new(Arc::clone(trash));
    let (version, manifest_end) = manifest::read_manifest(env, dir, manifest_id, &mut files)?;
    // Files that the manifest no longer refers to: leftovers, removed with the others.
    drop(files.take_unreferenced());
    let floor = version.log_floor;
    let segments: Vec<_> = listing.segments.iter().copied().filter(|id| *id >= floor).collect();
    if floor != FileId(0) && segments.first() != Some(&floor) {
        return Err(Error::corruption(
            &segment_path(dir, floor),
            0,
            "the manifest names this log segment, but it is missing",
        ));
    }
    let recovery = recover(env, dir, &segments, version.flushed_seq + 1, &mut |record| {
        check_record(dir, &version, &record)
    })?;
    check_hint(dir, recovery.hint, manifest_id, manifest_end)?;
    if let Some(closed) = current.closed {
        check_closed(dir, closed, (manifest_id, manifest_end), &segments, &recovery)?;
    }
    Ok((Found { version, manifest_id, listing, segments, recovery }, files))
}

/// An error when a log record is no batch of this store.
fn check_record(dir: &Path, version: &Version, record: &Record<'_>) -> Result<()> {
    let damaged =
        |message: String| Error::corruption(&segment_path(dir, record.segment), record.offset, message);
    let (mut count, mut unknown) = (0u64, None);
    Operations::decode(record.payload, &mut |op| {
        count += 1;
        if op.partition.get() >= version.next_partition {
            unknown = Some(op.partition);
        }
    })
    .map_err(|m| damaged(format!("the batch has a valid checksum, but {m}")))?;
    if count != u64::from(record.count) {
        return Err(damaged(format!("the batch says it has {} operations; it has {count}", record.count)));
    }
    match unknown {
        None => Ok(()),
        Some(id) => {
            Err(damaged(format!("the batch writes to partition {id}, which the manifest does not know")))
        }
    }
}

/// Segments note how far the manifest was durable when they were created; it must reach at least as far now.
fn check_hint(dir: &Path, hint: Option<ManifestHint>, manifest_id: FileId, end: u64) -> Result<()> {
    let Some(hint) = hint.filter(|_| !failpoint::skipped("plant.hint_ignored")) else { return Ok(()) };
    let path = manifest::manifest_path(dir, manifest_id);
    if hint.file > manifest_id {
        return Err(Error::corruption(
            &path,
            0,
            format!("CURRENT names this manifest, but the log was written under manifest {}", hint.file),
        ));
    }
    if hint.file == manifest_id && hint.len > end {
        return Err(Error::corruption(
            &path,
            end,
            format!("the manifest ends here; {} bytes of it were durable once", hint.len),
        ));
    }
    Ok(())
}

/// A store that was closed must still have all that it had then: nothing of it can be a torn tail.
fn check_closed(
    dir: &Path,
    closed: Closed,
    (manifest_id, manifest_end): (FileId, u64),
    segments: &[FileId],
    recovery: &Recovery,
) -> Result<()> {
    if manifest_end < closed.manifest_len {
        let message =
            format!("the manifest ends here; the store was closed with {} bytes of it", closed.manifest_len);
        return Err(Error::corruption(&manifest::manifest_path(dir, manifest_id), manifest_end, message));
    }
    let last_seq = recovery.next_seq - 1;
    if last_seq >= closed.last_seq {
        return Ok(());
    }
    let message =
        format!("the log ends at sequence number {last_seq}; the store was closed with {}", closed.last_seq);
    let place = recovery.torn.or_else(|| segments.last().map(|id| (*id, 0)));
    Err(match place {
        Some((segment, offset)) => Error::corruption(&segment_path(dir, segment), offset, message),
        None => Error::new(ErrorKind::Corruption, message).at_path(&dir.join(manifest::CURRENT)),
    })
}

/// Writes the new manifest and the first fresh segment. From here on files are written.
fn start(
    dir: &Path,
    options: Options,
    cache: Arc<FrameCache>,
    trash: Arc<Trash>,
    files: FileTable,
    found: &Found,
) -> Result<Inner> {
    let env = Arc::clone(&options.env);
    let orphans = if failpoint::skipped("plant.orphans_ignored") { 0 } else { found.listing.last_id() };
    let mut next_id = found.version.next_id.max(orphans + 1);
    let mut take_id = || {
        next_id += 1;
        FileId(next_id - 1)
    };
    let (manifest_id, segment) = (take_id(), take_id());
    let mut version = found.version.clone();
    version.next_id = next_id;
    let manifest = Manifest::create(&*env, dir, manifest_id, &version)?;
    let segment_len = options.segment_bytes();
    let log = LogWriter::create(env, dir, segment, manifest.hint(), segment_len, version.flushed_seq)?;
    let version = Arc::new(version);
    let memtable_pool = Memtable::pool(options.memtable_budget(), SEALED_MAX);
    let active = Arc::new(LoggedMemtable {
        memtable: Arc::new(Memtable::new(options.memtable_budget(), &memtable_pool)),
        first_segment: segment,
    });
    let stretches = Arc::new(DeletedStretches::new(version.flushed_seq));
    let writer = Writer {
        log,
        next_seq: version.flushed_seq + 1,
        active: Arc::clone(&active),
        stretches: Arc::clone(&stretches),
    };
    let state = State {
        active,
        sealed: Vec::new(),
        version: Arc::clone(&version),
        partitions_since: 0,
        stretches,
        closed: Arc::default(),
    };
    let versions = Versions { version, files, manifest, floor_is_pinned: true };
    let dir = dir.to_path_buf();
    let segments = vec![segment];
    Ok(Inner::new(Parts {
        dir,
        options,
        cache,
        trash,
        state,
        writer,
        versions,
        next_id,
        segments,
        recovery: found.recovery,
        memtable_pool,
    }))
}

/// Writes the recovered batches into fresh segments and the memtable, and moves the log's floor to them.
fn rewrite_log_tail(inner: &Inner, found: &Found) -> Result<()> {
    let mut buffer = RecordBuf::new();
    let first_segment = inner.writer.lock().log.segment_id();
    let again =
        recover(&inner.env, &inner.dir, &found.segments, found.version.flushed_seq + 1, &mut |record| {
            rewrite_record(inner, &record, &mut buffer)
        })?;
    if again != found.recovery {
        let message = "the log read differently the second time; the device is failing";
        return Err(Error::new(ErrorKind::Corruption, message).at_path(&inner.dir));
    }
    inner.writer.lock().log.sync()?;
    inner.versions.lock().floor_is_pinned = false;
    let floor = {
        let state = inner.state.load();
        state
            .sealed
            .last()
            .map_or(state.active.first_segment, |oldest| oldest.first_segment)
            .max(first_segment)
    };
    let mut edit = Edit::default();
    edit.push(EditItem::LogFloor(floor));
    inner.commit_edit(edit, Vec::new(), State::with_version)
}

fn rewrite_record(inner: &Inner, record: &Record<'_>, buffer: &mut RecordBuf) -> Result<()> {
    let mut writer = inner.writer.lock();
    let footprint = Operations::footprint_of(record.payload);
    if inner.is_full_for(&writer, footprint) {
        inner.seal(&mut writer)?;
        while inner.flush_oldest()? {}
    }
    if !writer.active.memtable.reserve(footprint) {
        let message = format!(
            "a batch in the log needs {} bytes of memory, which the system does not give; let the process have more",
            footprint.bytes
        );
        return Err(Error::new(ErrorKind::Io, message).at_path(&segment_path(&inner.dir, record.segment)));
    }
    buffer.clear();
    buffer.bytes_mut().extend_from_slice(record.payload);
    if writer.log.should_rotate(buffer.record_len()) {
        inner.rotate_log(&mut writer)?;
    }
    let (first_seq, count) = (record.first_seq, record.count);
    writer.log.append([Append { record: buffer, first_seq, count }])?;
    let mut next_seq = first_seq;
    writer.stretches.announce(first_seq + u64::from(count) - 1);
    insert_operations(&writer.active.memtable, record.payload, &mut next_seq);
    writer.next_seq = next_seq;
    inner.visible.store(next_seq - 1, Ordering::Release);
    Ok(())
}

/// Removes the files, but for the log, that earlier lives of the store left and nothing names any more. The new manifest
/// is in force, and the space may be needed to recover.
fn remove_leftovers(inner: &Inner, found: &Found) {
    let dir = &inner.dir;
    let live = inner.versions.lock().version.live_files();
    let is_live = |id: &FileId| live.binary_search_by_key(id, |file| file.id).is_ok();
    let manifests = found.listing.manifests.iter().chain([&found.manifest_id]);
    let gone = (found.listing.ssts.iter().filter(|id| !is_live(id)).map(|id| sst_path(dir, *id)))
        .chain(manifests.map(|id| manifest::manifest_path(dir, *id)))
        .chain(found.listing.has_current_tmp.then(|| dir.join(CURRENT_TMP)));
    remove_all(inner, gone);
}

/// Removes the segments whose batches stand in fresh ones.
fn remove_old_segments(inner: &Inner, found: &Found) {
    remove_all(inner, found.listing.segments.iter().map(|id| segment_path(&inner.dir, *id)));
}

/// Best effort: what stays is found by the next open.
fn remove_all(inner: &Inner, paths: impl Iterator<Item = PathBuf>) {
    for path in paths {
        let _stays_for_the_next_open = inner.env.remove_file(&path);
    }
}
