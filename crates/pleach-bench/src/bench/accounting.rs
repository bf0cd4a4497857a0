//! Accounting: makes a record from the observations of a workload.

use std::collections::BTreeMap;

use super::phase::Outcome;
use super::record::{Record, Series};
use super::settings::Settings;
use super::store::Store;
use crate::engine::{EngineFactory, EngineStats};
use crate::measure::{
    Latency, Machine, ProcessCounts, SERIES_BUCKET_NS, Sampler, disk_bytes, peak_rss_bytes, quiet_disk_bytes,
    rss_anonymous_bytes,
};
use crate::workload::{Planned, Shape};

/// The observations of a workload.
pub(super) struct Seen {
    pub(super) outcome: Outcome,
    pub(super) extra: BTreeMap<String, f64>,
    pub(super) settle_s: f64,
    pub(super) cpu_ops_ns: u64,
    /// The limit that ended a load.
    pub(super) stopped_after_s: Option<f64>,
}

/// Disk use at the end; after settling, without the files that the engine is about to remove.
fn final_disk_bytes(store: &Store<'_>, shape: Shape) -> u64 {
    let settles = !store.settings.no_settle && shape.writes();
    if settles { quiet_disk_bytes(store.dir()) } else { disk_bytes(store.dir()) }
}

/// The record, without its costs.
pub(super) fn record_of(store: &Store<'_>, planned: &Planned, seen: &Seen, samples: &Sampler) -> Record {
    let settings = store.settings;
    let Planned { workload, threads, .. } = *planned;
    let Outcome { recorder, tally, seconds, beside, .. } = &seen.outcome;
    let latency = Latency::of(&recorder.all_kinds());
    let mut by_kind = BTreeMap::new();
    for (kind, histogram) in recorder.by_kind() {
        by_kind.insert(kind.name().to_owned(), Latency::of(histogram));
    }
    let mut written_bytes = tally.written_bytes;
    if let Some((recorder, tally)) = beside {
        written_bytes += tally.written_bytes;
        for (kind, histogram) in recorder.by_kind() {
            by_kind.insert(format!("{}_beside", kind.name()), Latency::of(histogram));
        }
        if let Some(calls) = &recorder.calls {
            by_kind.insert("calls_beside".to_owned(), Latency::of(calls));
        }
    }
    let series = Series {
        bucket_ms: SERIES_BUCKET_NS / 1_000_000,
        ops: recorder.series.clone(),
        disk_bytes: samples.disk_bytes.clone(),
        rss_bytes: samples.rss_bytes.clone(),
    };
    Record {
        engine: store.factory.name.to_owned(),
        workload: workload.name.to_owned(),
        keys: settings.keys,
        threads,
        ops: tally.ops,
        ops_per_s: tally.ops as f64 / seconds,
        p50_ns: latency.p50_ns,
        p99_ns: latency.p99_ns,
        p999_ns: latency.p999_ns,
        peak_disk_bytes: samples.peak_disk_bytes(),
        peak_rss_bytes: peak_rss_bytes(),
        p95_ns: latency.p95_ns,
        max_ns: latency.max_ns,
        mean_ns: latency.mean_ns,
        seconds: *seconds,
        settle_s: seen.settle_s,
        cpu_ops_s: seen.cpu_ops_ns as f64 / 1e9,
        cpu_us_per_op: seen.cpu_ops_ns as f64 / 1e3 / tally.ops.max(1) as f64,
        longest_gap_ns: recorder.longest_gap_ns,
        timed_every: recorder.interval_max,
        found: tally.found,
        missed: tally.missed,
        wrong: tally.wrong,
        user_read_bytes: tally.read_bytes,
        user_written_bytes: written_bytes,
        live_bytes: store.live_bytes,
        final_disk_bytes: final_disk_bytes(store, workload.shape),
        rss_anonymous_bytes: rss_anonymous_bytes(),
        extra: seen.extra.clone(),
        by_kind,
        latency_curve: latency.curve,
        late_ops_per_s: series.late_ops_per_s(*seconds),
        series,
        about: store.factory.about.to_owned(),
        capabilities: store.factory.capabilities,
        stopped_after_s: seen.stopped_after_s,
        config: settings.without_paths(),
        machine: Machine::this(&settings.dir),
        ..Record::default()
    }
}

/// The record of a failed workload.
pub(super) fn failed_record(
    factory: &EngineFactory,
    settings: &Settings,
    planned: &Planned,
    error: &str,
) -> Record {
    Record {
        about: factory.about.to_owned(),
        capabilities: factory.capabilities,
        ..unknown_record(factory.name, settings, planned, error)
    }
}

/// As above, for callers that cannot ask the engine.
pub(super) fn unknown_record(engine: &str, settings: &Settings, planned: &Planned, error: &str) -> Record {
    Record {
        engine: engine.to_owned(),
        workload: planned.workload.name.to_owned(),
        keys: settings.keys,
        threads: planned.threads,
        error: Some(error.to_owned()),
        config: settings.without_paths(),
        machine: Machine::this(&settings.dir),
        ..Record::default()
    }
}

/// Adds what the workload cost: amplifications, processor time, bytes.
pub(super) fn add_costs(
    record: &mut Record,
    counts: &ProcessCounts,
    before: &EngineStats,
    stats: EngineStats,
) {
    let ratio = |bytes: u64, of: u64| (of > 0).then(|| bytes as f64 / of as f64);
    let written = record.user_written_bytes;
    record.cpu_s = counts.cpu_ns as f64 / 1e9;
    record.storage_read_bytes = counts.storage_read_bytes;
    record.storage_write_bytes = counts.storage_write_bytes;
    record.read_call_bytes = counts.read_call_bytes;
    record.write_call_bytes = counts.write_call_bytes;
    record.write_amp_calls = ratio(counts.write_call_bytes, written);
    let of_users = |bytes: Option<u64>, before: Option<u64>| {
        bytes.and_then(|bytes| ratio(bytes.saturating_sub(before.unwrap_or(0)), written))
    };
    record.write_amp_engine = of_users(stats.written_bytes, before.written_bytes);
    // A file system in memory counts no storage bytes, and calls leave out what is written into mapped files.
    let has_storage = counts.storage_write_bytes > 0;
    record.write_amp =
        if has_storage { ratio(counts.storage_write_bytes, written) } else { record.write_amp_engine };
    record.write_amp_sst = of_users(beyond_log(&stats), beyond_log(before));
    record.read_amp = ratio(counts.storage_read_bytes, record.user_read_bytes);
    record.read_amp_calls = ratio(counts.read_call_bytes, record.user_read_bytes);
    record.space_amp = ratio(record.final_disk_bytes, record.live_bytes);
    record.peak_space_amp = ratio(record.peak_disk_bytes, record.live_bytes);
    record.engine_stats = stats;
}

/// Bytes that an engine has written to other files than the log: flushes and compactions.
fn beyond_log(stats: &EngineStats) -> Option<u64> {
    stats.written_bytes?.checked_sub(stats.log_bytes?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_bytes_of_storage_the_engine_says_what_it_has_written() {
        let write_amp = |storage_write_bytes, written_bytes| {
            let mut record = Record { user_written_bytes: 100, ..Record::default() };
            let counts =
                ProcessCounts { storage_write_bytes, write_call_bytes: 110, ..ProcessCounts::default() };
            let of = |written_bytes| EngineStats { written_bytes, ..EngineStats::default() };
            add_costs(&mut record, &counts, &of(Some(50)), of(written_bytes));
            assert_eq!(record.write_amp_calls, Some(1.1));
            record.write_amp
        };
        assert_eq!(write_amp(300, Some(250)), Some(3.0));
        assert_eq!(write_amp(0, Some(250)), Some(2.0));
        assert_eq!(write_amp(0, None), None);
    }
}
