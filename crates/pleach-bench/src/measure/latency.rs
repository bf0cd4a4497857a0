//! Latencies: histograms of three significant digits, and their summaries in reports.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency of the histogram: an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Percentiles of the curve in reports.
const CURVE: [f64; 18] = [
    1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.975, 99.99, 99.995,
    99.999, 99.9999,
];

/// An empty histogram.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, SIGNIFICANT_DIGITS).expect("the bounds are in order")
}

/// The summary of a histogram; all zero if it is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Operations it stands for.
    pub(crate) count: u64,
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p95_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
    /// Pairs of percentile and nanoseconds, up to the percentiles that the count can resolve.
    pub(crate) curve: Vec<(f64, u64)>,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |percentile: f64| histogram.value_at_quantile(percentile / 100.0);
        // A percentile is worth showing when at least one operation lies beyond it.
        let worth = |percentile: f64| (1.0 - percentile / 100.0) * histogram.len() as f64 >= 1.0;
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: at(50.0),
            p95_ns: at(95.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            max_ns: histogram.max(),
            curve: CURVE.into_iter().filter(|&p| worth(p)).map(|p| (p, at(p))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut values = histogram();
        (1..=10_000).for_each(|value| values.saturating_record(value * 1000));
        let latency = Latency::of(&values);
        assert!(latency.p50_ns.abs_diff(5_000_000) < 5_000 && latency.p999_ns.abs_diff(9_990_000) < 10_000);
        assert!(latency.max_ns >= 10_000_000 && latency.count == 10_000);
        assert_eq!(latency.curve.last().map(|point| point.0), Some(99.99));
        assert_eq!(Latency::of(&histogram()), Latency::default());
    }
}
