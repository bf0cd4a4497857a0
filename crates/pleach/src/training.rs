//! Adaptive training: when an SST gets a learned index. Pure functions; `upkeep` trains.
//!
//! Training while writing takes time from flushes while many threads write. Training while reading takes processors from
//! readers. So a flush trains while few threads write, and what it leaves out is trained when the machine is idle. The outputs
//! of compactions are always trained, because they live long.
//!
//! # Origin
//! `TridentKV` 3.2, algorithm 1; each function names its lines. `cur_num` is the number of threads whose batches were
//! committed in the last 100 ms. Departures: models trained while reading are exact, so the error of a model is that which it
//! would have without residuals; training is not interrupted by the time-out, but its model is not used.

use std::time::Duration;

use pleach_env::ProcessorTime;

/// When SSTs get a learned index: [`Options::learned_index`](crate::Options::learned_index).
///
/// # When an SST has no model
/// These counters of [`Stats`](crate::Stats), since the open, tell why:
/// - keys that no model can tell apart, such as URLs: `index_ties`;
/// - a model would be larger than separators, as in SSTs of a few dozen blocks: `index_larger`;
/// - one block: `index_one_block`;
/// - a flush while 8 threads or more wrote ([`LearnedIndex::Adaptive`]): `index_many_writers`. It is trained later, when the
///   machine is idle; `training_waits` counts how often the machine was busy;
/// - training took a second or more: `index_timed_out`. A training in idle time is tried up to three times.
///
/// The setting is about new SSTs. Those of an existing store keep their index until a compaction rewrites them, except that
/// [`LearnedIndex::Adaptive`] makes models for old SSTs too, in memory, again after each open. A store that is open for
/// reading only trains nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LearnedIndex {
    /// Never: every new SST has separators.
    Never,
    /// Each new SST for whose keys a model takes no more bytes than separators.
    Always,
    /// As [`LearnedIndex::Always`], but flushes write separators while 8 threads or more write. When three quarters of a
    /// processor are idle (half of one on a machine that has no other), a background thread makes models for the SSTs that have
    /// separators, whatever wrote them: from the separators in memory, without reading the files. These models are in memory
    /// only. They are larger than those that are made while SSTs are written, and smaller than separators. After an open each
    /// SST is tried once, and again only if the training took too long.
    ///
    /// After `TridentKV` (section 3.2, algorithm 1).
    #[default]
    Adaptive,
}

/// Processors that must be idle, or half of the only one: training needs one. The paper names no number. With two processors, a
/// thread that only reads leaves less than one whole.
const IDLE_MIN: f64 = 0.75;
/// Shortest time, for each processor, in which its use is measured. The system counts in hundredths of a second.
const MEASURED_MIN: Duration = Duration::from_millis(100);
/// A use that was measured over a longer time says little about the present. Arbitrary.
const MEASURED_MAX: Duration = Duration::from_secs(5);

/// Thresholds of algorithm 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// `N_w`: from so many writing threads on, flushes do not train.
    pub(crate) writers: usize,
    /// `e_t`: a model that was trained while reading must have a smaller error, in blocks.
    pub(crate) error: u32,
    /// Time-out of a training.
    pub(crate) time: Duration,
}

/// What writes an SST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Flush,
    Compaction,
}

/// Whether training while reading may begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Good,
    /// An SST is being written that will be trained.
    Writing,
    /// The processors are busy, or it is not known yet whether they are.
    Busy,
}

/// What becomes of a trained model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Used,
    TimedOut,
    TooInexact,
}

/// Whether an SST that is begun now is trained while it is written; `writers` is `cur_num`. Lines 3 to 8, and step 4 of the
/// text for compactions.
pub(crate) fn trains_while_writing(limits: Limits, purpose: Purpose, writers: usize) -> bool {
    purpose == Purpose::Compaction || writers < limits.writers
}

/// Whether training while reading may begin: `t_w` is `is_training_while_writing`, `processor_use` the used share of all
/// `processors`. Lines 9 to 14, and step 2 of the text.
pub(crate) fn moment_to_read(
    is_training_while_writing: bool,
    processor_use: Option<f64>,
    processors: u32,
) -> Moment {
    let processors = f64::from(processors);
    match processor_use {
        _ if is_training_while_writing => Moment::Writing,
        Some(busy) if (1.0 - busy) * processors > IDLE_MIN.min(processors / 2.0) => Moment::Good,
        _ => Moment::Busy,
    }
}

/// What becomes of a model whose training took `time`; of one that was trained while reading, `error` is the error in blocks.
/// Lines 20 to 26.
pub(crate) fn judge(limits: Limits, time: Duration, error: Option<u32>) -> Verdict {
    if time >= limits.time {
        Verdict::TimedOut
    } else if error.is_some_and(|error| error >= limits.error) {
        Verdict::TooInexact
    } else {
        Verdict::Used
    }
}

/// The use of the processors, measured between calls.
#[derive(Debug, Default)]
pub(crate) struct ProcessorUse {
    /// The beginning of the measurement, by the clock and by the processors.
    since: Option<(Duration, ProcessorTime)>,
    measured: Option<f64>,
}

impl ProcessorUse {
    /// The use of `processors` processors that was measured last; `None` before there is one, and after a long time without a
    /// call.
    pub(crate) fn measure(&mut self, now: Duration, time: ProcessorTime, processors: u32) -> Option<f64> {
        let begin_at = (now, time);
        let Some((began, since)) = self.since else {
            self.since = Some(begin_at);
            return None;
        };
        if now.saturating_sub(began) > MEASURED_MAX {
            *self = Self { since: Some(begin_at), measured: None };
        } else if time.total.saturating_sub(since.total) >= MEASURED_MIN * processors {
            *self = Self { since: Some(begin_at), measured: time.use_since(since) };
        }
        self.measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { writers: 8, error: 6, time: Duration::from_secs(1) };

    #[test]
    fn a_flush_trains_below_the_limit_of_writers_and_a_compaction_always() {
        use Purpose::{Compaction, Flush};
        for (purpose, writers, expected) in [
            (Flush, 0, true),
            (Flush, 1, true),
            (Flush, 7, true),
            (Flush, 8, false),
            (Flush, 64, false),
            (Compaction, 0, true),
            (Compaction, 8, true),
            (Compaction, 64, true),
        ] {
            assert_eq!(trains_while_writing(LIMITS, purpose, writers), expected, "{purpose:?} {writers}");
        }
        assert!(!trains_while_writing(Limits { writers: 0, ..LIMITS }, Flush, 0));
    }

    #[test]
    fn only_an_idle_machine_trains_while_reading() {
        for (writing, busy, processors, expected) in [
            (false, Some(0.0), 1, Moment::Good),
            (false, Some(0.49), 1, Moment::Good),
            (false, Some(0.5), 1, Moment::Busy),
            (false, Some(0.6), 2, Moment::Good),
            (false, Some(0.65), 2, Moment::Busy),
            (false, Some(0.95), 16, Moment::Good),
            (false, Some(0.96), 16, Moment::Busy),
            (false, Some(1.0), 16, Moment::Busy),
            (false, None, 1, Moment::Busy),
            (true, Some(0.0), 2, Moment::Writing),
            (true, Some(1.0), 2, Moment::Writing),
            (true, None, 2, Moment::Writing),
        ] {
            assert_eq!(
                moment_to_read(writing, busy, processors),
                expected,
                "{writing} {busy:?} {processors}"
            );
        }
    }

    #[test]
    fn late_and_inexact_models_are_not_used() {
        let ms = Duration::from_millis;
        for (time, error, expected) in [
            (ms(0), None, Verdict::Used),
            (ms(999), None, Verdict::Used),
            (ms(1000), None, Verdict::TimedOut),
            (ms(999), Some(0), Verdict::Used),
            (ms(999), Some(5), Verdict::Used),
            (ms(999), Some(6), Verdict::TooInexact),
            (ms(1000), Some(6), Verdict::TimedOut),
        ] {
            assert_eq!(judge(LIMITS, time, error), expected, "{time:?} {error:?}");
        }
    }

    #[test]
    fn use_is_measured_over_a_while() {
        let ms = Duration::from_millis;
        let time = |busy, total| ProcessorTime { busy: ms(busy), total: ms(total) };
        let mut processors = ProcessorUse::default();
        for (now, busy, total, expected) in [
            (0, 0, 0, None),
            (10, 10, 20, None),
            (1000, 500, 2000, Some(0.25)),
            // Too little time since: the last use counts.
            (1050, 600, 2100, Some(0.25)),
            (1500, 1500, 3000, Some(1.0)),
            // Nothing was measured for a long time.
            (20_000, 1600, 40_000, None),
            (20_100, 1600, 40_200, Some(0.0)),
        ] {
            assert_eq!(processors.measure(ms(now), time(busy, total), 2), expected, "{now}");
        }
    }
}
