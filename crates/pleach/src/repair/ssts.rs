//! The SSTs of a damaged store: their order by age, and the salvage of their entries.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use pleach_env::{Error, FileId, Result};
use pleach_log::SeqNo;
use pleach_table::{SalvageSst, Salvaged, SstDamage, SstSummary, ValueKind};

use super::Salvage;
use super::manifest::Catalog;
use super::report::missing;
use super::sink::{Owner, Sink};
use crate::damage::DamagedPlace;
use crate::file_names::sst_path;
use crate::keys::{KeyEnds, PartitionId, split_partition_key};
use crate::limits::KEY_LEN_MAX;
use crate::shape::STAGE_SECTIONS;
use crate::version::edit::RunKind;
use crate::version::{Origin, Run, RunFile, SstFile};

/// What of a file belongs to a run.
struct RunPart {
    /// The ends of each part, ascending. There is at least one.
    ranges: Vec<KeyEnds>,
    clip: Option<Box<[u8]>>,
    /// Entries that the file should have for the run.
    entries: u64,
}

/// The owner of a file's entries.
enum FileOwner {
    /// A run.
    Run(PartitionId, RunPart),
    /// The sections of several partitions.
    Sections(BTreeMap<PartitionId, RunPart>),
    /// A partition, according to the file's note.
    Partition(PartitionId),
    /// Several partitions, according to the note: each key begins with its partition.
    Shared,
    /// Unknown: the file has no note.
    Unknown,
}

/// An SST to be read.
pub(super) struct AgedSst {
    file: FileId,
    owner: FileOwner,
    summary: Option<SstSummary>,
    /// Log records up to this number come before it.
    pub(super) replay_log_before: Option<SeqNo>,
}

impl Salvage<'_> {
    /// All SSTs that are to be read, oldest first.
    pub(super) fn ssts_by_age(&mut self) -> Vec<AgedSst> {
        if self.report.stopped {
            return Vec::new();
        }
        if !self.catalog.is_exact {
            return self.ssts_by_note();
        }
        let ssts = ssts_of_version(&self.catalog);
        let live: HashSet<_> = ssts.iter().map(|sst| sst.file).collect();
        for (id, len) in self.files.ssts.iter().filter(|(id, _)| !live.contains(id)) {
            self.report.report.ignored.push(sst_path(self.dir, *id));
            self.report.total -= len;
        }
        ssts
    }

    /// All SSTs, by the ages in their notes.
    fn ssts_by_note(&mut self) -> Vec<AgedSst> {
        let mut found = Vec::new();
        // An SST without a note is taken to be as old as the one numbered before it.
        let mut last_seq = 0;
        for &id in self.files.ssts.keys() {
            let path = sst_path(self.dir, id);
            let note = SalvageSst::open(self.env, &path, id).and_then(|sst| sst.note());
            let origin = note.ok().flatten().and_then(|note| Origin::decode(&note));
            let (owner, stage) = match origin {
                Some(Origin { partition: Some(partition), stage, .. }) => {
                    (FileOwner::Partition(partition), stage)
                }
                Some(Origin { partition: None, stage, .. }) => (FileOwner::Shared, stage),
                None => {
                    let message = "the file does not say which partition it belongs to; its entries go into a \
                                   partition of their own";
                    self.report.damage(DamagedPlace::of(&path, Error::corruption(&path, 0, message)));
                    (FileOwner::Unknown, 0)
                }
            };
            last_seq = origin.map_or(last_seq, |origin| origin.newest_seq);
            let sst = AgedSst { file: id, owner, summary: None, replay_log_before: Some(last_seq) };
            found.push((last_seq, Reverse(stage), id, sst));
        }
        found.sort_by_key(|(seq, stage, id, _)| (*seq, *stage, *id));
        found.into_iter().map(|(.., sst)| sst).collect()
    }

    /// Reads an SST and writes the entries that count.
    pub(super) fn read_sst(&mut self, aged: &AgedSst) -> Result<()> {
        let path = sst_path(self.dir, aged.file);
        let sst = match SalvageSst::open(self.env, &path, aged.file) {
            Ok(sst) => sst,
            Err(error) => {
                let place = match self.env.metadata(&path) {
                    Ok(None) => missing(&path, "the manifest names this SST, but it is missing"),
                    _ => DamagedPlace::of(&path, error),
                };
                self.report.damage(aged.lost(place, &mut self.sink));
                return Ok(());
            }
        };
        if let Some(error) = sst.tail_error() {
            self.report.damage(DamagedPlace::of(&path, error.clone()));
        } else if aged.summary.as_ref().is_some_and(|summary| sst.summary() != Some(summary)) {
            self.report.damage(missing(
                &path,
                "expected the file that the manifest describes, found another; it was read all the same",
            ));
        }
        self.report.report.ssts += 1;
        let mut reading = Reading { sst: aged, salvage: self, path: &path, found: 0, damage: Vec::new() };
        sst.read(&mut |found| reading.take(found))?;
        reading.finish();
        self.report.report.bytes += sst.len();
        self.report.end_file(sst.len());
        Ok(())
    }
}

/// The SSTs of the version, oldest first. Within a partition a run of a later stage is older, and within a stage a run with
/// a lower number. A shared file has sections of many partitions and is read once, so the runs of stage 0 of all partitions
/// are sorted together, by number.
fn ssts_of_version(catalog: &Catalog) -> Vec<AgedSst> {
    let (mut ssts, mut newest) = (Vec::new(), Vec::new());
    for (partition, state) in catalog.version.partitions() {
        for run in state.tree.runs.iter().rev() {
            if run.stage == STAGE_SECTIONS {
                newest.push((run.id, partition, Arc::clone(run)));
            } else {
                ssts.extend(files_of(partition, run));
            }
        }
    }
    newest.sort_by_key(|(id, ..)| *id);
    let mut places: BTreeMap<FileId, usize> = BTreeMap::new();
    for (_, partition, run) in newest {
        for sst in files_of(partition, &run) {
            match (run.kind, places.get(&sst.file)) {
                (RunKind::Section, Some(&place)) => merge_sections(&mut ssts[place], sst),
                (kind, _) => {
                    if kind == RunKind::Section {
                        places.insert(sst.file, ssts.len());
                    }
                    ssts.push(sst);
                }
            }
        }
    }
    ssts
}

fn merge_sections(into: &mut AgedSst, from: AgedSst) {
    if let (FileOwner::Sections(into), FileOwner::Sections(from)) = (&mut into.owner, from.owner) {
        into.extend(from);
    }
}

fn files_of(partition: PartitionId, run: &Run) -> Vec<AgedSst> {
    let mut files: Vec<(Arc<SstFile>, RunPart)> = Vec::new();
    for RunFile { file, meta, .. } in &run.files {
        let range = (meta.smallest.clone(), meta.largest.clone());
        if let Some((_, part)) = files.iter_mut().rev().find(|(other, _)| other.id == file.id) {
            part.ranges.push(range);
            // The counts of parts are estimates.
            part.entries = part.entries.saturating_add(meta.entries).min(file.summary.entries);
        } else {
            let part = RunPart { ranges: vec![range], clip: run.clip.clone(), entries: meta.entries };
            files.push((Arc::clone(file), part));
        }
    }
    let sst = |(file, part): (Arc<SstFile>, RunPart)| {
        let owner = match run.kind {
            RunKind::Ssts => FileOwner::Run(partition, part),
            RunKind::Section => FileOwner::Sections(BTreeMap::from([(partition, part)])),
        };
        let summary = Some(file.summary.clone());
        AgedSst { file: file.id, owner, summary, replay_log_before: None }
    };
    files.into_iter().map(sst).collect()
}

impl RunPart {
    /// Whether a reader of the run sees no entry of the key here.
    fn hides(&self, user_key: &[u8]) -> bool {
        let before = self.ranges.partition_point(|(smallest, _)| &**smallest <= user_key);
        let is_inside = before > 0 && user_key <= &*self.ranges[before - 1].1;
        !is_inside || self.clip.as_deref().is_some_and(|clip| user_key < clip)
    }
}

impl AgedSst {
    /// Entries that the file should have; `None` if no manifest says so.
    fn entries(&self) -> Option<u64> {
        match &self.owner {
            FileOwner::Run(_, part) => Some(part.entries),
            FileOwner::Sections(parts) => Some(parts.values().map(|part| part.entries).sum()),
            _ => None,
        }
    }

    /// Completes the description of a place that concerns the whole file.
    fn lost(&self, mut place: DamagedPlace, sink: &mut Sink<'_>) -> DamagedPlace {
        let (owner, part) = match &self.owner {
            FileOwner::Run(partition, part) => (*partition, Some(part)),
            FileOwner::Sections(parts) => match parts.iter().next() {
                Some((partition, part)) => (*partition, Some(part).filter(|_| parts.len() == 1)),
                None => return place,
            },
            FileOwner::Partition(partition) => (*partition, None),
            FileOwner::Shared | FileOwner::Unknown => return place,
        };
        place.partition = Some(sink.name(Owner::Partition(owner)));
        place.lower = part.and_then(|part| part.ranges.first()).map(|(smallest, _)| smallest.to_vec());
        place.upper = part.and_then(|part| part.ranges.last()).map(|(_, largest)| largest.to_vec());
        place.entries = self.entries();
        place
    }
}

/// A file while it is read.
struct Reading<'a, 's> {
    sst: &'a AgedSst,
    salvage: &'a mut Salvage<'s>,
    path: &'a Path,
    found: u64,
    damage: Vec<SstDamage>,
}

impl<'a> Reading<'a, '_> {
    fn take(&mut self, found: Salvaged<'_>) -> Result<bool> {
        match found {
            Salvaged::Entry { key, kind, value } => self.entry(key, kind, value).map(|()| true),
            Salvaged::Damage(damage) => {
                self.damage.push(damage);
                Ok(true)
            }
            Salvaged::Progress(offset) => Ok(self.salvage.report.advance(offset)),
        }
    }

    fn entry(&mut self, key: &[u8], kind: ValueKind, value: &[u8]) -> Result<()> {
        let Some((owner, user_key, part)) = self.owner(key) else {
            self.salvage.report.report.dropped_entries += 1;
            return Ok(());
        };
        self.found += 1;
        if part.is_some_and(|part| part.hides(user_key)) {
            return Ok(());
        }
        if user_key.len() > KEY_LEN_MAX {
            self.refuse("a key that is too long");
            return Ok(());
        }
        let value = match kind {
            ValueKind::Put => Some(value),
            ValueKind::Tombstone => None,
            ValueKind::ValuePointer => return self.separated(owner, user_key, value),
        };
        self.salvage.report.report.entries += 1;
        self.salvage.sink.write(owner, user_key, value)
    }

    /// Takes an entry whose value is separated.
    fn separated(&mut self, owner: Owner, user_key: &[u8], pointer: &[u8]) -> Result<()> {
        let Salvage { env, dir, homes, sink, report, .. } = &mut *self.salvage;
        let read = match owner {
            Owner::Partition(partition) => homes.read(env, (dir, self.path), (partition, user_key), pointer),
            Owner::File(_) => {
                let message = "the value cannot be proved, because the partition of its key is unknown";
                Err(Error::corruption(self.path, 0, message))
            }
        };
        match read {
            Ok((value, bytes)) => {
                report.report.entries += 1;
                report.report.bytes += bytes;
                sink.write(owner, user_key, Some(&value))
            }
            Err(error) => sink.lose(owner, user_key, error),
        }
    }

    fn refuse(&mut self, what: &str) {
        let error = Error::corruption(self.path, 0, format!("found {what}"));
        self.salvage.report.damage(DamagedPlace::of(self.path, error));
    }

    /// The owner of an entry, its user key, and the part of the file that is the owner's; `None` when the partition was
    /// dropped.
    fn owner<'k>(&self, key: &'k [u8]) -> Option<(Owner, &'k [u8], Option<&'a RunPart>)> {
        match &self.sst.owner {
            FileOwner::Run(partition, part) => Some((Owner::Partition(*partition), key, Some(part))),
            FileOwner::Sections(parts) => {
                let (partition, user_key) = split_partition_key(key)?;
                Some((Owner::Partition(partition), user_key, Some(parts.get(&partition)?)))
            }
            FileOwner::Partition(partition) if self.salvage.catalog.is_dropped(*partition) => None,
            FileOwner::Partition(partition) => Some((Owner::Partition(*partition), key, None)),
            FileOwner::Shared => {
                let (partition, user_key) = split_partition_key(key)?;
                (!self.salvage.catalog.is_dropped(partition)).then_some((
                    Owner::Partition(partition),
                    user_key,
                    None,
                ))
            }
            FileOwner::Unknown => Some((Owner::File(self.sst.file.0), key, None)),
        }
    }

    /// Reports the damage of the file, with the partition and the keys that are lost.
    fn finish(self) {
        let expected = self.sst.entries().filter(|_| !self.salvage.report.stopped);
        let mut missing_entries =
            expected.map(|expected| expected.saturating_sub(self.found)).filter(|n| *n > 0);
        let is_one = self.damage.len() == 1;
        for damage in self.damage {
            let mut place = self.sst.lost(DamagedPlace::of(self.path, damage.error), &mut self.salvage.sink);
            (place.offset, place.len) = (Some(damage.offset), Some(damage.len));
            // With several places only the sum is known.
            place.entries = missing_entries.filter(|_| is_one);
            let shared = matches!(self.sst.owner, FileOwner::Sections(_) | FileOwner::Shared);
            let user_key = |key: Vec<u8>| match split_partition_key(&key) {
                Some((partition, user_key)) if shared => (Some(partition), user_key.to_vec()),
                _ => (None, key),
            };
            if let Some((partition, key)) = damage.after.map(user_key) {
                let name = partition.map(|id| self.salvage.sink.name(Owner::Partition(id)));
                (place.partition, place.lower) = (name.or(place.partition), Some(key));
            }
            if let Some((_, key)) = damage.before.map(user_key) {
                place.upper = Some(key);
            }
            self.salvage.report.damage(place);
            if is_one {
                missing_entries = None;
            }
        }
        if let Some(entries) = missing_entries {
            let message = format!("{entries} entries that the manifest counts were not found in the file");
            let place = missing(self.path, &message);
            self.salvage.report.damage(DamagedPlace {
                entries: Some(entries),
                ..self.sst.lost(place, &mut self.salvage.sink)
            });
        }
    }
}
