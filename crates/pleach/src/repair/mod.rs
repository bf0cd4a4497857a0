//! Repair: what can be read of a damaged store is written into a new one.
//!
//! [`repair`] reads every block and every log record that proves itself by its checksum and writes their entries, oldest
//! first, into a new store; [`survey`] does the same without writing, to report all damage. The old store is only read.
//!
//! The manifest gives the live files, their partitions and their ages. Without it, names of partitions come from the
//! remaining records of manifests, and the partition and age of an SST from its note ([`Origin`](crate::version::Origin)).
//! That is a guess, and the report says so: deleted entries and dropped partitions may come back. In a levelled store,
//! and behind range compactions, overwritten values may come back too (docs/format/sst.md, "Salvage").
//!
//! # Invariants
//! 1. *Nothing unproven*: entries come from blocks, records and separated values whose checksums are right. A key whose
//!    separated value cannot be read is deleted, so that no older value of it comes back.
//! 2. *Nothing silent*: the report names everything that was not read.
//! 3. *Oldest first*: of two entries of a key, the newer one is written later, as far as the age is known.
//! 4. *Read only*: nothing in the old directory is created, changed or removed.

mod log;
mod manifest;
mod replay;
mod report;
mod sink;
mod ssts;
mod values;

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, LockMode, Result};

use crate::db::Db;
use crate::options::Options;
use manifest::{Catalog, Files};
use replay::Replay;
pub use report::RepairReport;
use report::Reporter;
use sink::Sink;
use values::Homes;

/// Called with the bytes read and the bytes in all; returns whether to continue.
pub type RepairProgress<'p> = dyn FnMut(u64, u64) -> bool + 'p;

/// Writes all that can be read of the damaged store `from` into a new store `into`. Nothing in `from` is changed.
///
/// `options` are those of the new store, and its environment reads the old one.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let db = pleach::Db::open(&old)?;
/// # db.default_partition().put(b"k", b"v")?;
/// # db.close()?;
/// std::fs::remove_file(old.join("CURRENT")).unwrap();
/// let report = pleach::repair(&old, &new, pleach::Options::new(), &mut |_, _| true)?;
/// assert!(report.complete);
/// assert_eq!(pleach::Db::open(&new)?.default_partition().get(b"k")?.as_deref(), Some(&b"v"[..]));
/// # Ok::<(), pleach::Error>(())
/// ```
///
/// # Errors
/// `NotFound` when `from` holds no store, `Conflict` when it is open, `InvalidArgument` when `from` is a file, or when `into`
/// exists and is not an empty directory, or lies in `from`; otherwise those of writing to the new store, which then is
/// incomplete. Damage is no error: it is in the report.
pub fn repair(
    from: impl AsRef<Path>,
    into: impl AsRef<Path>,
    options: Options,
    progress: &mut RepairProgress<'_>,
) -> Result<RepairReport> {
    let (from, into) = (from.as_ref(), into.as_ref());
    let env = Arc::clone(&options.env);
    let _lock = enter(&*env, from)?;
    check_target(&*env, from, into)?;
    // Before anything is created: there may be no store to repair.
    manifest::list(&*env, from, &mut Reporter::new(&mut |_, _| true))?;
    let db = options.create_if_missing(true).open(into)?;
    let report = Salvage::new(&env, from, Some(&db), progress)?.run()?;
    db.flush()?;
    db.close()?;
    Ok(report)
}

/// Reads the store `from` as [`repair`] does and reports its damage, but writes nothing.
///
/// # Errors
/// Those of [`repair`] that concern `from`.
pub fn survey(
    from: impl AsRef<Path>,
    options: &Options,
    progress: &mut RepairProgress<'_>,
) -> Result<RepairReport> {
    let env = Arc::clone(&options.env);
    let _lock = enter(&*env, from.as_ref())?;
    Salvage::new(&env, from.as_ref(), None, progress)?.run()
}

/// Checks that there is a store, and locks it against writers.
fn enter(env: &dyn Env, from: &Path) -> Result<Box<dyn pleach_env::FileLock>> {
    match env.metadata(from).map_err(|e| Error::io("look for the directory", from, e))? {
        Some(metadata) if metadata.is_file => {
            return Err(Error::invalid(format!("{} is a file; a store is a directory", from.display())));
        }
        Some(_) => {}
        None => return Err(Error::new(ErrorKind::NotFound, "there is no store here").at_path(from)),
    }
    let path = from.join(crate::db::LOCK);
    let lock = env.lock_file(&path, LockMode::Shared).map_err(|e| Error::io("lock the store", &path, e))?;
    let open = "the store is open, in this process or in another; close it there first";
    lock.ok_or_else(|| Error::new(ErrorKind::Conflict, open).at_path(from))
}

fn check_target(env: &dyn Env, from: &Path, into: &Path) -> Result<()> {
    let absolute =
        |path: &Path| env.absolute(path).map_err(|e| Error::io("find the working directory for", path, e));
    if absolute(into)?.starts_with(absolute(from)?) {
        return Err(Error::invalid("the new store cannot lie inside the damaged one; give another path"));
    }
    let Some(metadata) = env.metadata(into).map_err(|e| Error::io("look for the directory", into, e))? else {
        return Ok(());
    };
    let is_empty = !metadata.is_file
        && env.list_dir(into).map_err(|e| Error::io("list the directory", into, e))?.is_empty();
    if is_empty {
        return Ok(());
    }
    Err(Error::invalid("the new store's path exists already; repair writes into a new or an empty directory")
        .at_path(into))
}

/// A store being read.
struct Salvage<'s> {
    env: &'s Arc<dyn Env>,
    dir: &'s Path,
    files: Files,
    catalog: Catalog,
    homes: Homes,
    sink: Sink<'s>,
    report: Reporter<'s>,
}

impl<'s> Salvage<'s> {
    /// Lists the files of the store and reads its manifest. Entries go into `db`, or nowhere.
    fn new(
        env: &'s Arc<dyn Env>,
        dir: &'s Path,
        db: Option<&'s Db>,
        progress: &'s mut RepairProgress<'s>,
    ) -> Result<Self> {
        let mut report = Reporter::new(progress);
        let files = manifest::list(&**env, dir, &mut report)?;
        let catalog = manifest::read(env, dir, &files, &mut report);
        report.total = files.bytes_of_data();
        let homes = Homes::find(env, dir, &files, &catalog, &mut report);
        Ok(Self { env, dir, files, catalog, homes, sink: Sink::new(db), report })
    }

    /// Reads everything, oldest first.
    fn run(mut self) -> Result<RepairReport> {
        let parts = self.index_log();
        self.sink.name_partitions(&self.catalog)?;
        let ssts = self.ssts_by_age();
        let flushed = ssts.iter().filter_map(|sst| sst.replay_log_before).max();
        if !self.report.stopped {
            self.report_gaps(&parts, flushed.unwrap_or(0));
        }
        let mut replay = Replay::new(parts);
        for sst in ssts {
            if let Some(newest_seq) = sst.replay_log_before {
                replay.replay(newest_seq, &mut self)?;
            }
            if !self.report.stopped {
                self.read_sst(&sst)?;
            }
        }
        replay.replay(u64::MAX, &mut self)?;
        self.sink.commit()?;
        for place in self.sink.take_lost(self.dir) {
            self.report.damage(place);
        }
        Ok(self.report.finish(&self.sink))
    }
}
