//! The version set: the newest version, the manifest that makes it durable, and the files that versions name.
//!
//! It owns the state that readers see. Flushes, compactions, creations and drops of partitions commit edits to it (`edits`).
//!
//! # Concurrency
//! An edit is made durable and shown under one lock, [`VersionSet::lock`]. The others are leaf locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::MutexGuard;
use pleach_env::sync::Mutex;
use pleach_env::{File, FileId};
use pleach_log::{ManifestHint, RetiredSegments, segment_path};
use pleach_table::Sst;

use crate::attached::Attached;
use crate::context::Context;
use crate::manifest::{Manifest, manifest_path};
use crate::state::CurrentState;
use crate::stats::add;
use crate::trash::Trash;
use crate::version::edit::RunId;
use crate::version::{FileTable, Version};

pub(crate) mod debt;
mod edits;
mod ledger;
pub(crate) mod reserve;

pub(crate) use ledger::{DUE_MAX, Ledger, StageOrder};

/// The version set.
pub(crate) struct VersionSet {
    ctx: Arc<Context>,
    /// The newest state, which readers load.
    pub(crate) state: CurrentState,
    versions: Mutex<Versions>,
    /// Next file or run number.
    next_id: AtomicU64,
    /// The manifest hint of log segments.
    hint: Mutex<ManifestHint>,
    /// Log segments and manifests that exist.
    pub(crate) record_files: Mutex<RecordFiles>,
    /// SSTs that no version needs.
    pub(crate) trash: Arc<Trash>,
    /// Leaf lock.
    pub(crate) ledger: Mutex<Ledger>,
}

/// The newest version and the means to write the next.
pub(crate) struct Versions {
    pub(crate) version: Arc<Version>,
    pub(crate) files: FileTable,
    pub(crate) manifest: Attached<Manifest>,
    /// Until recovery has rewritten the log's tail, flushes must not move the log's floor.
    pub(crate) floor_is_pinned: bool,
}

/// Log segments and replaced manifests, which the cleaner removes when they are not needed any more.
#[derive(Default)]
pub(crate) struct RecordFiles {
    /// Segments of the log, ascending, those in use included. Versions own those that were made value segments.
    pub(crate) segments: Vec<FileId>,
    /// Those of the segments that are not written any more.
    full: BTreeMap<FileId, FullSegment>,
    /// Manifests that a newer one replaced.
    pub(crate) old_manifests: Vec<FileId>,
    /// Handles of segments that the log does not need any more.
    pub(crate) retired: RetiredSegments,
}

/// A log segment that is not written any more.
#[derive(Clone)]
pub(crate) struct FullSegment {
    /// Where its records end.
    pub(crate) end: u64,
    /// Open for writing, if it holds values that are to be separated.
    pub(crate) handle: Option<Arc<dyn File>>,
}

impl RecordFiles {
    /// Notes that the log goes on in segment `id`, and that `before` is full.
    pub(crate) fn began_segment(&mut self, id: FileId, before: FileId, full: FullSegment) {
        self.segments.push(id);
        self.full.insert(before, full);
    }

    /// A segment that is not written any more.
    pub(crate) fn full_segment(&self, segment: FileId) -> Option<FullSegment> {
        self.full.get(&segment).cloned()
    }

    /// Gives segments away that versions own from now on.
    pub(crate) fn give_up(&mut self, segments: &[FileId]) {
        self.segments.retain(|id| !segments.contains(id));
    }

    /// Takes segments back.
    pub(crate) fn take_back(&mut self, segments: &[FileId]) {
        self.segments.extend(segments);
        self.segments.sort_unstable();
    }
}

impl VersionSet {
    /// The version set of a store just opened, with the next number for a file or run, and the log segments that exist.
    pub(crate) fn new(
        ctx: &Arc<Context>,
        versions: Versions,
        state: CurrentState,
        trash: Arc<Trash>,
        (next_id, segments): (u64, Vec<FileId>),
    ) -> Self {
        let hint = versions.manifest.as_ref().map_or(ManifestHint::NONE, Manifest::hint);
        let ledger = Ledger::new(&ctx.options, &versions.version, 0);
        Self {
            ctx: Arc::clone(ctx),
            state,
            versions: Mutex::new(versions),
            next_id: AtomicU64::new(next_id),
            hint: Mutex::new(hint),
            record_files: Mutex::new(RecordFiles { segments, ..RecordFiles::default() }),
            trash,
            ledger: Mutex::new(ledger),
        }
    }

    /// Locks the newest version and the means to write the next.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock()
    }

    /// Makes a version with the present filters and readers of its files, and shows it to lookups.
    pub(crate) fn show_files(&self) {
        self.show_refreshed(&mut self.lock());
    }

    /// Puts `ssts` in the place of the readers of their files, and shows them to lookups. Those in flight end with the old ones.
    pub(crate) fn replace_ssts(&self, ssts: Vec<Sst>) {
        let mut versions = self.lock();
        for sst in ssts {
            versions.files.replace_sst(sst);
        }
        self.show_refreshed(&mut versions);
    }

    fn show_refreshed(&self, versions: &mut Versions) {
        let next = Arc::new(versions.version.refreshed());
        versions.version = Arc::clone(&next);
        self.state.swap(|state| state.with_version(next));
    }

    /// A number for a new file.
    pub(crate) fn new_file_id(&self) -> FileId {
        FileId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a new run, above those of all runs there are.
    ///
    /// Requires: [`VersionSet::lock`] is held until the run is in the version, or until the picker knows the number: see
    /// [`RunId::NEXT`] and [`VersionSet::plan_basis`].
    fn new_run_id(&self) -> RunId {
        RunId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The newest version, and a number for a run to be merged from some of its runs. The number is above those of all runs
    /// in the version and below those of all later runs, so that the run sorts by the age of its inputs.
    pub(crate) fn plan_basis(&self) -> (Arc<Version>, RunId) {
        // Under the lock every run that has a number is in the version.
        let versions = self.lock();
        (Arc::clone(&versions.version), self.new_run_id())
    }

    /// The hint of the manifest for a new log segment.
    pub(crate) fn manifest_hint(&self) -> ManifestHint {
        *self.hint.lock()
    }

    /// Removes the files that nothing needs any more, and returns how many. The cleaner does so; a job that finds the disk
    /// full calls it too.
    pub(crate) fn remove_obsolete(&self) -> usize {
        let obsolete = self.trash.take();
        let mut removed = obsolete.len();
        for file in obsolete {
            let _stays_for_the_next_open = self.ctx.env.remove_file(&file.path(&self.ctx.dir));
            add(&self.ctx.counters.removed_files, 1);
        }
        let floor = self.state.load().version.log_floor;
        let (segments, manifests, retired) = {
            let mut files = self.record_files.lock();
            let keep = files.segments.partition_point(|id| *id < floor);
            let segments: Vec<_> = files.segments.drain(..keep).collect();
            files.full.retain(|id, _| *id >= floor);
            (segments, std::mem::take(&mut files.old_manifests), std::mem::take(&mut files.retired))
        };
        drop(retired);
        let paths = (segments.iter().map(|id| segment_path(&self.ctx.dir, *id)))
            .chain(manifests.iter().map(|id| manifest_path(&self.ctx.dir, *id)));
        for path in paths {
            let _stays_for_the_next_open = self.ctx.env.remove_file(&path);
            removed += 1;
        }
        removed
    }
}
