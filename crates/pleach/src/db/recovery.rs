//! Read of a store at its open: manifest and log, checked against each other. It writes nothing.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, FileId, Result};
use pleach_log::{ManifestHint, Record, Recovery, recover, segment_path};

use super::directory::Listing;
use crate::file_names::sst_path;
use crate::manifest::{self, Closed, Current, Layout};
use crate::operations::Operations;
use crate::trash::Trash;
use crate::version::{FileTable, Version};

/// The contents of a store as read before anything is written.
pub(super) struct Found {
    pub(super) version: Version,
    pub(super) manifest_id: FileId,
    pub(super) layout: Layout,
    pub(super) listing: Listing,
    /// Segments of the log from the floor on.
    pub(super) segments: Vec<FileId>,
    pub(super) recovery: Recovery,
}

/// Reads manifest and log and checks them against each other.
pub(super) fn read_store(
    env: &Arc<dyn Env>,
    dir: &Path,
    current: Current,
    trash: &Arc<Trash>,
    listing: Listing,
) -> Result<(Found, FileTable)> {
    let manifest_id = current.manifest;
    let mut files = FileTable::new(Arc::clone(trash));
    let (version, manifest_end) = manifest::read_manifest(env, dir, manifest_id, &mut files)?;
    // These files are removed with the other leftovers.
    drop(files.take_unreferenced());
    listing.check_values(dir, &version)?;
    if current.layout == Layout::Plain
        && let Some(file) = version.live_files().iter().find(|file| file.summary.value_pointers > 0)
    {
        let message = "the SST points to separated values, which the store's layout does not have";
        return Err(Error::unsupported(&sst_path(dir, file.id), message));
    }
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
    let layout = current.layout;
    Ok((Found { version, manifest_id, layout, listing, segments, recovery }, files))
}

/// An error when a log record is no batch of this store.
fn check_record(dir: &Path, version: &Version, record: &Record<'_>) -> Result<()> {
    let damaged =
        |message: String| Error::corruption(&segment_path(dir, record.segment), record.offset, message);
    let (mut count, mut unknown) = (0u64, None);
    Operations::decode_raw(record.payload, &mut |op| {
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

/// An error when the manifest is shorter than a log segment says. Each segment notes the manifest's durable length at its
/// creation.
fn check_hint(dir: &Path, hint: Option<ManifestHint>, manifest_id: FileId, end: u64) -> Result<()> {
    let Some(hint) = hint else { return Ok(()) };
    let (offset, message) = if hint.file > manifest_id {
        (0, format!("CURRENT names this manifest, but the log was written under manifest {}", hint.file))
    } else if hint.file == manifest_id && hint.len > end {
        (end, format!("the manifest ends here; {} bytes of it were durable once", hint.len))
    } else {
        return Ok(());
    };
    Err(Error::corruption(&manifest::manifest_path(dir, manifest_id), offset, message))
}

/// An error when a store that was closed cleanly has lost bytes: after a clean close no tail can be torn.
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
