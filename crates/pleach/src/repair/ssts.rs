//! The SSTs of a damaged store, oldest first, and the entries of them that count.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};
use pleach_log::SeqNo;
use pleach_table::{SalvageSst, Salvaged, SstDamage, SstSummary, ValueKind};

use super::manifest::{Files, Known};
use super::report::{Reporter, missing};
use super::sink::{Owner, Sink};
use crate::damage::DamagedPlace;
use crate::keys::{PartitionId, split_partition_key};
use crate::limits::KEY_LEN_MAX;
use crate::shape::STAGE_SECTIONS;
use crate::version::edit::RunKind;
use crate::version::{Origin, Run};
use crate::version_set::sst_path;

/// The part of a file that belongs to a run.
struct View {
    smallest: Box<[u8]>,
    largest: Box<[u8]>,
    clip: Option<Box<[u8]>>,
    /// Entries that the file should have for the run.
    entries: u64,
}

/// The owner of a file's entries.
enum Whose {
    /// A run's.
    Run(PartitionId, View),
    /// Sections'.
    Sections(BTreeMap<PartitionId, View>),
    /// A partition's, according to the file's note.
    Partition(PartitionId),
    /// Several partitions': each key begins with its partition.
    Shared,
    /// Unknown.
    Unknown,
}

/// A file to be read, at its place in the order of ages.
pub(super) struct Layer {
    file: FileId,
    whose: Whose,
    summary: Option<SstSummary>,
    /// Log records up to this number come before it.
    pub(super) replay_log_before: Option<SeqNo>,
}

/// All files that are to be read, oldest first.
pub(super) fn layers(
    env: &Arc<dyn Env>,
    dir: &Path,
    files: &Files,
    known: &Known,
    report: &mut Reporter<'_>,
) -> Vec<Layer> {
    if report.stopped {
        return Vec::new();
    }
    if !known.is_exact {
        return guessed_layers(env, dir, files, report);
    }
    let layers = layers_of_version(known);
    let live: std::collections::HashSet<_> = layers.iter().map(|layer| layer.file).collect();
    let ignored = files.ssts.iter().filter(|(id, _)| !live.contains(id));
    for (id, len) in ignored {
        report.report.ignored.push(sst_path(dir, *id));
        report.total -= len;
    }
    layers
}

/// The files of the version. Within a partition a run of a later stage is older, and in a stage one with a lower number. A
/// shared file has sections of many partitions and is read once: stage 0 of all partitions goes together, by run number.
fn layers_of_version(known: &Known) -> Vec<Layer> {
    let (mut layers, mut newest) = (Vec::new(), Vec::new());
    for (partition, state) in known.version.partitions() {
        for run in state.tree.runs.iter().rev() {
            if run.stage == STAGE_SECTIONS {
                newest.push((run.id, partition, Arc::clone(run)));
            } else {
                layers.extend(files_of(partition, run));
            }
        }
    }
    newest.sort_by_key(|(id, ..)| *id);
    let mut places: BTreeMap<FileId, usize> = BTreeMap::new();
    for (_, partition, run) in newest {
        for layer in files_of(partition, &run) {
            match (run.kind, places.get(&layer.file)) {
                (RunKind::Section, Some(&place)) => merge_sections(&mut layers[place], layer),
                (kind, _) => {
                    if kind == RunKind::Section {
                        places.insert(layer.file, layers.len());
                    }
                    layers.push(layer);
                }
            }
        }
    }
    layers
}

fn merge_sections(into: &mut Layer, from: Layer) {
    if let (Whose::Sections(into), Whose::Sections(from)) = (&mut into.whose, from.whose) {
        into.extend(from);
    }
}

fn files_of(partition: PartitionId, run: &Run) -> Vec<Layer> {
    let layer = |file: &crate::version::RunFile| {
        let view = View {
            smallest: file.meta.smallest.clone(),
            largest: file.meta.largest.clone(),
            clip: run.clip.clone(),
            entries: file.meta.entries,
        };
        let whose = match run.kind {
            RunKind::Ssts => Whose::Run(partition, view),
            RunKind::Section => Whose::Sections(BTreeMap::from([(partition, view)])),
        };
        let summary = Some(file.file.summary.clone());
        Layer { file: file.meta.file, whose, summary, replay_log_before: None }
    };
    run.files.iter().map(layer).collect()
}

/// All files, by what their notes say.
fn guessed_layers(env: &Arc<dyn Env>, dir: &Path, files: &Files, report: &mut Reporter<'_>) -> Vec<Layer> {
    let mut found = Vec::new();
    // A file without a note is taken to be as old as the one numbered before it.
    let mut last_seq = 0;
    for &id in files.ssts.keys() {
        let path = sst_path(dir, id);
        let note = SalvageSst::open(env, &path, id).and_then(|sst| sst.note());
        let origin = note.ok().flatten().and_then(|note| Origin::decode(&note));
        let (whose, stage) = match origin {
            Some(Origin { partition: Some(partition), stage, .. }) => (Whose::Partition(partition), stage),
            Some(Origin { partition: None, stage, .. }) => (Whose::Shared, stage),
            None => {
                let message =
                    "the file does not say whose it is; its entries go into a partition of their own";
                report.damage(DamagedPlace::of(&path, Error::corruption(&path, 0, message)));
                (Whose::Unknown, 0)
            }
        };
        last_seq = origin.map_or(last_seq, |origin| origin.newest_seq);
        let layer = Layer { file: id, whose, summary: None, replay_log_before: Some(last_seq) };
        found.push((last_seq, std::cmp::Reverse(stage), id, layer));
    }
    found.sort_by_key(|(seq, stage, id, _)| (*seq, *stage, *id));
    found.into_iter().map(|(.., layer)| layer).collect()
}

/// Reads a file and writes the entries that count.
pub(super) fn read(
    env: &Arc<dyn Env>,
    dir: &Path,
    layer: &Layer,
    known: &Known,
    sink: &mut Sink<'_>,
    report: &mut Reporter<'_>,
) -> Result<()> {
    let path = sst_path(dir, layer.file);
    let sst = match SalvageSst::open(env, &path, layer.file) {
        Ok(sst) => sst,
        Err(error) => {
            let place = match env.metadata(&path) {
                Ok(None) => missing(&path, "the manifest names this SST, but it is missing"),
                _ => DamagedPlace::of(&path, error),
            };
            report.damage(layer.lost(place, sink));
            return Ok(());
        }
    };
    if let Some(error) = sst.tail_error() {
        report.damage(DamagedPlace::of(&path, error.clone()));
    } else if layer.summary.as_ref().is_some_and(|summary| sst.summary() != Some(summary)) {
        report.damage(missing(
            &path,
            "expected the file that the manifest describes, found another; it was read all the same",
        ));
    }
    report.report.ssts += 1;
    let mut reading = Reading { layer, known, sink, report, path: &path, found: 0, damage: Vec::new() };
    sst.read(&mut |found| reading.take(found))?;
    reading.finish();
    report.end_file(sst.len());
    Ok(())
}

impl Layer {
    /// Entries that the file should have; `None` when only the file knows.
    fn entries(&self) -> Option<u64> {
        match &self.whose {
            Whose::Run(_, view) => Some(view.entries),
            Whose::Sections(views) => Some(views.values().map(|view| view.entries).sum()),
            _ => None,
        }
    }

    /// The damage that the whole file is gone.
    fn lost(&self, mut place: DamagedPlace, sink: &mut Sink<'_>) -> DamagedPlace {
        let (owner, view) = match &self.whose {
            Whose::Run(partition, view) => (*partition, Some(view)),
            Whose::Sections(views) => match views.iter().next() {
                Some((partition, view)) => (*partition, Some(view).filter(|_| views.len() == 1)),
                None => return place,
            },
            Whose::Partition(partition) => (*partition, None),
            Whose::Shared | Whose::Unknown => return place,
        };
        place.partition = Some(sink.name(Owner::Partition(owner)));
        place.lower = view.map(|view| view.smallest.to_vec());
        place.upper = view.map(|view| view.largest.to_vec());
        place.entries = self.entries();
        place
    }
}

/// A file while it is read.
struct Reading<'a, 'd, 'p> {
    layer: &'a Layer,
    known: &'a Known,
    sink: &'a mut Sink<'d>,
    report: &'a mut Reporter<'p>,
    path: &'a Path,
    found: u64,
    damage: Vec<SstDamage>,
}

impl<'a> Reading<'a, '_, '_> {
    fn take(&mut self, found: Salvaged<'_>) -> Result<bool> {
        match found {
            Salvaged::Entry { key, kind, value } => self.entry(key, kind, value).map(|()| true),
            Salvaged::Damage(damage) => {
                self.damage.push(damage);
                Ok(true)
            }
            Salvaged::Progress(offset) => Ok(self.report.advance(offset)),
        }
    }

    fn entry(&mut self, key: &[u8], kind: ValueKind, value: &[u8]) -> Result<()> {
        let Some((owner, user_key, view)) = self.owner(key) else {
            self.report.report.dropped_entries += 1;
            return Ok(());
        };
        self.found += 1;
        let is_hidden = view.is_some_and(|view| {
            view.clip.as_deref().is_some_and(|clip| user_key < clip)
                || user_key < &*view.smallest
                || user_key > &*view.largest
        });
        if is_hidden {
            return Ok(());
        }
        let value = match kind {
            ValueKind::Put => Some(value),
            ValueKind::Tombstone => None,
            ValueKind::ValuePointer => {
                self.refuse("a value pointer, which this layout does not have");
                return Ok(());
            }
        };
        if !(1..=KEY_LEN_MAX).contains(&user_key.len()) {
            self.refuse("a key that is empty or too long");
            return Ok(());
        }
        self.report.report.entries += 1;
        self.sink.write(owner, user_key, value)
    }

    fn refuse(&mut self, what: &str) {
        let error = Error::corruption(self.path, 0, format!("found {what}"));
        self.report.damage(DamagedPlace::of(self.path, error));
    }

    /// Whose an entry is, its user key, and what of the file is the owner's; `None` when the partition was dropped.
    fn owner<'k>(&self, key: &'k [u8]) -> Option<(Owner, &'k [u8], Option<&'a View>)> {
        match &self.layer.whose {
            Whose::Run(partition, view) => Some((Owner::Partition(*partition), key, Some(view))),
            Whose::Sections(views) => {
                let (partition, user_key) = split_partition_key(key)?;
                Some((Owner::Partition(partition), user_key, Some(views.get(&partition)?)))
            }
            Whose::Partition(partition) if self.known.is_dropped(*partition) => None,
            Whose::Partition(partition) => Some((Owner::Partition(*partition), key, None)),
            Whose::Shared => {
                let (partition, user_key) = split_partition_key(key)?;
                (!self.known.is_dropped(partition)).then_some((Owner::Partition(partition), user_key, None))
            }
            Whose::Unknown => Some((Owner::File(self.layer.file.0), key, None)),
        }
    }

    /// Reports the damage of the file, with the partition and the keys that are lost.
    fn finish(self) {
        let expected = self.layer.entries().filter(|_| !self.report.stopped);
        let mut missing_entries =
            expected.map(|expected| expected.saturating_sub(self.found)).filter(|n| *n > 0);
        let is_one = self.damage.len() == 1;
        for damage in self.damage {
            let mut place = self.layer.lost(DamagedPlace::of(self.path, damage.error), self.sink);
            (place.offset, place.len) = (Some(damage.offset), Some(damage.len));
            // With several places only the sum is known.
            place.entries = missing_entries.filter(|_| is_one);
            let shared = matches!(self.layer.whose, Whose::Sections(_) | Whose::Shared);
            let user_key = |key: Vec<u8>| match split_partition_key(&key) {
                Some((partition, user_key)) if shared => (Some(partition), user_key.to_vec()),
                _ => (None, key),
            };
            if let Some((partition, key)) = damage.after.map(user_key) {
                let name = partition.map(|id| self.sink.name(Owner::Partition(id)));
                (place.partition, place.lower) = (name.or(place.partition), Some(key));
            }
            if let Some((_, key)) = damage.before.map(user_key) {
                place.upper = Some(key);
            }
            self.report.damage(place);
            if is_one {
                missing_entries = None;
            }
        }
        if let Some(entries) = missing_entries {
            let message = format!("{entries} entries that the manifest counts were not found in the file");
            let place = missing(self.path, &message);
            self.report.damage(DamagedPlace { entries: Some(entries), ..self.layer.lost(place, self.sink) });
        }
    }
}
