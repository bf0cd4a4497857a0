//! The runner: an engine's workloads one after the other, each measured and made into a record.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use super::execute::{Tally, execute};
use super::phase::{Outcome, Phase, Work};
use super::progress::watched;
use super::record::{Record, Series};
use super::settings::Settings;
use super::store::Store;
use crate::engine::{Direction, Engine, EngineFactory, EngineStats, NullEngine, Result};
use crate::measure::{
    DiskSampler, Latency, Machine, ProcessCounts, Recorder, SERIES_BUCKET_NS, Stopwatch, disk_bytes,
    peak_rss_bytes, quiet_disk_bytes, reset_peak_rss, rss_anonymous_bytes,
};
use crate::workload::{
    DROPPED, Mix, Needs, Op, OpKind, PARTITIONS, Shape, Workload, delete_order, find, partition_of,
};

/// Operations on the engine that does nothing, to learn what the benchmark itself costs.
const OVERHEAD_OPS: u64 = 20_000;

/// Runs the settings' workloads on one engine in this process. Each record goes to `sink` at once.
pub(crate) fn run_workloads(
    factory: &EngineFactory,
    settings: &Settings,
    sink: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    settings.check()?;
    if settings.direct && !factory.capabilities.direct_reads {
        return Err(format!("{} cannot read past the page cache (--direct)", factory.name).into());
    }
    let timing_cost_ns = Recorder::cost_ns();
    let mut store = Store::new(factory, settings, timing_cost_ns)?;
    for name in &settings.workloads {
        let workload = find(name).ok_or_else(|| format!("there is no workload {name:?}"))?;
        let record = run_workload(&mut store, workload)?;
        sink(record)?;
    }
    store.close()?;
    if !settings.keep {
        store.empty()?;
    }
    Ok(())
}

/// What was seen while a workload ran.
struct Seen {
    outcome: Outcome,
    extra: BTreeMap<String, f64>,
    settle_s: f64,
    cpu_ops_ns: u64,
}

fn run_workload(store: &mut Store<'_>, workload: &Workload) -> Result<Record> {
    let shape = workload.shape;
    store.prepare(shape.needs())?;
    get_ready(store, workload);
    warm_up(store, workload)?;
    let overhead_ns = overhead_ns(store, workload)?;
    let progress = AtomicU64::new(0);
    let label = format!("{} {}", store.factory.name, workload.name);
    reset_peak_rss();
    let stats_before = store.engine().stats()?;
    let counts_before = ProcessCounts::now();
    let (seen, disk) = watched(&label, ops_of(store, shape), store.dir(), &progress, || {
        let (outcome, extra) = run_shape(store, workload, &progress)?;
        let cpu_ops_ns = ProcessCounts::now().since(counts_before).cpu_ns;
        let settle_s = settle(store, shape)?;
        Ok::<_, crate::engine::Error>(Seen { outcome, extra, settle_s, cpu_ops_ns })
    });
    let seen = seen?;
    let counts = ProcessCounts::now().since(counts_before);
    let stats = store.engine().stats()?;
    follow(store, shape, &seen.outcome);
    let mut record = record_of(store, workload, &seen, &disk);
    record.overhead_ns = overhead_ns;
    add_costs(&mut record, &counts, &stats_before, stats);
    Ok(record)
}

/// Operations of a workload in all; none where only the stream's end or the time ends it.
fn ops_of(store: &Store<'_>, shape: Shape) -> Option<u64> {
    match shape {
        Shape::Fill { .. } => Some(store.settings.keys),
        Shape::DropPartitions => Some(DROPPED.len() as u64),
        _ if store.settings.ops.is_some() => store.settings.ops,
        Shape::Delete => shape.ops_by_default(store.settings.keys),
        _ if store.settings.duration.is_some() => None,
        _ => shape.ops_by_default(store.settings.keys),
    }
}

/// Does the benchmark's own work that the measured time should not pay for.
fn get_ready(store: &Store<'_>, workload: &Workload) {
    match workload.shape {
        Shape::Fill { sorted: true } => store.dataset.prepare_sorted(),
        Shape::Mix { missing: true, .. } => drop(store.dataset.bounds().clone()),
        _ => {}
    }
}

/// One stream for each thread.
fn streams(store: &Store<'_>, workload: &Workload, purpose: &'static str) -> Vec<Work> {
    let shape = workload.shape;
    let stream = |thread| {
        let mut context = store.context(purpose, shape, thread);
        context.scan_len = workload.scan_len.unwrap_or(context.scan_len);
        Work::Ops(shape.stream(&context, store.settings.distribution))
    };
    (0..store.settings.threads).map(stream).collect()
}

/// Gets by the workload's own choice of keys, before workloads that read.
fn warm_up(store: &Store<'_>, workload: &Workload) -> Result<()> {
    let ops = store.settings.warmup_ops();
    let shape = match workload.shape {
        Shape::Mix { mix, distribution, missing, .. } if mix.get + mix.scan + mix.read_modify_write > 0 => {
            Shape::Mix { mix: Mix::GETS, distribution, missing, many: false }
        }
        Shape::ReadWhileWriting => workload.shape,
        _ => return Ok(()),
    };
    if ops == 0 {
        return Ok(());
    }
    let progress = AtomicU64::new(0);
    let label = format!("{} {} (warm-up)", store.factory.name, workload.name);
    let work = streams(store, &Workload { shape, ..*workload }, "warm-up");
    let phase = Phase { ops, ..phase(store, work, &progress) };
    watched(&label, Some(ops), store.dir(), &progress, || phase.run()).0?;
    Ok(())
}

/// A phase without limits or rate.
fn phase<'a>(store: &'a Store<'_>, work: Vec<Work>, progress: &'a AtomicU64) -> Phase<'a> {
    Phase {
        engine: store.engine(),
        work,
        ops: u64::MAX,
        duration_s: None,
        rate: None,
        beside: None,
        timing_cost_ns: store.timing_cost_ns,
        progress,
    }
}

/// Time per operation that remains when the engine does nothing.
fn overhead_ns(store: &Store<'_>, workload: &Workload) -> Result<f64> {
    if matches!(workload.shape, Shape::ReadAll { .. } | Shape::DropPartitions) {
        return Ok(0.0);
    }
    let Some(Work::Ops(mut stream)) = streams(store, workload, workload.name).into_iter().next() else {
        return Ok(0.0);
    };
    let mut session = NullEngine.session()?;
    let (mut op, mut tally) = (Op::new(), Tally::default());
    let stopwatch = Stopwatch::start();
    while tally.ops < OVERHEAD_OPS && stream.next(&mut op) {
        execute(&mut *session, &op, &mut tally)?;
    }
    Ok(stopwatch.now_ns() as f64 / tally.ops.max(1) as f64)
}

fn run_shape(
    store: &Store<'_>,
    workload: &Workload,
    progress: &AtomicU64,
) -> Result<(Outcome, BTreeMap<String, f64>)> {
    let settings = store.settings;
    let shape = workload.shape;
    let mut measured = phase(store, Vec::new(), progress);
    measured.ops = ops_of(store, shape).unwrap_or(u64::MAX);
    if !matches!(shape, Shape::Fill { .. }) {
        measured.duration_s = settings.duration;
        measured.rate = settings.rate;
    }
    match shape {
        Shape::DropPartitions => return Ok((drop_partitions(store, progress)?, BTreeMap::new())),
        Shape::ReadAfterDrop => return read_after_drop(store, workload, measured),
        Shape::ReadAll { reverse } => {
            let direction = if reverse { Direction::Reverse } else { Direction::Forward };
            measured.work = (0..settings.threads).map(|_| Work::ScanAll(direction)).collect();
        }
        _ => measured.work = streams(store, workload, workload.name),
    }
    if shape == Shape::ReadWhileWriting {
        let context = store.context("writer", shape, settings.threads);
        measured.beside = Some((Shape::writer_stream(&context), settings.write_rate));
    }
    let outcome = measured.run()?;
    Ok((outcome, BTreeMap::new()))
}

/// Drops some partitions, one by one.
fn drop_partitions(store: &Store<'_>, progress: &AtomicU64) -> Result<Outcome> {
    let mut recorder = Recorder::new(Stopwatch::start(), store.timing_cost_ns, true);
    for partition in DROPPED {
        let begin_ns = recorder.now_ns();
        store.engine().drop_partition(partition)?;
        let end_ns = recorder.now_ns();
        recorder.timed(OpKind::DropPartition, begin_ns, end_ns, 1);
        progress.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let seconds = recorder.now_ns() as f64 / 1e9;
    let tally = Tally {
        ops: DROPPED.len() as u64,
        live_bytes: -dropped_bytes(store).cast_signed(),
        ..Tally::default()
    };
    Ok(Outcome { recorder, tally, seconds, beside: None })
}

/// Bytes of keys and values in the partitions that are dropped.
fn dropped_bytes(store: &Store<'_>) -> u64 {
    let mut key = Vec::new();
    let dropped = (0..store.dataset.keys).filter(|&index| DROPPED.contains(&partition_of(index)));
    dropped.map(|index| store.dataset.entry_bytes(index, &mut key)).sum()
}

/// Reads the surviving partitions, drops the others, and reads again at once.
fn read_after_drop(
    store: &Store<'_>,
    workload: &Workload,
    measured: Phase<'_>,
) -> Result<(Outcome, BTreeMap<String, f64>)> {
    if store.dataset.keys < PARTITIONS as u64 {
        return Err(format!("{} needs at least {PARTITIONS} keys", workload.name).into());
    }
    let before_progress = AtomicU64::new(0);
    let mut before = phase(store, streams(store, workload, "before"), &before_progress);
    (before.ops, before.duration_s) = (measured.ops, measured.duration_s);
    let before = before.run()?;
    let drops = drop_partitions(store, &before_progress)?;
    let mut outcome = Phase { work: streams(store, workload, workload.name), ..measured }.run()?;
    outcome.tally.live_bytes += drops.tally.live_bytes;
    let before_latency = Latency::of(&before.recorder.all_kinds());
    let extra = BTreeMap::from([
        ("before_ops_per_s".to_owned(), before.tally.ops as f64 / before.seconds),
        ("before_p99_ns".to_owned(), before_latency.p99_ns as f64),
        ("drop_s".to_owned(), drops.seconds),
    ]);
    Ok((outcome, extra))
}

/// Waits for the store to settle; the seconds that took.
fn settle(store: &Store<'_>, shape: Shape) -> Result<f64> {
    if store.settings.no_settle || !shape.writes() {
        return Ok(0.0);
    }
    let stopwatch = Stopwatch::start();
    store.engine().settle()?;
    Ok(stopwatch.now_ns() as f64 / 1e9)
}

/// Takes down what the workload has made of the store.
fn follow(store: &mut Store<'_>, shape: Shape, outcome: &Outcome) {
    let deleted = if shape == Shape::Delete { deleted_bytes(store, outcome.tally.ops) } else { 0 };
    let change = outcome.tally.live_bytes - deleted.cast_signed();
    store.live_bytes = store.live_bytes.saturating_add_signed(change);
    store.holds = shape.keeps_all_keys().then_some(Needs::Loaded);
    if !matches!(shape, Shape::Fill { .. }) {
        // Threads insert in steps of their number; none has gone beyond the sum of all.
        store.inserted += outcome.tally.inserted * store.settings.threads as u64;
    }
}

/// Bytes of the first `ops` keys in the order of deletes, with their values. Exact unless time ended the threads
/// unevenly far.
fn deleted_bytes(store: &Store<'_>, ops: u64) -> u64 {
    let order = delete_order(&store.dataset);
    let mut key = Vec::new();
    let positions = 0..ops.min(store.dataset.keys);
    positions.map(|position| store.dataset.entry_bytes(order.apply(position), &mut key)).sum()
}

/// Disk use at the end; of a store that settles, without what it is about to remove.
fn final_disk_bytes(store: &Store<'_>, shape: Shape) -> u64 {
    let settles = !store.settings.no_settle && shape.writes();
    if settles { quiet_disk_bytes(store.dir()) } else { disk_bytes(store.dir()) }
}

fn record_of(store: &Store<'_>, workload: &Workload, seen: &Seen, disk: &DiskSampler) -> Record {
    let settings = store.settings;
    let Outcome { recorder, tally, seconds, beside } = &seen.outcome;
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
    }
    Record {
        engine: store.factory.name.to_owned(),
        workload: workload.name.to_owned(),
        keys: settings.keys,
        threads: settings.threads,
        ops: tally.ops,
        ops_per_s: tally.ops as f64 / seconds,
        p50_ns: latency.p50_ns,
        p99_ns: latency.p99_ns,
        p999_ns: latency.p999_ns,
        peak_disk_bytes: disk.peak_bytes,
        peak_rss_bytes: peak_rss_bytes(),
        p95_ns: latency.p95_ns,
        max_ns: latency.max_ns,
        mean_ns: latency.mean_ns,
        seconds: *seconds,
        settle_s: seen.settle_s,
        cpu_ops_s: seen.cpu_ops_ns as f64 / 1e9,
        longest_gap_ns: recorder.longest_gap_ns,
        timed_every: recorder.interval,
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
        series: Series {
            bucket_ms: SERIES_BUCKET_NS / 1_000_000,
            ops: recorder.series.clone(),
            disk_bytes: disk.series.clone(),
        },
        about: store.factory.about.to_owned(),
        capabilities: store.factory.capabilities,
        // Where the stores lay is of no use to others.
        config: Settings { dir: std::path::PathBuf::new(), ..settings.clone() },
        machine: Machine::this(&settings.dir),
        ..Record::default()
    }
}

/// Adds what the workload cost: amplifications, processor time, bytes.
fn add_costs(record: &mut Record, counts: &ProcessCounts, before: &EngineStats, stats: EngineStats) {
    let ratio = |bytes: u64, of: u64| (of > 0).then(|| bytes as f64 / of as f64);
    let written = record.user_written_bytes;
    record.cpu_s = counts.cpu_ns as f64 / 1e9;
    record.storage_read_bytes = counts.storage_read_bytes;
    record.storage_write_bytes = counts.storage_write_bytes;
    record.read_call_bytes = counts.read_call_bytes;
    record.write_call_bytes = counts.write_call_bytes;
    // A file system in memory counts no storage bytes; there the calls have to do.
    let storage =
        if counts.storage_write_bytes > 0 { counts.storage_write_bytes } else { counts.write_call_bytes };
    record.write_amp = ratio(storage, written);
    record.write_amp_calls = ratio(counts.write_call_bytes, written);
    record.write_amp_engine = stats
        .written_bytes
        .and_then(|bytes| ratio(bytes.saturating_sub(before.written_bytes.unwrap_or(0)), written));
    record.read_amp = ratio(counts.storage_read_bytes, record.user_read_bytes);
    record.read_amp_calls = ratio(counts.read_call_bytes, record.user_read_bytes);
    record.space_amp = ratio(record.final_disk_bytes, record.live_bytes);
    record.engine_stats = stats;
}
