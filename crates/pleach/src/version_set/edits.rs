//! Committing version edits: checked, made durable, shown to readers.
//!
//! # Order
//! 1. The edit is completed and applied. That makes the next version and the changes of the file table, and changes nothing
//!    else.
//! 2. The edit is appended to the manifest, and synced.
//! 3. Table, version and state are replaced, and files without references become obsolete.
//!
//! So an edit that does not fit the version never reaches the manifest, and an edit that cannot be written changes nothing.
//!
//! # Concurrency
//! All steps run under [`VersionSet::lock`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Error, ErrorKind, FileId, Result, failpoint};

use super::{VersionSet, Versions};
use crate::keys::PartitionId;
use crate::manifest::Manifest;
use crate::state::State;
use crate::values::{HomeKind, ValueHome};
use crate::version::edit::{Edit, EditItem, RunId};
use crate::version::{FileChanges, SstFile, Version};

impl VersionSet {
    /// Makes an edit durable and shows its version to readers, in a state made by `change`. `added` are the opened files that
    /// the edit names. Items about partitions that were dropped meanwhile are left out.
    ///
    /// The edit is checked before it is written. Only a bug in Pleach makes an edit that does not fit; it poisons the store,
    /// and the next open finds the store as it was before the edit.
    ///
    /// After an error nothing has changed, and the added files are obsolete. In a poisoned store they stay, because the edit
    /// may be durable.
    pub(crate) fn commit_edit(
        &self,
        edit: Edit,
        added: Vec<Arc<SstFile>>,
        change: impl FnOnce(&State, Arc<Version>) -> State,
    ) -> Result<()> {
        self.commit_locked(&mut self.lock(), edit, added, change)
    }

    /// The same for what `make` returns: an edit, and its opened files. No other edit is committed meanwhile, so `make` sees the
    /// version that its edit changes. Returns whether there was an edit.
    pub(crate) fn commit_made(
        &self,
        make: impl FnOnce() -> Result<Option<(Edit, Vec<Arc<SstFile>>)>>,
    ) -> Result<bool> {
        let mut versions = self.lock();
        let Some((edit, added)) = make()? else { return Ok(false) };
        self.commit_locked(&mut versions, edit, added, State::with_version)?;
        Ok(true)
    }

    fn commit_locked(
        &self,
        versions: &mut Versions,
        edit: Edit,
        added: Vec<Arc<SstFile>>,
        change: impl FnOnce(&State, Arc<Version>) -> State,
    ) -> Result<()> {
        let homes = homes_named_in(&edit);
        let (next, changes, changed) = match self.make_durable(versions, edit, &added) {
            Ok(made) => made,
            Err(error) => {
                if self.ctx.status.poison().is_none() {
                    for file in &added {
                        file.mark_obsolete();
                    }
                }
                return Err(error);
            }
        };
        drop(added);
        let live = if homes.is_empty() { BTreeMap::new() } else { next.values.homes() };
        let is_unused = |(file, kind, _): &(FileId, HomeKind, u64)| {
            live.get(file).is_none_or(|(home, _)| home.kind != *kind)
        };
        let unused: Vec<_> = (homes.into_iter().filter(is_unused))
            .map(|(file, kind, len)| ValueHome::new(file, kind, len, Arc::clone(&self.trash)))
            .collect();
        versions.files.install(changes);
        let before = std::mem::replace(&mut versions.version, Arc::clone(&next));
        let mut ledger = self.ledger.lock();
        for id in changed {
            ledger.update(id, next.tree(id).map(|tree| &**tree));
        }
        drop(ledger);
        self.state.swap(|state| change(state, next));
        for file in versions.files.take_unreferenced() {
            file.mark_obsolete();
        }
        before.mark_homes_missing_in(&versions.version);
        for home in unused {
            home.mark_obsolete();
        }
        Ok(())
    }

    /// Completes the edit, makes the next version with it, and appends it to the manifest.
    fn make_durable(
        &self,
        versions: &mut Versions,
        mut edit: Edit,
        added: &[Arc<SstFile>],
    ) -> Result<(Arc<Version>, FileChanges, BTreeSet<PartitionId>)> {
        self.ctx.status.check_not_ended()?;
        self.ctx.status.check_not_poisoned()?;
        if versions.manifest.should_replace(&self.ctx.options.thresholds) {
            self.replace_manifest(versions)?;
        }
        self.complete(versions, &mut edit);
        let (next, changes) = versions.version.apply(&edit, &versions.files, added).map_err(|message| {
            let message = format!(
                "a version edit does not fit the version, so it was not written ({message}); this is a bug in Pleach; open \
                 the store again, and report it"
            );
            self.ctx.status.set_poison(Error::new(ErrorKind::Corruption, message))
        })?;
        failpoint::reached("edit.applied");
        self.append(versions, &edit).map_err(|e| self.manifest_failed(versions, e))?;
        *self.hint.lock() = versions.manifest.hint();
        Ok((Arc::new(next), changes, edit.changed_partitions()))
    }

    /// Appends the edit to the manifest. On a full disk it releases the reserve and tries again, because most edits free files.
    fn append(&self, versions: &mut Versions, edit: &Edit) -> Result<()> {
        match versions.manifest.append(edit) {
            Err(error)
                if error.is_out_of_space() && !versions.manifest.is_poisoned() && self.release_reserve() =>
            {
                versions.manifest.append(edit)
            }
            appended => appended,
        }
    }

    /// Leaves out items that no longer apply, and fills in numbers.
    fn complete(&self, versions: &Versions, edit: &mut Edit) {
        edit.items.retain(|item| match item {
            EditItem::LogFloor(_) => !versions.floor_is_pinned,
            item => item.changed_tree().is_none_or(|partition| versions.version.is_live(partition)),
        });
        for item in &mut edit.items {
            if let EditItem::AddRun { run, .. } = item
                && run.id == RunId::NEXT
            {
                run.id = self.new_run_id();
            }
        }
        edit.push(EditItem::NextId(self.next_id.load(Ordering::Relaxed)));
    }

    fn replace_manifest(&self, versions: &mut Versions) -> Result<()> {
        let id = self.new_file_id();
        let mut version = Version::clone(&versions.version);
        version.next_id = self.next_id.load(Ordering::Relaxed);
        let layout = versions.manifest.layout();
        match Manifest::create(&*self.ctx.env, &self.ctx.dir, (id, layout), &version) {
            Ok(manifest) => {
                let old = std::mem::replace(&mut *versions.manifest, manifest);
                self.record_files.lock().old_manifests.push(old.id());
                Ok(())
            }
            // CURRENT names the old manifest, which stays in use unless it takes no more edits.
            Err(failed) if !failed.is_in_doubt && failed.error.is_shortage() => {
                failpoint::report("manifest.kept", versions.manifest.id().0);
                if versions.manifest.is_exhausted() { Err(failed.error) } else { Ok(()) }
            }
            // CURRENT may name either; the next open decides.
            Err(failed) => Err(self.ctx.status.set_poison(failed.error)),
        }
    }

    fn manifest_failed(&self, versions: &Versions, error: Error) -> Error {
        if versions.manifest.is_poisoned() || !error.is_shortage() {
            self.ctx.status.set_poison(error)
        } else {
            error
        }
    }
}

/// The files that an edit names as homes of values.
fn homes_named_in(edit: &Edit) -> BTreeSet<(FileId, HomeKind, u64)> {
    let home = |item: &EditItem| match *item {
        EditItem::ValueHome { file, kind, len, .. } => Some((file, kind, len)),
        _ => None,
    };
    edit.items.iter().filter_map(home).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pleach_env::{Env, SimEnv};

    use super::*;
    use crate::options::Thresholds;
    use crate::{Db, Options};

    /// The partition of a conversion is dropped just before its commit: nothing refers to the copies any more.
    #[test]
    fn a_file_of_values_to_which_nothing_refers_goes() {
        let env = SimEnv::new(1);
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(8 << 20).separate_at(100);
        let db = options.open("/store").unwrap();
        let inner = db.inner();
        let id = inner.version_set.new_file_id();
        let path = crate::file_names::values_path(Path::new("/store"), id);
        env.write_file(&path, b"copies");
        let mut edit = Edit::default();
        edit.push(EditItem::ValueHome { segment: id, file: id, kind: HomeKind::Values, len: 6 });
        inner.version_set.commit_edit(edit, Vec::new(), State::with_version).unwrap();
        inner.version_set.remove_obsolete();
        assert_eq!(env.metadata(&path).unwrap(), None);
    }

    #[test]
    fn an_edit_that_does_not_fit_never_reaches_the_manifest() {
        let env = SimEnv::new(1);
        let open = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20).open("/store").unwrap();
        let db: Db = open();
        db.default_partition().put("key", "value").unwrap();
        db.flush().unwrap();
        let inner = db.inner();
        let manifest = inner.version_set.lock().manifest.id();
        let path = crate::manifest::manifest_path(Path::new("/store"), manifest);
        let len = || env.metadata(&path).unwrap().unwrap().len;
        let before = len();
        let mut edit = Edit::default();
        edit.push(EditItem::RemoveRun { partition: PartitionId(0), run: RunId(999) });
        let error = inner.version_set.commit_edit(edit, Vec::new(), State::with_version).unwrap_err();
        assert!(error.to_string().contains("run 999 does not exist"), "{error}");
        assert_eq!(len(), before);
        let refused = db.default_partition().put("other", "value").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Poisoned);
        assert!(db.default_partition().get("key").unwrap().is_some(), "reads go on");
        drop(db);
        let db = open();
        assert!(db.default_partition().get("key").unwrap().is_some());
        db.verify().unwrap();
    }

    #[test]
    fn a_replaced_manifest_is_removed() {
        let env = SimEnv::new(1);
        let short = Thresholds { manifest_len: 300, manifest_growth: 1, ..Thresholds::default() };
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20);
        let db = options.thresholds(short).open("/store").unwrap();
        let first = db.inner().version_set.lock().manifest.id();
        for value in 0..20 {
            db.default_partition().put("key", [value]).unwrap();
            db.flush().unwrap();
        }
        db.inner().version_set.remove_obsolete();
        let last = db.inner().version_set.lock().manifest.id();
        assert_ne!(first, last, "it was replaced");
        let names = env.file_names(Path::new("/store"));
        let manifests: Vec<_> = names.iter().filter(|name| name.starts_with("MANIFEST-")).collect();
        assert_eq!(manifests, [&format!("MANIFEST-{last}")]);
    }
}
