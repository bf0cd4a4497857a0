//! Measurement: time, latencies, throughput over time, and what the process costs the machine.

mod disk;
mod latency;
mod machine;
mod process;
mod recorder;
mod stopwatch;

pub(crate) use disk::{Sampler, disk_bytes, quiet_disk_bytes};
pub(crate) use latency::{Latency, histogram};
pub(crate) use machine::Machine;
pub(crate) use process::{ProcessCounts, peak_rss_bytes, reset_peak_rss, rss_anonymous_bytes};
pub(crate) use recorder::{Recorder, SERIES_BUCKET_NS};
pub(crate) use stopwatch::Stopwatch;
