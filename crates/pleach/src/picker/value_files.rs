//! Which files of separated values are cleaned: a pure choice from their lengths, what of them is live, and their ages.
//!
//! A file is cleaned by moving its live values, so the price of the space that it frees is the bytes that are moved. Files with
//! much garbage are cheap. Of two files with as much garbage, the older one comes first: the values in it that are still live
//! have not been overwritten for long, so waiting would not make it much cheaper. The benefit is the share of garbage times the
//! logarithm of the age. In a simulation of overwrites at a space target of 1.3, bytes written for each byte of the user:
//!
//! | benefit | uniform | Zipf 0.99 |
//! |---|---|---|
//! | share | 2.37 | 1.97 |
//! | share * ln(2 + age) | 2.42 | 2.00 |
//! | share * sqrt(age) / (2 - share) | 2.50 | 2.05 |
//! | share * age / (2 - share) (log-structured file systems) | 2.77 | 2.98 |
//!
//! Zipf is over the keys. Draws from more items than there are keys, as YCSB makes them, are flatter, and cost about as much as
//! uniform ones. The table is with markings that serve for a tenth of the data. With a marking for each file the second is the
//! best for Zipf, 1.88 against 2.23 of the first.
//!
//! # Deletes
//! Who deletes much expects the space back. So behind many deletes, files with a large share of garbage are cleaned although the
//! space target is kept ([`DELETED_SHARE_MIN`]).
//!
//! # Origin
//! Cost and benefit of cleaning: Rosenblum and Ousterhout, "The design and implementation of a log-structured file system",
//! section 3.6. `LearnedKV` moves all values at once (section 4.2).

use pleach_env::FileId;

/// A file that may be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueFileState {
    pub(crate) file: FileId,
    pub(crate) len: u64,
    /// Bytes that its live values would take in a new file.
    pub(crate) live: u64,
    /// Number of the newest segment whose values are in it.
    pub(crate) newest: FileId,
}

impl ValueFileState {
    /// Bytes that cleaning it frees.
    pub(crate) fn garbage(&self) -> u64 {
        self.len.saturating_sub(self.live)
    }

    /// What part of it is garbage.
    fn garbage_share(&self) -> f64 {
        as_f64(self.garbage()) / as_f64(self.len.max(1))
    }
}

/// What a store takes for its separated values, and for the SSTs that point to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValueSpace {
    /// Length of all files of values.
    pub(crate) files: u64,
    /// Length of all SSTs, and about what of it is live.
    pub(crate) ssts: u64,
    pub(crate) live_ssts: u64,
    /// Length of the SSTs that a marking reads.
    pub(crate) marked: u64,
    /// Bytes of live values.
    pub(crate) live: u64,
    /// Bytes that conversions want besides.
    pub(crate) wanted: u64,
}

impl ValueSpace {
    /// Bytes that are free below `target` times the live ones.
    pub(crate) fn room(&self, target: f64) -> u64 {
        let allowed = target * as_f64(self.live.saturating_add(self.live_ssts));
        as_u64(allowed - as_f64(self.files.saturating_add(self.ssts)))
    }

    /// Bytes that garbage may take at `target`.
    pub(crate) fn garbage_max(&self, target: f64) -> u64 {
        as_u64((target - 1.0) * as_f64(self.live.saturating_add(self.live_ssts)))
    }

    /// Bytes to be freed in files of values: those that all files take above `target` times the live ones, and those that are
    /// wanted; at most the garbage of files of values, because relocation cannot free that of SSTs. 0 if a marking would read
    /// too much for them.
    pub(crate) fn excess(&self, target: f64) -> u64 {
        let garbage = self.files.saturating_sub(self.live);
        if garbage.saturating_mul(READ_FOR_TARGET) < self.marked {
            return 0;
        }
        let allowed = target * as_f64(self.live.saturating_add(self.live_ssts));
        let taken = self.files.saturating_add(self.ssts).saturating_add(self.wanted);
        as_u64(as_f64(taken) - allowed).min(garbage)
    }
}

/// Bytes of SSTs that may be read for each byte of garbage, for a space target. If SSTs have no garbage, then at the lowest
/// target, 1.1, the garbage of files of values is a tenth of the SSTs or more. So this ratio is above ten.
const READ_FOR_TARGET: u64 = 16;

/// The least share of garbage in a file that is worth cleaning for a space target: half of the mean share at the target.
pub(crate) fn garbage_share_min(target: f64) -> f64 {
    (1.0 - 1.0 / target) / 2.0
}

/// The least share of garbage in a file that is cleaned behind deletes: a third, so at most two bytes are written for each one
/// that is freed (arbitrary).
pub(crate) const DELETED_SHARE_MIN: f64 = 1.0 / 3.0;

/// Bytes of SSTs that may be read for each byte that is freed behind deletes (arbitrary).
const READ_FOR_DELETED: u64 = 8;

/// Whether it is worth to read `ssts` bytes of SSTs to clean the files that deletes have left.
pub(crate) fn is_worth_marking(files: &[ValueFileState], ssts: u64) -> bool {
    let with_much = files.iter().filter(|file| file.garbage_share() >= DELETED_SHARE_MIN);
    is_worth_reading(with_much.map(ValueFileState::garbage).fold(0, u64::saturating_add), ssts)
}

/// Whether it is worth to read `ssts` bytes of SSTs to free `bytes` behind deletes.
pub(crate) fn is_worth_reading(bytes: u64, ssts: u64) -> bool {
    bytes > 0 && bytes.saturating_mul(READ_FOR_DELETED) >= ssts
}

/// The files with at least such a share of garbage, the best first. `now` is a number above those of all files.
pub(crate) fn rank(files: &[ValueFileState], share_min: f64, now: FileId) -> Vec<ValueFileState> {
    let benefit = |file: &ValueFileState| {
        let age = as_f64(now.0.saturating_sub(file.newest.0));
        file.garbage_share() * (2.0 + age).ln()
    };
    let is_worth_it = |file: &&ValueFileState| file.garbage() > 0 && file.garbage_share() >= share_min;
    let mut ranked: Vec<_> = files.iter().filter(is_worth_it).copied().collect();
    ranked.sort_by(|a, b| benefit(b).total_cmp(&benefit(a)).then(a.file.cmp(&b.file)));
    ranked
}

/// The first files of a ranking that free `wanted` bytes together, or all of them.
pub(crate) fn first_that_free(ranked: &[ValueFileState], wanted: u64) -> &[ValueFileState] {
    let mut freed = 0u64;
    let count = ranked.iter().take_while(|file| {
        let is_wanted = freed < wanted;
        freed = freed.saturating_add(file.garbage());
        is_wanted
    });
    &ranked[..count.count()]
}

#[expect(clippy::cast_precision_loss, reason = "sizes to choose by")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not below 0")]
fn as_u64(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: u64, live: u64) -> ValueFileState {
        ValueFileState { file: FileId(id), len: 100, live, newest: FileId(id) }
    }

    #[test]
    fn files_with_much_garbage_come_first_and_old_ones_before_young_ones() {
        let files = [file(1, 95), file(2, 60), file(3, 20), file(90, 60), file(91, 100), file(92, 130)];
        let ranked = |target| rank(&files, garbage_share_min(target), FileId(100));
        let order = |target| -> Vec<_> { ranked(target).iter().map(|file| file.file.0).collect() };
        assert_eq!(order(1.3), [3, 2, 90], "1 has too little garbage");
        assert_eq!(order(1.05), [3, 2, 90, 1]);
        assert_eq!(order(4.0), [3, 2, 90]);
        let ranked = ranked(1.3);
        let chosen = |wanted| first_that_free(&ranked, wanted).len();
        assert_eq!([0, 1, 80, 81, 120, 121, 1000].map(chosen), [0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn deletes_are_worth_a_marking_if_files_have_much_garbage() {
        let worth = |files: &[ValueFileState], ssts| is_worth_marking(files, ssts);
        assert!(!worth(&[file(1, 70), file(2, 80)], 0), "50 bytes, but less than a third of each");
        assert!(worth(&[file(1, 60), file(2, 80)], 320));
        assert!(
            !worth(&[file(1, 60), file(2, 80)], 321),
            "8 bytes would be read for each one freed, and more"
        );
        assert!(!worth(&[], 0));
    }

    #[test]
    fn the_excess_is_what_exceeds_the_target() {
        let space =
            ValueSpace { files: 1400, ssts: 100, live_ssts: 100, live: 1000, ..ValueSpace::default() };
        assert!((69..=70).contains(&space.excess(1.3)), "1400 - 1300 - 30");
        assert_eq!((space.excess(1.4), space.excess(4.0)), (0, 0));
        assert_eq!(ValueSpace::default().excess(1.3), 0);
        let asked = ValueSpace { wanted: 100, ..space };
        assert!((169..=170).contains(&asked.excess(1.3)), "and those that are wanted");
    }

    #[test]
    fn the_garbage_of_ssts_is_no_excess() {
        let space =
            ValueSpace { files: 1000, ssts: 9000, live_ssts: 3000, marked: 9000, live: 1000, wanted: 100 };
        assert_eq!(space.excess(1.3), 0);
        let some = ValueSpace { files: 1600, ..space };
        assert_eq!(some.excess(1.3), 600, "what files of values have");
        let little = ValueSpace { files: 1500, ..space };
        assert_eq!(little.excess(1.3), 0, "18 bytes would be read for each one freed");
        let elsewhere = ValueSpace { marked: 0, ..little };
        assert_eq!(elsewhere.excess(1.3), 500, "partitions without separated values are not read");
    }
}
