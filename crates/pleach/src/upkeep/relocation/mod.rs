//! Relocation: values that are left of files with much garbage are moved to new files, and the old files are removed.
//!
//! A pass begins when the files of separated values exceed [`Options::space_target`](crate::Options::space_target). It *marks*
//! what is live by a merge of all runs that writes nothing (`marking`), chooses files (`choosing`, `picker::value_files`), and
//! moves their live values, some files at a time (`moving`). One edit says for each segment that its values are in the new file.
//!
//! A pass also begins behind many deletes or a dropped partition (`deletes`). It cleans all files with a large share of garbage,
//! whatever the target is.
//!
//! # Why nothing can come back, and nothing is lost
//! 1. *No key is written*: neither pointers nor tombstones change. What a reader finds under a key is decided by SSTs alone.
//! 2. *All that is visible is moved.* The marking sees a version. Later versions can have no other pointers to its segments:
//!    compactions copy pointers, or point to values that they have copied to segments of their own; and a flush points to the
//!    segments of its memtable, which are newer. So the newest entries of
//!    later versions that point to these segments are among those that were marked.
//! 3. *Hidden pointers dangle*, and are never followed: what hides an entry is removed only together with it, or merged with it.
//! 4. *Snapshots* hold the old files by their versions.
//! 5. *Crash before the edit*: the new file is a leftover, which the next open removes. *After it*: the new file and its name
//!    were synced before. The old file goes when no version has it.
//!
//! # Damage
//! A file that is damaged, or that cannot be read, is left as it is until the next open, and this is told once. Its garbage
//! counts neither for relocation nor for the charge of writers: nothing can be done about it.
//!
//! # Cost
//! Marking reads all SSTs. Moving reads and writes the live values of the files that are chosen.
//!
//! # Origin
//! The garbage collection of `LearnedKV`, section 4.3, segment by segment instead of all at once (docs/design/0014).

mod choosing;
mod deletes;
mod marking;
mod moving;
mod space;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Error, ErrorKind, FileId, Job, JobStep, JobWaker, Result};
use pleach_log::segment_path;

use super::{QUIET_AFTER, Upkeep};
use crate::file_names::values_path;
use crate::keys::PartitionId;
use crate::picker::value_files::{ValueFileState, ValueSpace, is_worth_reading};
use crate::trace;
use crate::version::Version;
use deletes::{DeletesDue, NotedDeletes};
use marking::Places;
use space::{hidden_estimate, marked_bytes, moved_len, ratio, scaled, space_of, states_of};

/// Writers are charged when files exceed their space by a memtable, at most so many bytes: a flush adds that at once, and
/// relocation needs a while to take it away again. They nearly stop at [`DEBT_HARD`] times as much more. Arbitrary.
const DEBT_SOFT_MAX: u64 = 32 << 20;
/// See [`DEBT_SOFT_MAX`].
const DEBT_HARD: u64 = 3;

/// A marking for the target chooses files that free this part of the live values, 10 %. Each marking is used until as much has
/// been written. It reads all SSTs, so it should serve for long; but values that die after it are moved all the same.
const USED_PART: u64 = 10;

/// If nothing could be freed, the next try waits until this part of all files, SSTs included, is wanted in addition: 2 %.
/// Arbitrary.
const PUT_OFF_PART: u64 = 50;

/// State of relocation that threads share with the job.
#[derive(Default)]
pub(crate) struct RelocationState {
    /// Whether a pass is under way.
    is_busy: bool,
    /// After a marking or a move that could free nothing: the excess of space above which the next one is tried.
    retry_above: u64,
    /// After one that found no room on the disk: the room above which the next one is tried, whatever the excess is.
    room_awaited: Option<u64>,
    /// Space that conversions of partitions want to be freed below the target.
    wanted: BTreeMap<PartitionId, u64>,
    /// Whether more is wanted since the last look.
    is_asked: bool,
    /// By how much the estimate of hidden values was off when they were last counted.
    hidden_factor: Option<f64>,
    /// Files that are damaged or cannot be read. They are not cleaned: they stay, so that readers of their values learn of it.
    damaged: BTreeSet<FileId>,
    deletes: NotedDeletes,
    /// Live bytes of files when they were last counted, as they would take them in a new file.
    counted: BTreeMap<FileId, u64>,
}

impl RelocationState {
    /// Space that all conversions want.
    fn wanted(&self) -> u64 {
        self.wanted.values().copied().fold(0, u64::saturating_add)
    }

    /// The next pass is tried at any excess: something was freed, more is wanted, or there is room again.
    fn end_putting_off(&mut self) {
        (self.retry_above, self.room_awaited) = (0, None);
    }

    /// The states of all files of values. Of what was not counted, a share of `live_share` is taken for live.
    fn states_of(&self, version: &Version, live_share: f64) -> Vec<ValueFileState> {
        states_of(version, |home, used| {
            let even = scaled(moved_len(used), live_share).min(home.len);
            self.counted.get(&home.file).map_or(even, |counted| (*counted).min(moved_len(used)))
        })
    }
}

/// Why a pass is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The space target, or conversions that want room.
    Target,
    /// Much was deleted.
    Deletes,
}

/// The job. There is none if the store neither has nor makes separated values.
pub(super) struct Relocator {
    upkeep: Arc<Upkeep>,
    /// Files that the last marking has found worth cleaning, and that have not been cleaned. They are cleaned when a pass is due,
    /// as long as the marking is not too old.
    victims: VecDeque<Victim>,
    /// What they were chosen for, and whether they are all files that were wanted then.
    chosen_for: Reason,
    is_all: bool,
    /// Bytes written when that marking began, and those up to which it is used.
    marked_at: u64,
    used_until: u64,
    /// Bytes freed since the last marking.
    freed: u64,
    /// Partitions that are converted instead, with [`Conversion::Always`](crate::Conversion::Always).
    converting: Vec<PartitionId>,
}

/// A file to be cleaned.
struct Victim {
    file: FileId,
    len: u64,
    /// All segments whose values are in it, with the places of the live ones.
    segments: Vec<(FileId, Places)>,
}

impl Relocator {
    pub(super) fn new(upkeep: &Arc<Upkeep>) -> Self {
        // A store that is opened with a lower target is cleaned although nothing has been written.
        let (victims, marked_at, used_until, freed) = (VecDeque::new(), u64::MAX, 0, 0);
        let (upkeep, chosen_for, is_all) = (Arc::clone(upkeep), Reason::Target, true);
        Self { upkeep, victims, chosen_for, is_all, marked_at, used_until, freed, converting: Vec::new() }
    }

    /// Cleans some files, or marks and chooses. Returns whether there may be more to do.
    fn try_step(&mut self) -> Result<bool> {
        let version = self.upkeep.measure_value_debt();
        let counters = &self.upkeep.ctx.counters;
        let of_log = self.upkeep.version_set.state.shown().log_bytes();
        // Both leave garbage behind.
        let written = of_log + counters.value_converted_bytes.load(Ordering::Relaxed);
        if written > self.used_until {
            self.victims.clear();
        }
        let Some(reason) = self.upkeep.relocation_due(&version) else {
            if let DeletesDue::NotWorth(noted) = self.upkeep.deletes_due(&version) {
                self.upkeep.pass_over_deletes(noted);
            }
            self.converting.clear();
            let (was_busy, was_asked) = {
                let mut state = self.upkeep.relocation.lock();
                (std::mem::take(&mut state.is_busy), std::mem::take(&mut state.is_asked))
            };
            if was_busy || was_asked {
                // Only then: threads that wait wake the jobs whenever they are notified. Conversions may wait for room.
                self.upkeep.note_progress();
            }
            return Ok(false);
        };
        let is_asked = {
            let mut state = self.upkeep.relocation.lock();
            state.is_busy = true;
            std::mem::take(&mut state.is_asked)
        };
        if self.upkeep.ctx.options.always_converts() {
            return Ok(self.convert_all(&version));
        }
        if reason == Reason::Deletes {
            return self.step_for_deletes(&version, written);
        }
        if self.victims.is_empty() {
            if self.marked_at == written && self.freed == 0 && !is_asked {
                // Nothing was written and nothing could be freed since the last marking.
                self.upkeep.put_off_relocation();
                return Ok(true);
            }
            self.mark(&version, reason, written)?;
            self.marked_at = written;
            if self.victims.is_empty() {
                self.upkeep.put_off_relocation();
            }
            return Ok(true);
        }
        match self.move_some()? {
            Some(0) => self.put_off(),
            Some(_) => self.upkeep.relocation.lock().end_putting_off(),
            None => {}
        }
        Ok(true)
    }

    /// Puts off what a move could not free. If there was no room for any file, until the smallest one has room.
    fn put_off(&self) {
        self.upkeep.put_off_relocation();
        let needed = self.victims.iter().map(Victim::moved_len).min().unwrap_or(0);
        if needed > self.upkeep.room_for_moves() {
            self.upkeep.relocation.lock().room_awaited = Some(needed - 1);
        }
    }

    /// Cleans some of the files that deletes have left, or marks and chooses them. What fails is left to the target.
    fn step_for_deletes(&mut self, version: &Arc<Version>, written: u64) -> Result<bool> {
        if self.chosen_for != Reason::Deletes {
            self.victims.clear();
        }
        let done = if self.victims.is_empty() {
            self.upkeep.begin_deletes();
            self.mark(version, Reason::Deletes, written).map(|()| self.victims.is_empty())
        } else {
            let is_enough = |relocator: &Self| {
                relocator.is_all || !is_worth_reading(relocator.freed, marked_bytes(version))
            };
            // Behind a damaged file the others are marked again.
            self.move_some().map(|freed| {
                freed == Some(0) || freed.is_some() && self.victims.is_empty() && is_enough(self)
            })
        };
        let is_harmless =
            |error: &Error| error.kind() != ErrorKind::Closed && self.upkeep.ctx.status.poison().is_none();
        let is_done = match done {
            Err(error) if is_harmless(&error) => {
                trace::cleaning_failed(&error);
                self.victims.clear();
                true
            }
            done => done?,
        };
        if is_done {
            self.upkeep.end_deletes();
        }
        Ok(true)
    }

    /// Marks, and chooses files to clean.
    fn mark(&mut self, version: &Arc<Version>, reason: Reason, written: u64) -> Result<()> {
        let chosen = self.upkeep.choose_victims(version, reason)?;
        (self.victims, self.is_all, self.chosen_for) = (chosen.victims, chosen.is_all, reason);
        // Little may be left behind deletes, so that it would be written before the marking ends.
        let used_min = match reason {
            Reason::Target => 0,
            Reason::Deletes => self.upkeep.ctx.options.memtable_budget() as u64,
        };
        let used_until = written + (chosen.live / USED_PART).max(used_min);
        (self.marked_at, self.used_until, self.freed) = (u64::MAX, used_until, 0);
        Ok(())
    }

    /// Cleans some of the files that were chosen. Returns the bytes that this has freed; `None` if one of them is damaged.
    fn move_some(&mut self) -> Result<Option<u64>> {
        match self.upkeep.move_some(&mut self.victims) {
            Err(error) if self.upkeep.is_of_damaged(&error) => {
                // The file is left out from now on. The next marking chooses others.
                self.victims.clear();
                self.marked_at = u64::MAX;
                Ok(None)
            }
            freed => {
                let freed = freed?;
                self.freed += freed;
                Ok(Some(freed))
            }
        }
    }

    /// Requests that all partitions are converted, or looks whether they have been. Returns whether there may be more to do.
    fn convert_all(&mut self, version: &Version) -> bool {
        let mut background = self.upkeep.background.lock();
        if self.converting.is_empty() {
            let partitions = version.partitions();
            let with_values =
                partitions.filter(|(_, state)| state.tree.sum(|run| run.totals.value_bytes) > 0);
            self.converting = with_values.map(|(id, _)| id).collect();
            self.converting.iter().for_each(|id| background.to_compact.insert(*id, true));
            drop(background);
            self.upkeep.ctx.status.wake_jobs();
            return false;
        }
        if self.converting.iter().any(|id| background.to_compact.contains(*id)) {
            return false;
        }
        drop(background);
        self.converting.clear();
        // What is left, such as files that snapshots pin, is looked at again when there is more.
        self.upkeep.put_off_relocation();
        true
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
                let version = Arc::clone(&self.upkeep.version_set.state.load().version);
                match self.upkeep.deletes_due(&version) {
                    DeletesDue::Nothing => JobStep::Idle,
                    _ => JobStep::IdleFor(QUIET_AFTER),
                }
            }
            Err(error) => {
                self.victims.clear();
                self.upkeep.relocation.lock().is_busy = false;
                let is_shortage = error.is_shortage();
                let next = self.upkeep.background_failed(error);
                if is_shortage && next == JobStep::Idle {
                    // Otherwise each wake would mark and copy again, and meet the same shortage.
                    self.upkeep.put_off_relocation();
                    let more = self.upkeep.room_for_moves().saturating_add(self.upkeep.writes.moved_bytes());
                    self.upkeep.relocation.lock().room_awaited = Some(more);
                    // Conversions that wait for what this pass was to free give up.
                    if let Some(wakers) = self.upkeep.ctx.status.wakers() {
                        wakers.compaction.iter().for_each(JobWaker::wake);
                    }
                }
                next
            }
        }
    }

    fn gives_way(&self) -> bool {
        // Writers that make garbage faster than it is taken away are charged.
        true
    }
}

impl Upkeep {
    /// Whether no pass is under way or due.
    pub(super) fn is_relocation_settled(&self, version: &Version) -> bool {
        !self.relocation.lock().is_busy && self.relocation_due(version).is_none()
    }

    fn relocation_due(&self, version: &Version) -> Option<Reason> {
        if version.values.is_empty() {
            return None;
        }
        let excess = self.wanted_space(version);
        let room_awaited = self.relocation.lock().room_awaited;
        let has_room = room_awaited.is_some_and(|awaited| self.room_for_moves() > awaited);
        let mut state = self.relocation.lock();
        if excess == 0 || has_room {
            state.end_putting_off();
        }
        if excess > state.retry_above {
            return Some(Reason::Target);
        }
        drop(state);
        (self.deletes_due(version) == DeletesDue::Clean).then_some(Reason::Deletes)
    }

    /// Bytes to be freed: those above the target, and those that conversions want.
    fn wanted_space(&self, version: &Version) -> u64 {
        self.cleanable_space(version).excess(self.ctx.options.relocation_target())
    }

    /// Has `bytes` freed below the target for the conversion of a partition, as far as there is garbage; 0 ends that.
    pub(super) fn want_space(&self, partition: PartitionId, bytes: u64) {
        let mut state = self.relocation.lock();
        if bytes > 0 {
            state.wanted.insert(partition, bytes);
        } else {
            state.wanted.remove(&partition);
        }
        // A pass that has found no room on the disk would find none now. Conversions that give up must not make it try again.
        if bytes > 0 || state.room_awaited.is_none() {
            state.end_putting_off();
        }
        state.is_asked |= bytes > 0;
        drop(state);
        if let Some(relocator) = self.ctx.status.wakers().and_then(|wakers| wakers.relocator.as_ref()) {
            relocator.wake();
        }
    }

    /// Space that all conversions want.
    #[cfg(test)]
    pub(super) fn wanted_for_conversions(&self) -> u64 {
        self.relocation.lock().wanted()
    }

    /// What separated values take, with an estimate of what newer entries hide.
    pub(super) fn estimated_space(&self, version: &Version) -> ValueSpace {
        let factor = self.relocation.lock().hidden_factor.unwrap_or(1.0);
        space_of(version, scaled(hidden_estimate(version), factor))
    }

    /// The same, without the garbage of files that cannot be cleaned, and with what conversions want.
    fn cleanable_space(&self, version: &Version) -> ValueSpace {
        let mut space = self.estimated_space(version);
        let state = self.relocation.lock();
        space.wanted = state.wanted();
        if !state.damaged.is_empty() {
            let files = state.states_of(version, 1.0);
            let damaged = files.iter().filter(|file| state.damaged.contains(&file.file));
            let garbage = damaged.map(ValueFileState::garbage).fold(0, u64::saturating_add);
            space.files = space.files.saturating_sub(garbage);
        }
        space
    }

    /// Notes that a file of values is damaged or cannot be read, and tells it once.
    pub(super) fn note_damaged(&self, file: FileId, error: &Error) {
        if self.relocation.lock().damaged.insert(file) {
            trace::value_file_damaged(error);
        }
    }

    /// Whether the error is that of a file that is known to be damaged.
    fn is_of_damaged(&self, error: &Error) -> bool {
        let dir = &self.ctx.dir;
        let is_it = |file| {
            error.path().is_some_and(|path| path == segment_path(dir, file) || path == values_path(dir, file))
        };
        !error.is_shortage() && self.relocation.lock().damaged.iter().any(|file| is_it(*file))
    }

    /// Those of a version's files of values that are known to be damaged, or cannot be read.
    pub(crate) fn damaged_value_files(&self, version: &Version) -> usize {
        let state = self.relocation.lock();
        if state.damaged.is_empty() {
            return 0;
        }
        version.values.homes().keys().filter(|file| state.damaged.contains(file)).count()
    }

    /// Measures by how much separated values exceed their space, for the charge of writers. Returns the newest version.
    ///
    /// Garbage counts only if relocation can free it: neither that of SSTs, nor what the last try could not free.
    fn measure_value_debt(&self) -> Arc<Version> {
        let version = Arc::clone(&self.version_set.state.load().version);
        let excess = if version.values.is_empty() { 0 } else { self.charged_space(&version) };
        let soft = (self.ctx.options.memtable_budget() as u64).min(DEBT_SOFT_MAX);
        let debt = ratio(excess.saturating_sub(soft), DEBT_HARD * soft).min(1.0);
        self.ctx.value_debt.store(debt.to_bits(), Ordering::Relaxed);
        self.writes.measure_pressure();
        version
    }

    /// Bytes above the target that relocation is to free. Conversions wait for what they want, and writers do not.
    fn charged_space(&self, version: &Version) -> u64 {
        let (space, target) = (self.cleanable_space(version), self.ctx.options.relocation_target());
        let space = ValueSpace { wanted: 0, ..space };
        if self.ctx.options.always_converts() {
            // A second copy, while everything is converted.
            return space.excess(target + 1.0);
        }
        space.excess(target).saturating_sub(self.relocation.lock().retry_above)
    }

    /// Puts off relocation until more space is wanted: nothing could be freed.
    fn put_off_relocation(&self) {
        let version = Arc::clone(&self.version_set.state.load().version);
        let space = self.cleanable_space(&version);
        let step = space.files.saturating_add(space.ssts) / PUT_OFF_PART;
        let excess = space.excess(self.ctx.options.relocation_target());
        self.relocation.lock().retry_above = excess + step.max(1);
    }
}

#[cfg(test)]
mod tests;
