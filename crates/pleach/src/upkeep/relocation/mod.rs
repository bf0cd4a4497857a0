//! Relocation: values that are left of files with much garbage are moved to new files, and the old files are removed.
//!
//! A pass begins when the files of separated values exceed [`Options::space_target`](crate::Options::space_target). It *marks*
//! what is live by a merge of all runs that writes nothing (`marking`), chooses files (`picker::value_files`), and moves their
//! live values, some files at a time (`moving`). One edit says for each segment that its values are in the new file.
//!
//! # Why nothing can come back, and nothing is lost
//! 1. *No key is written*: neither pointers nor tombstones change. What a reader finds under a key is decided by SSTs alone.
//! 2. *All that is visible is moved.* The marking sees a version. Later versions can have no other pointers to its segments:
//!    compactions copy pointers, and a flush points to the segments of its memtable, which are newer. So the newest entries of
//!    later versions that point to these segments are among those that were marked.
//! 3. *Hidden pointers dangle*, and are never followed: what hides an entry is removed only together with it, or merged with it.
//! 4. *Snapshots* hold the old files by their versions.
//! 5. *Crash before the edit*: the new file is a leftover, which the next open removes. *After it*: the new file and its name
//!    were synced before. The old file goes when no version has it.
//!
//! # Cost
//! Marking reads all SSTs. Moving reads and writes the live values of the files that are chosen.
//!
//! # Origin
//! The garbage collection of `LearnedKV`, section 4.3, segment by segment instead of all at once (docs/design/0014).

mod marking;
mod moving;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pleach_env::{FileId, Job, JobStep, Result};

use super::Upkeep;
use crate::picker::value_files::{ValueFileState, ValueSpace, first_that_free, rank};
use crate::values::{SegmentUse, ValueHome};
use crate::version::{Run, SubTree, Version};
use marking::{Marked, Places, mark};

/// Values whose places a pass remembers, at most: 8 bytes each.
const PLACES_MAX: u64 = 1 << 20;

/// A pass looks at files that seem to free so many times what is wanted, because only the marking says what they really free.
const LOOKED_AT: u64 = 3;

/// A pass that frees less than this part of what was wanted is not repeated at once. So each repeated pass makes the files
/// shorter, and passes end. Arbitrary.
const FREED_PART: u64 = 4;

/// A pass frees this part of the live values more than it must, so that not every flush makes one due. Arbitrary: 2 %.
const SLACK_PART: u64 = 50;

/// State of relocation that threads share with the job.
#[derive(Default)]
pub(crate) struct RelocationState {
    /// Whether a pass is under way.
    is_busy: bool,
    /// After a pass that has freed little: the length of all files of values from which on another one is tried.
    retry_at: u64,
    /// By how much the estimate of hidden values was off when they were last counted.
    hidden_factor: Option<f64>,
}

/// The job. There is none if the store neither has nor makes separated values.
pub(super) struct Relocator {
    upkeep: Arc<Upkeep>,
    /// Files that are still to be cleaned in this pass.
    victims: VecDeque<Victim>,
    /// Bytes that this pass was to free, and those that it has freed so far.
    wanted: u64,
    freed: u64,
}

/// A file to be cleaned.
struct Victim {
    home: Arc<ValueHome>,
    /// All segments whose values are in it, with the places of the live ones.
    segments: Vec<(FileId, Places)>,
}

impl Relocator {
    pub(super) fn new(upkeep: &Arc<Upkeep>) -> Self {
        Self { upkeep: Arc::clone(upkeep), victims: VecDeque::new(), wanted: 0, freed: 0 }
    }

    /// Marks and chooses, or cleans some files. Returns whether there may be more to do.
    fn try_step(&mut self) -> Result<bool> {
        if !self.victims.is_empty() {
            self.freed += self.upkeep.move_some(&mut self.victims)?;
            if self.victims.is_empty() && self.freed < (self.wanted / FREED_PART).max(1) {
                self.upkeep.put_off_relocation();
            }
            return Ok(true);
        }
        let version = Arc::clone(&self.upkeep.version_set.state.load().version);
        if !self.upkeep.is_relocation_due(&version) {
            self.upkeep.relocation.lock().is_busy = false;
            return Ok(false);
        }
        self.upkeep.relocation.lock().is_busy = true;
        (self.victims, self.wanted) = self.upkeep.choose_victims(&version)?;
        self.freed = 0;
        if self.victims.is_empty() {
            self.upkeep.put_off_relocation();
        }
        Ok(true)
    }
}

impl Job for Relocator {
    fn step(&mut self) -> JobStep {
        if self.upkeep.ctx.status.poison().is_some() || self.upkeep.ctx.status.is_closed() {
            return JobStep::Idle;
        }
        match self.try_step() {
            Ok(true) => {
                self.upkeep.note_progress();
                JobStep::Again
            }
            Ok(false) => {
                self.upkeep.ctx.status.notify();
                JobStep::Idle
            }
            Err(error) => {
                self.victims.clear();
                self.upkeep.relocation.lock().is_busy = false;
                self.upkeep.background_failed(error)
            }
        }
    }
}

impl Upkeep {
    /// Whether no pass is under way or due.
    pub(super) fn is_relocation_settled(&self, version: &Version) -> bool {
        !self.relocation.lock().is_busy && !self.is_relocation_due(version)
    }

    fn is_relocation_due(&self, version: &Version) -> bool {
        if version.values.is_empty() {
            return false;
        }
        let (retry_at, factor) = {
            let state = self.relocation.lock();
            (state.retry_at, state.hidden_factor.unwrap_or(1.0))
        };
        let hidden = scaled(hidden_estimate(version), factor);
        let space = space_of(version, hidden);
        space.files >= retry_at && space.excess(self.ctx.options.space_target_now()) > 0
    }

    /// Puts off the next pass until the files of values have grown: the last one has freed little.
    fn put_off_relocation(&self) {
        let files = space_of(&self.version_set.state.load().version, 0).files;
        self.relocation.lock().retry_at = files + (files / SLACK_PART).max(1);
    }

    /// Marks, and chooses the files of a pass. Returns also how many bytes they are to free.
    fn choose_victims(&self, version: &Arc<Version>) -> Result<(VecDeque<Victim>, u64)> {
        let target = self.ctx.options.space_target_now();
        let estimate = hidden_estimate(version);
        let space = space_of(version, estimate);
        let wanted = space.excess(target).max(1) + space.live / SLACK_PART;
        let candidates = self.candidates(version, &space, wanted);
        let marked = mark(self, version, &candidates)?;
        let live = marked.live.values().map(|used| used.bytes).fold(0, u64::saturating_add);
        let references = sum_of_references(version);
        let exact = ValueSpace { live, ..space };
        let excess = exact.excess(target);
        self.relocation.lock().hidden_factor = Some(ratio(references.saturating_sub(live), estimate));
        let wanted = if excess > 0 { excess + live / SLACK_PART } else { 0 };
        Ok((victims_of(version, marked, target, wanted), wanted))
    }

    /// The segments that a pass looks at closely: those of the files that seem best.
    fn candidates(&self, version: &Version, space: &ValueSpace, wanted: u64) -> BTreeSet<FileId> {
        let references = sum_of_references(version);
        // Hidden values are taken to be spread evenly.
        let live_share = ratio(space.live, references).min(1.0);
        let files = states_of(version, |home, used| scaled(moved_len(used), live_share).min(home.len));
        let ranked = rank(&files, self.ctx.options.space_target_now(), FileId(version.next_id));
        let chosen = first_that_free(&ranked, wanted.saturating_mul(LOOKED_AT));
        let (mut segments, mut values) = (BTreeSet::new(), 0);
        let homes: BTreeSet<_> = chosen.iter().map(|file| file.file).collect();
        for segment in version.values.iter().filter(|segment| homes.contains(&segment.home.file)) {
            values += segment.live.values;
            if values > PLACES_MAX && !segments.is_empty() {
                break;
            }
            segments.insert(segment.id);
        }
        segments
    }
}

/// The files to clean, the best first: those that free `wanted` bytes, of the files whose segments were all looked at.
fn victims_of(version: &Version, mut marked: Marked, target: f64, wanted: u64) -> VecDeque<Victim> {
    let mut by_home: BTreeMap<FileId, Vec<FileId>> = BTreeMap::new();
    for segment in version.values.iter() {
        by_home.entry(segment.home.file).or_default().push(segment.id);
    }
    by_home.retain(|_, segments| segments.iter().all(|segment| marked.places.contains_key(segment)));
    let homes = version.values.homes();
    let live_in = |file: FileId| {
        let segments = by_home.get(&file).into_iter().flatten();
        let mut sum = SegmentUse::default();
        for used in segments.filter_map(|segment| marked.live.get(segment)) {
            sum.values += used.values;
            sum.bytes += used.bytes;
        }
        moved_len(sum)
    };
    let mut files = states_of(version, |home, _| live_in(home.file));
    files.retain(|file| by_home.contains_key(&file.file));
    let ranked = rank(&files, target, FileId(version.next_id));
    let mut victims = VecDeque::new();
    for file in first_that_free(&ranked, wanted) {
        let (Some((home, _)), Some(segments)) = (homes.get(&file.file), by_home.get(&file.file)) else {
            continue;
        };
        let segments =
            segments.iter().map(|id| (*id, marked.places.remove(id).unwrap_or_default())).collect();
        victims.push_back(Victim { home: Arc::clone(home), segments });
    }
    victims
}

/// The states of all files of values, with `live` bytes.
fn states_of(version: &Version, live: impl Fn(&ValueHome, SegmentUse) -> u64) -> Vec<ValueFileState> {
    let mut newest: BTreeMap<FileId, FileId> = BTreeMap::new();
    for segment in version.values.iter() {
        let newest = newest.entry(segment.home.file).or_insert(segment.id);
        *newest = (*newest).max(segment.id);
    }
    let state = |(file, (home, used)): (FileId, (Arc<ValueHome>, SegmentUse))| ValueFileState {
        file,
        len: home.len,
        live: live(&home, used),
        newest: newest.get(&file).copied().unwrap_or(file),
    };
    version.values.homes().into_iter().map(state).collect()
}

/// About the bytes that values take in a file of moved values: with the heads of entries, and the table.
fn moved_len(used: SegmentUse) -> u64 {
    const HEAD: u64 = 5;
    const FILE: u64 = 100;
    if used.values == 0 { 0 } else { used.bytes + HEAD * used.values + FILE }
}

/// Bytes of all values to which entries refer, hidden ones too.
fn sum_of_references(version: &Version) -> u64 {
    version.values.iter().map(|segment| segment.live.bytes).fold(0, u64::saturating_add)
}

/// About the bytes of values whose entries are hidden by newer ones: in each partition as large a share as of its entries.
fn hidden_estimate(version: &Version) -> u64 {
    let hidden = |tree: &SubTree| {
        let entries = tree.sum(|run| run.totals.entries);
        let overwrites = tree.sum(|run| run.totals.overwrites).min(entries);
        let values = tree.sum(|run| run.totals.value_bytes);
        scaled(values, ratio(overwrites, entries))
    };
    version.partitions().map(|(_, partition)| hidden(&partition.tree)).fold(0, u64::saturating_add)
}

fn space_of(version: &Version, hidden: u64) -> ValueSpace {
    let ssts = |run: &Run| run.totals.bytes;
    ValueSpace {
        files: version.values.homes().values().map(|(home, _)| home.len).fold(0, u64::saturating_add),
        ssts: version.partitions().map(|(_, partition)| partition.tree.sum(ssts)).sum(),
        live: sum_of_references(version).saturating_sub(hidden),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { part as f64 / of as f64 }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, not below 0"
)]
fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor.max(0.0)) as u64
}

#[cfg(test)]
mod tests;
