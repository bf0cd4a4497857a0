//! Records: the results of one workload on one engine. This is the schema of the JSON output; docs/benchmarks.md defines every
//! field.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::engine::{Capabilities, EngineStats};
use crate::measure::{Latency, Machine};

/// One object of the JSON output.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    pub(crate) engine: String,
    pub(crate) workload: String,
    pub(crate) keys: u64,
    pub(crate) threads: usize,
    pub(crate) ops: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) write_amp: Option<f64>,
    pub(crate) read_amp: Option<f64>,
    pub(crate) space_amp: Option<f64>,
    pub(crate) peak_disk_bytes: u64,
    pub(crate) peak_rss_bytes: u64,
    pub(crate) cpu_s: f64,
    pub(crate) in_flight: usize,
    pub(crate) cpu_us_per_op: f64,
    /// Raw reads of the store's files around an uncached workload.
    pub(crate) device_reads_per_s: Option<f64>,

    pub(crate) p95_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) mean_ns: f64,
    /// Operations a second in the second half of the time.
    pub(crate) late_ops_per_s: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) settle_s: f64,
    pub(crate) cpu_ops_s: f64,
    pub(crate) longest_gap_ns: u64,
    pub(crate) timed_every: u64,
    pub(crate) overhead_ns: f64,
    pub(crate) found: u64,
    pub(crate) missed: u64,
    pub(crate) wrong: u64,
    pub(crate) user_read_bytes: u64,
    pub(crate) user_written_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) final_disk_bytes: u64,
    pub(crate) rss_anonymous_bytes: u64,
    pub(crate) storage_read_bytes: u64,
    pub(crate) storage_write_bytes: u64,
    pub(crate) read_call_bytes: u64,
    pub(crate) write_call_bytes: u64,
    pub(crate) write_amp_calls: Option<f64>,
    pub(crate) write_amp_engine: Option<f64>,
    pub(crate) write_amp_sst: Option<f64>,
    pub(crate) read_amp_calls: Option<f64>,
    pub(crate) peak_space_amp: Option<f64>,
    /// Why the workload failed; then there are no figures.
    pub(crate) error: Option<String>,
    /// The limit that ended a load before every key was put.
    pub(crate) stopped_after_s: Option<f64>,
    /// What had written to the store since it was empty.
    pub(crate) prepared_by: Vec<String>,
    /// Figures that only some workloads have.
    pub(crate) extra: BTreeMap<String, f64>,
    /// Latencies by kind of operation.
    pub(crate) by_kind: BTreeMap<String, Latency>,
    /// Pairs of percentile and nanoseconds.
    pub(crate) latency_curve: Vec<(f64, u64)>,
    pub(crate) series: Series,
    pub(crate) engine_stats: EngineStats,
    pub(crate) about: String,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: Settings,
    pub(crate) machine: Machine,
}

/// What happened over time, in buckets of the same width.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Series {
    pub(crate) bucket_ms: u64,
    /// Operations that ended in each bucket.
    pub(crate) ops: Vec<u64>,
    /// Disk use at the start of each bucket; goes on while the store settles.
    pub(crate) disk_bytes: Vec<u64>,
    /// Resident memory of the process at the same times.
    pub(crate) rss_bytes: Vec<u64>,
}

impl Series {
    /// Operations a second from the first bucket on that begins in the second half of so many seconds. None if there are few.
    pub(crate) fn late_ops_per_s(&self, seconds: f64) -> Option<f64> {
        let bucket_s = self.bucket_ms as f64 / 1e3;
        let first = (seconds / 2.0 / bucket_s).ceil();
        let late_s = seconds - first * bucket_s;
        let ops: u64 = self.ops.iter().skip(first as usize).sum();
        (late_s > LATE_BUCKETS_MIN * bucket_s).then(|| ops as f64 / late_s)
    }
}

/// Buckets of a half below which its speed says nothing.
const LATE_BUCKETS_MIN: f64 = 2.0;
