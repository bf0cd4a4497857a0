//! Choosing: which files a pass cleans, by a marking of what is live.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pleach_env::{FileId, Result};

use super::marking::{Marked, mark};
use super::space::{hidden_estimate, moved_len, ratio, states_of, sum_of_references};
use super::{Reason, USED_PART, Victim};
use crate::picker::value_files::{
    DELETED_SHARE_MIN, ValueFileState, ValueSpace, first_that_free, garbage_share_min, rank,
};
use crate::upkeep::Upkeep;
use crate::values::{LiveSegment, SegmentUse};
use crate::version::Version;

/// Values whose places a pass remembers, 8 bytes each, and values that are moved to one file. A file with more is cleaned alone.
pub(super) const PLACES_MAX: u64 = 1 << 20;

/// A pass looks at files that seem to free so many times what is wanted, because only the marking says what they really free.
const LOOKED_AT: u64 = 3;

/// Least and largest factor by which the estimate of hidden values is corrected (arbitrary). With a factor of 0 no excess would
/// be seen until merges have removed hidden entries, so no marking would correct the factor.
const HIDDEN_FACTOR_MIN: f64 = 0.1;
const HIDDEN_FACTOR_MAX: f64 = 10.0;

/// The files that a marking has chosen.
pub(super) struct Chosen {
    pub(super) victims: VecDeque<Victim>,
    /// Whether they are all files that were wanted: for deletes, all that are worth cleaning.
    pub(super) is_all: bool,
    /// Bytes of live values.
    pub(super) live: u64,
}

impl Upkeep {
    /// Marks, and chooses files to clean.
    pub(super) fn choose_victims(&self, version: &Arc<Version>, reason: Reason) -> Result<Chosen> {
        let target = self.ctx.options.relocation_target();
        let share_min = match reason {
            Reason::Target => garbage_share_min(target),
            Reason::Deletes => DELETED_SHARE_MIN,
        };
        let space = self.cleanable_space(version);
        let wanted_of = |excess: u64, live: u64| match reason {
            Reason::Target => excess.max(live / USED_PART),
            Reason::Deletes => u64::MAX,
        };
        let wanted = wanted_of(space.excess(target), space.live).max(1);
        let mut marked = mark(self, version, &self.candidates(version, &space, share_min, wanted))?;
        let live = marked.live.values().map(|used| used.bytes).fold(0, u64::saturating_add);
        let excess = ValueSpace { live, ..space }.excess(target);
        let is_wanted = excess > 0 || reason == Reason::Deletes;
        let wanted = if is_wanted { wanted_of(excess, live) } else { 0 };
        let files = counted_states(version, &marked);
        self.note_counts(version, live, &files);
        let mut ranked = rank(&files, share_min, FileId(version.next_id));
        self.leave_damaged(&mut ranked);
        let mut best = first_that_free(&ranked, wanted).to_vec();
        let segments = segments_in(version, &best, PLACES_MAX);
        // Values of about the same age come into the same file, because they die at about the same pace.
        best.sort_by_key(|file| file.newest);
        let best = &best[..];
        let mut victims = victims_of(version, best, &mut marked);
        let freed: u64 = best.iter().filter(|f| has(&victims, f.file)).map(ValueFileState::garbage).sum();
        let is_enough = if reason == Reason::Deletes { !victims.is_empty() } else { freed >= wanted };
        if !is_enough && garbage_in(version, best, &segments) > freed {
            // Other files are better than those that were looked at.
            victims.clear();
            drop(marked);
            marked = mark(self, version, &segments)?;
            victims = victims_of(version, best, &mut marked);
        }
        Ok(Chosen { is_all: victims.len() == best.len(), victims, live })
    }

    /// Leaves out files that are known to be damaged.
    fn leave_damaged(&self, files: &mut Vec<ValueFileState>) {
        let state = self.relocation.lock();
        files.retain(|file| !state.damaged.contains(&file.file));
    }

    /// Remembers what a marking has counted, to choose better next time.
    fn note_counts(&self, version: &Version, live: u64, files: &[ValueFileState]) {
        let hidden = sum_of_references(version).saturating_sub(live);
        let factor = ratio(hidden, hidden_estimate(version)).clamp(HIDDEN_FACTOR_MIN, HIDDEN_FACTOR_MAX);
        let mut state = self.relocation.lock();
        state.hidden_factor = Some(factor);
        state.counted = files.iter().map(|file| (file.file, file.live)).collect();
    }

    /// The segments that a pass looks at closely: those of the files that seem best.
    fn candidates(
        &self,
        version: &Version,
        space: &ValueSpace,
        share_min: f64,
        wanted: u64,
    ) -> BTreeSet<FileId> {
        // Hidden values are taken to be spread evenly, but for what was counted.
        let live_share = ratio(space.live, sum_of_references(version)).min(1.0);
        let files = self.relocation.lock().states_of(version, live_share);
        let mut ranked = rank(&files, share_min, FileId(version.next_id));
        self.leave_damaged(&mut ranked);
        segments_in(version, first_that_free(&ranked, wanted.saturating_mul(LOOKED_AT)), PLACES_MAX)
    }
}

/// The segments whose values each file has.
fn by_home(version: &Version) -> BTreeMap<FileId, Vec<&LiveSegment>> {
    let mut by_home: BTreeMap<FileId, Vec<&LiveSegment>> = BTreeMap::new();
    for segment in version.values.iter() {
        by_home.entry(segment.home.file).or_default().push(segment);
    }
    by_home
}

/// The segments whose values are in the first of `files`: all those of a file or none, because only then it can be cleaned. The
/// files have `values_max` values together, or there is only one.
pub(super) fn segments_in(version: &Version, files: &[ValueFileState], values_max: u64) -> BTreeSet<FileId> {
    let by_home = by_home(version);
    let (mut segments, mut values) = (BTreeSet::new(), 0);
    for of_file in files.iter().filter_map(|file| by_home.get(&file.file)) {
        values += of_file.iter().map(|segment| segment.live.values).sum::<u64>();
        if values > values_max && !segments.is_empty() {
            break;
        }
        segments.extend(of_file.iter().map(|segment| segment.id));
    }
    segments
}

/// The garbage of those of `files` whose values are all in `segments`.
fn garbage_in(version: &Version, files: &[ValueFileState], segments: &BTreeSet<FileId>) -> u64 {
    let by_home = by_home(version);
    let is_in = |file: &&ValueFileState| {
        let of_file = by_home.get(&file.file);
        of_file.is_some_and(|of_file| of_file.iter().all(|segment| segments.contains(&segment.id)))
    };
    files.iter().filter(is_in).map(ValueFileState::garbage).sum()
}

/// The states of all files of values, by what a marking has counted.
fn counted_states(version: &Version, marked: &Marked) -> Vec<ValueFileState> {
    let mut live: BTreeMap<FileId, SegmentUse> = BTreeMap::new();
    for segment in version.values.iter() {
        let sum = live.entry(segment.home.file).or_default();
        let used = marked.live.get(&segment.id).copied().unwrap_or_default();
        sum.values += used.values;
        sum.bytes += used.bytes;
    }
    states_of(version, |home, _| live.get(&home.file).map_or(0, |used| moved_len(*used)))
}

fn has(victims: &VecDeque<Victim>, file: FileId) -> bool {
    victims.iter().any(|victim| victim.file == file)
}

/// Those of `files` whose segments were all looked at.
pub(super) fn victims_of(
    version: &Version,
    files: &[ValueFileState],
    marked: &mut Marked,
) -> VecDeque<Victim> {
    let mut by_home = by_home(version);
    let mut victims = VecDeque::new();
    for segments in files.iter().filter_map(|file| by_home.remove(&file.file)) {
        let Some(first) = segments.first() else { continue };
        if !segments.iter().all(|segment| marked.places.contains_key(&segment.id)) {
            continue;
        }
        let (file, len) = (first.home.file, first.home.len);
        let mut places = |id: FileId| marked.places.remove(&id).unwrap_or_default();
        let segments = segments.iter().map(|segment| (segment.id, places(segment.id))).collect();
        victims.push_back(Victim { file, len, segments });
    }
    victims
}
