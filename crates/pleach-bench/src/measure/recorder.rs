//! The recorder of one thread: latencies by kind of operation, throughput over time, the longest pause.
//!
//! In a closed loop (the next operation starts when the last one ended) the service time of every operation is
//! recorded, unless reading the clock and recording would cost more than 2 % of an operation. In that case every k-th
//! operation is timed and counts k times. A gap of 100 us or more between two timed ones is recorded as one operation, so no
//! stall is missed, and each counts once. After a stall, and every few hundred operations, k is chosen again: while an engine
//! is slow, all operations are timed. At a fixed rate every operation is timed from its scheduled start, so that a stall
//! counts for all operations that it delayed.

use hdrhistogram::Histogram;

use super::latency::histogram;
use super::stopwatch::Stopwatch;
use crate::workload::OpKind;

/// Width of a bucket of throughput over time.
pub(crate) const SERIES_BUCKET_NS: u64 = 100_000_000;
/// A gap between two timed operations that is recorded whole.
const STALL_NS: u64 = 100_000;
/// Share of an operation's time that timing it may cost.
const TIMING_SHARE: f64 = 0.02;
/// Timed operations after which the interval of timing is chosen.
const OPS_BEFORE_CHOICE: u64 = 512;
/// Longest interval of timing.
const INTERVAL_MAX: f64 = 16.0;

/// Latencies and throughput of one thread; joined when all have ended.
#[derive(Debug)]
pub(crate) struct Recorder {
    stopwatch: Stopwatch,
    latencies: Vec<Option<Box<Histogram<u64>>>>,
    /// Times of calls from their own start, where latencies count from a scheduled one.
    pub(crate) calls: Option<Box<Histogram<u64>>>,
    /// Operations that ended in each bucket.
    pub(crate) series: Vec<u64>,
    /// Longest time between the ends of two operations of a thread, from the start of its first.
    pub(crate) longest_gap_ns: u64,
    /// Most calls of which one was timed.
    pub(crate) interval_max: u64,
    /// Every how many calls one is timed now.
    interval: u64,
    untimed: u64,
    last_mark_ns: u64,
    last_kind: OpKind,
    timing_cost_ns: f64,
    timed: u64,
    timed_sum_ns: u64,
    /// Whether each operation must be timed.
    fixed_interval: bool,
}

impl Recorder {
    /// `every`: each operation must be timed.
    pub(crate) fn new(stopwatch: Stopwatch, timing_cost_ns: f64, every: bool) -> Self {
        Self {
            last_mark_ns: stopwatch.now_ns(),
            stopwatch,
            latencies: OpKind::ALL.map(|_| None).into(),
            calls: None,
            series: Vec::new(),
            longest_gap_ns: 0,
            interval_max: 1,
            interval: 1,
            untimed: 0,
            last_kind: OpKind::Get,
            timing_cost_ns,
            timed: 0,
            timed_sum_ns: 0,
            fixed_interval: every,
        }
    }

    /// The cost of timing an operation, clock and record together: the best of a few trials, which no interrupt has delayed.
    pub(crate) fn cost_ns() -> f64 {
        const TIMED: u32 = 20_000;
        let trial = || {
            let mut recorder = Self::new(Stopwatch::start(), 0.0, true);
            let start_ns = recorder.now_ns();
            for _ in 0..TIMED {
                if recorder.is_timed() {
                    let (begin_ns, end_ns) = (recorder.now_ns(), recorder.now_ns());
                    recorder.timed(OpKind::Get, begin_ns, end_ns, 1);
                }
            }
            (recorder.now_ns() - start_ns) as f64 / f64::from(TIMED)
        };
        (0..5).map(|_| trial()).fold(f64::INFINITY, f64::min)
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.stopwatch.now_ns()
    }

    /// Whether the next call is to be timed.
    #[inline]
    pub(crate) fn is_timed(&mut self) -> bool {
        self.untimed += 1;
        self.untimed >= self.interval
    }

    /// A scheduled call took so long from its own start.
    #[inline]
    pub(crate) fn called(&mut self, ns: u64) {
        self.calls.get_or_insert_with(|| Box::new(histogram())).saturating_record(ns);
    }

    /// So many scheduled calls have waited so long, and did not begin.
    pub(crate) fn waited(&mut self, kind: OpKind, ns: u64, calls: u64) {
        self.latency(kind, ns, calls);
    }

    /// An operation was timed; `ops` have ended since the last one that was.
    #[inline]
    pub(crate) fn timed(&mut self, kind: OpKind, begin_ns: u64, end_ns: u64, ops: u64) {
        let latency_ns = end_ns.saturating_sub(begin_ns);
        let untimed_ns = begin_ns.saturating_sub(self.last_mark_ns);
        let mut stands_for = self.interval;
        if self.interval > 1 && latency_ns.max(untimed_ns) >= STALL_NS {
            if untimed_ns >= STALL_NS {
                self.latency(self.last_kind, untimed_ns, 1);
            }
            if latency_ns >= STALL_NS {
                stands_for = 1;
            }
            self.time_all();
        }
        self.latency(kind, latency_ns, stands_for);
        self.mark(end_ns, ops);
        self.untimed = 0;
        self.last_kind = kind;
        if !self.fixed_interval {
            self.consider_interval(latency_ns);
        }
    }

    /// `ops` operations ended since the last mark, of which only the sum of the times is known.
    pub(crate) fn group(&mut self, kind: OpKind, end_ns: u64, ops: u64) {
        let spent_ns = end_ns.saturating_sub(self.last_mark_ns);
        match spent_ns.checked_div(ops) {
            None => {}
            Some(_) if spent_ns >= STALL_NS => self.latency(kind, spent_ns, 1),
            Some(mean_ns) => self.latency(kind, mean_ns, ops),
        }
        self.mark(end_ns, ops);
    }

    fn latency(&mut self, kind: OpKind, latency_ns: u64, count: u64) {
        let slot = self.latencies[kind as usize].get_or_insert_with(|| Box::new(histogram()));
        slot.saturating_record_n(latency_ns, count);
    }

    #[inline]
    fn mark(&mut self, end_ns: u64, ops: u64) {
        self.longest_gap_ns = self.longest_gap_ns.max(end_ns.saturating_sub(self.last_mark_ns));
        self.last_mark_ns = end_ns;
        let bucket = (end_ns / SERIES_BUCKET_NS) as usize;
        if bucket >= self.series.len() {
            self.series.resize(bucket + 1, 0);
        }
        self.series[bucket] += ops;
    }

    fn consider_interval(&mut self, latency_ns: u64) {
        self.timed += 1;
        self.timed_sum_ns += latency_ns.min(STALL_NS);
        if self.timed == OPS_BEFORE_CHOICE {
            let mean_ns = (self.timed_sum_ns as f64 / self.timed as f64).max(1.0);
            self.time_all();
            self.interval =
                (self.timing_cost_ns / (TIMING_SHARE * mean_ns)).ceil().clamp(1.0, INTERVAL_MAX) as u64;
            self.interval_max = self.interval_max.max(self.interval);
        }
    }

    /// Times every operation until the interval is chosen again.
    fn time_all(&mut self) {
        (self.interval, self.timed, self.timed_sum_ns) = (1, 0, 0);
    }

    /// Restarts the clock: the time before the first operation is not a pause.
    pub(crate) fn begin(&mut self) {
        self.last_mark_ns = self.now_ns();
    }

    /// Adds what another thread has recorded.
    pub(crate) fn join(&mut self, other: &Self) {
        self.join_latencies(other);
        if self.series.len() < other.series.len() {
            self.series.resize(other.series.len(), 0);
        }
        for (mine, theirs) in self.series.iter_mut().zip(&other.series) {
            *mine += theirs;
        }
    }

    /// Adds what was recorded in a phase after this one.
    pub(crate) fn follow_with(&mut self, next: &Self) {
        self.join_latencies(next);
        self.series.extend_from_slice(&next.series);
    }

    fn join_latencies(&mut self, other: &Self) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_with(|| Box::new(histogram()));
                mine.add(theirs.as_ref()).expect("all have the same bounds");
            }
        }
        if let Some(theirs) = &other.calls {
            let mine = self.calls.get_or_insert_with(|| Box::new(histogram()));
            mine.add(theirs.as_ref()).expect("all have the same bounds");
        }
        self.longest_gap_ns = self.longest_gap_ns.max(other.longest_gap_ns);
        self.interval_max = self.interval_max.max(other.interval_max);
    }

    /// The histograms that hold anything.
    pub(crate) fn by_kind(&self) -> impl Iterator<Item = (OpKind, &Histogram<u64>)> {
        let kinds = OpKind::ALL.into_iter().zip(&self.latencies);
        kinds.filter_map(|(kind, latency)| Some((kind, latency.as_deref()?)))
    }

    /// All kinds together.
    pub(crate) fn all_kinds(&self) -> Histogram<u64> {
        let mut all = histogram();
        for (_, latency) in self.by_kind() {
            all.add(latency).expect("all have the same bounds");
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_between_samples_is_recorded() {
        let mut recorder = Recorder::new(Stopwatch::start(), 40.0, false);
        recorder.last_mark_ns = 0;
        for op in 0..OPS_BEFORE_CHOICE {
            assert!(recorder.is_timed());
            recorder.timed(OpKind::Get, op * 500, op * 500 + 420, 1);
        }
        // 40 ns are 2 % of 2000 ns, an operation takes 420.
        assert_eq!(recorder.interval, 5);
        assert!((0..4).all(|_| !recorder.is_timed()) && recorder.is_timed());
        recorder.timed(OpKind::Get, 5_000_000, 5_000_400, 5);
        let all = recorder.all_kinds();
        assert!(all.max() > 4_700_000 && recorder.longest_gap_ns > 4_700_000);
        assert_eq!(all.len(), OPS_BEFORE_CHOICE + 1 + 5);
        assert_eq!(recorder.series.iter().sum::<u64>(), OPS_BEFORE_CHOICE + 5);
    }

    #[test]
    fn one_long_operation_is_a_gap_and_counts_once() {
        let mut recorder = Recorder::new(Stopwatch::start(), 40.0, false);
        recorder.last_mark_ns = 0;
        for op in 0..OPS_BEFORE_CHOICE {
            recorder.timed(OpKind::Put, op * 500, op * 500 + 420, 1);
        }
        recorder.timed(OpKind::Put, 256_000, 300_256_000, 5);
        let all = recorder.all_kinds();
        assert_eq!(all.count_between(100_000_000, u64::MAX), 1);
        assert!(recorder.longest_gap_ns >= 300_000_000, "{}", recorder.longest_gap_ns);
        // It ended in the fourth bucket; those that it filled are empty.
        assert_eq!(recorder.series, [OPS_BEFORE_CHOICE, 0, 0, 5]);
    }

    /// Latencies of operations whose true times are known: mostly 1 us, every 1000th 2 ms, and in the end all 150 us.
    #[test]
    fn tails_are_those_of_all_operations() {
        let mut recorder = Recorder::new(Stopwatch::start(), 300.0, false);
        (recorder.last_mark_ns, recorder.longest_gap_ns) = (0, 0);
        let (mut now_ns, mut marked) = (0, 0);
        let mut truth = histogram();
        let ops = 1_000_000_u64;
        for op in 1..=ops {
            let takes_ns = match op {
                _ if op > ops - 5_000 => 150_000,
                _ if op % 1000 == 0 => 2_000_000,
                _ => 1_000,
            };
            truth.saturating_record(takes_ns);
            let begin_ns = now_ns;
            now_ns += takes_ns;
            if recorder.is_timed() {
                recorder.timed(OpKind::Put, begin_ns, now_ns, op - marked);
                marked = op;
            }
        }
        recorder.group(OpKind::Put, now_ns, ops - marked);
        assert!(recorder.interval_max > 8, "{}", recorder.interval_max);
        let all = recorder.all_kinds();
        for quantile in [0.5, 0.99, 0.996, 0.9995] {
            let (ours, theirs) = (all.value_at_quantile(quantile), truth.value_at_quantile(quantile));
            assert!((ours as f64 / theirs as f64 - 1.0).abs() < 0.05, "{quantile}: {ours} {theirs}");
        }
        let slow = |histogram: &Histogram<u64>| histogram.count_between(1_000_000, u64::MAX) as f64;
        assert!((slow(&all) / slow(&truth) - 1.0).abs() < 0.05, "{} {}", slow(&all), slow(&truth));
        assert!((all.len() as f64 / ops as f64 - 1.0).abs() < 0.05, "{}", all.len());
        assert_eq!(recorder.series.iter().sum::<u64>(), ops);
    }

    #[test]
    fn joined_recorders_add_up() {
        let stopwatch = Stopwatch::start();
        let mut one = Recorder::new(stopwatch.clone(), 1.0, true);
        let mut other = Recorder::new(stopwatch, 1.0, true);
        one.timed(OpKind::Get, 0, 10, 1);
        other.timed(OpKind::Put, 0, 250_000_000, 1);
        one.join(&other);
        assert_eq!(one.series, [1, 0, 1]);
        assert_eq!(one.by_kind().map(|(kind, _)| kind).collect::<Vec<_>>(), [OpKind::Get, OpKind::Put]);
        assert_eq!(one.all_kinds().len(), 2);
        one.follow_with(&other);
        assert_eq!((one.series.len(), one.all_kinds().len()), (3 + other.series.len(), 3));
    }
}
