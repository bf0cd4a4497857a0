//! The measured part of a workload: its threads, limits and rate, and the few workloads that are more than one phase.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::execute::Tally;
use super::phase::{Outcome, Phase, Work};
use super::progress::watched;
use super::settings::Settings;
use super::stages::run_stages;
use super::store::Store;
use crate::engine::{Direction, Engine, Result};
use crate::measure::{Latency, Recorder, Stopwatch};
use crate::workload::{DROPPED, OpKind, PARTITIONS, Planned, Shape, partition_of};

/// Total operations of a workload; `None` if only the stream's end or the time ends it.
pub(super) fn ops_of(store: &Store<'_>, planned: &Planned) -> Option<u64> {
    let shape = planned.workload.shape;
    match shape {
        Shape::Fill { .. } => Some(store.settings.keys),
        Shape::FillStages => Some(2 * store.settings.keys),
        Shape::DropPartitions => Some(DROPPED.len() as u64),
        Shape::Convert => Some(1),
        _ if planned.ops.or(store.settings.ops).is_some() => planned.ops.or(store.settings.ops),
        Shape::Delete => shape.ops_by_default(store.settings.keys),
        _ if store.settings.load_limit.is_some() && shape.is_load() => Some(store.settings.keys),
        _ if store.settings.duration.is_some() => None,
        _ => shape.ops_by_default(store.settings.keys),
    }
}

/// Seconds after which a workload ends.
fn limit_s(settings: &Settings, shape: Shape) -> Option<f64> {
    match shape {
        _ if shape.is_load() && settings.load_limit.is_some() => settings.load_limit,
        Shape::Fill { .. } => None,
        _ => settings.duration,
    }
}

/// The limit that has ended a load early.
pub(super) fn stopped_after_s(store: &Store<'_>, planned: &Planned, outcome: &Outcome) -> Option<f64> {
    let shape = planned.workload.shape;
    let limit_s = store.settings.load_limit.filter(|_| shape.is_load());
    limit_s.filter(|_| ops_of(store, planned).is_some_and(|ops| outcome.tally.ops < ops))
}

/// One stream for each thread.
pub(super) fn streams(store: &Store<'_>, planned: &Planned, purpose: &'static str) -> Vec<Work> {
    let Planned { workload, threads, turn, .. } = *planned;
    let stream = |thread| {
        let mut context = store.context(purpose, workload.shape, thread, threads);
        context.turn = turn;
        context.scan_len = workload.scan_len.unwrap_or(context.scan_len);
        let stream = workload.shape.stream(&context, store.settings.distribution);
        match store
            .settings
            .in_flight
            .filter(|_| workload.is_futures() && store.factory.capabilities.async_get)
        {
            Some(depth) => Work::Futures(stream, depth),
            None => Work::Ops(stream),
        }
    };
    (0..threads).map(stream).collect()
}

pub(super) fn run_shape(
    store: &Store<'_>,
    planned: &Planned,
    purpose: &'static str,
    progress: &AtomicU64,
) -> Result<(Outcome, BTreeMap<String, f64>)> {
    let settings = store.settings;
    let Planned { workload, threads, .. } = *planned;
    let shape = workload.shape;
    let mut measured = store.phase(Vec::new(), progress);
    measured.ops = ops_of(store, planned).unwrap_or(u64::MAX);
    measured.duration_s = limit_s(settings, shape);
    measured.rate = settings.rate.filter(|_| !shape.is_fill() || settings.only_fills());
    match shape {
        Shape::DropPartitions => return Ok((drop_partitions(store, progress)?, BTreeMap::new())),
        Shape::Convert => return Ok((convert(store)?, BTreeMap::new())),
        Shape::FillStages => return run_stages(store, planned, progress),
        Shape::ReadAfterDrop => return read_after_drop(store, planned, measured),
        Shape::ReadAll { reverse } => {
            let direction = if reverse { Direction::Reverse } else { Direction::Forward };
            measured.work = (0..threads).map(|_| Work::ScanAll(direction)).collect();
        }
        _ => measured.work = streams(store, planned, purpose),
    }
    let engine = store.engine();
    if matches!(shape, Shape::ReadWhileWriting | Shape::ReadWhileConverting) {
        let context = store.context("writer", shape, threads, threads);
        let rate = (!settings.unpaced_writes).then_some(settings.write_rate);
        measured.beside = Some((Shape::writer_stream(&context), rate));
        if shape == Shape::ReadWhileConverting && store.factory.capabilities.compaction {
            measured.meanwhile = Some(Box::new(|| engine.convert()));
        }
        return run_beside_upkeep(engine, measured);
    }
    if shape == Shape::ReadWhileCompacting && store.factory.capabilities.compaction {
        // From the compaction's start to its end, without other limits.
        (measured.ops, measured.duration_s) = (u64::MAX, None);
        measured.until = Some(Box::new(|| engine.compact()));
    }
    let reads: &[_] = if matches!(shape, Shape::Mix { .. }) { &READS } else { &[] };
    let names = [reads, &REMAPPING].concat();
    let before = engine.stats()?.details;
    let outcome = measured.run()?;
    Ok((outcome, counted_meanwhile(&names, &before, &engine.stats()?.details)))
}

/// The engine's counts of reads of files: of blocks for gets, and of separated values.
const READS: [&str; 2] = ["lookup_reads", "value_reads"];
/// The time that key reshaping's remapping table and its file take. The engine counts it from the open, so an unmeasured load
/// is part of its own figures.
const REMAPPING: [&str; 2] = ["remap_table_ns", "remap_file_ns"];
/// The engine's counts of work on separated values, which readers and writers may feel.
const UPKEEP: [&str; 4] = ["value_moves", "value_moved_bytes", "values_converted", "value_converted_bytes"];

/// What the engine has counted under `names`, as `{name}_meanwhile`; none of what it does not count.
fn counted_meanwhile(
    names: &[&str],
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> BTreeMap<String, f64> {
    names
        .iter()
        .filter_map(|&name| {
            let count = after.get(name)?.saturating_sub(*before.get(name)?);
            Some((format!("{name}_meanwhile"), count as f64))
        })
        .collect()
}

/// Runs a phase; tells what upkeep has done meanwhile, as far as the engine counts it.
fn run_beside_upkeep(engine: &dyn Engine, measured: Phase<'_>) -> Result<(Outcome, BTreeMap<String, f64>)> {
    let converts = measured.meanwhile.is_some();
    let stats = engine.stats()?;
    let outcome = measured.run()?;
    let stats_after = engine.stats()?;
    let mut extra = counted_meanwhile(&UPKEEP, &stats.details, &stats_after.details);
    if let (Some(before), Some(after)) = (stats.stalled_ns, stats_after.stalled_ns) {
        extra.insert("stalled_meanwhile_ns".to_owned(), after.saturating_sub(before) as f64);
    }
    if converts {
        extra.insert("conversions".to_owned(), outcome.repeated as f64);
    }
    Ok((outcome, extra))
}

/// Drops some partitions, one by one.
fn drop_partitions(store: &Store<'_>, progress: &AtomicU64) -> Result<Outcome> {
    let mut recorder = Recorder::new(Stopwatch::start(), store.timing_cost_ns, true);
    for partition in DROPPED {
        let begin_ns = recorder.now_ns();
        store.engine().drop_partition(partition)?;
        let end_ns = recorder.now_ns();
        recorder.timed(OpKind::DropPartition, begin_ns, end_ns, 1);
        progress.fetch_add(1, Ordering::Relaxed);
    }
    let seconds = recorder.now_ns() as f64 / 1e9;
    let tally = Tally {
        ops: DROPPED.len() as u64,
        live_bytes: -dropped_bytes(store).cast_signed(),
        ..Tally::default()
    };
    Ok(Outcome { recorder, tally, seconds, beside: None, repeated: 0 })
}

/// The error of `convert` on engines that convert nothing. The workloads go on behind it.
pub(super) const NO_CONVERSION: &str = "the engine has no call that converts";

/// Whether the engine lacks what the workload measures.
pub(super) fn is_lacking(store: &Store<'_>, planned: &Planned) -> bool {
    planned.workload.shape == Shape::Convert && !store.factory.capabilities.compaction
}

/// Converts everything by the engine's own call.
fn convert(store: &Store<'_>) -> Result<Outcome> {
    let mut recorder = Recorder::new(Stopwatch::start(), store.timing_cost_ns, true);
    let begin_ns = recorder.now_ns();
    store.engine().convert()?;
    let end_ns = recorder.now_ns();
    recorder.timed(OpKind::Convert, begin_ns, end_ns, 1);
    let seconds = (end_ns - begin_ns) as f64 / 1e9;
    Ok(Outcome { recorder, tally: Tally { ops: 1, ..Tally::default() }, seconds, beside: None, repeated: 0 })
}

/// Bytes of keys and values in the partitions that are dropped.
fn dropped_bytes(store: &Store<'_>) -> u64 {
    let mut key = Vec::new();
    let dropped = (0..store.dataset.keys).filter(|&index| DROPPED.contains(&partition_of(index)));
    dropped.map(|index| store.dataset.entry_bytes(index, &mut key)).sum()
}

/// The reads without other load, before the measured part, for workloads that compare the two.
pub(super) fn run_before(store: &Store<'_>, planned: &Planned) -> Result<Option<Outcome>> {
    let shape = planned.workload.shape;
    let name = planned.workload.name;
    if !matches!(shape, Shape::ReadAfterDrop | Shape::ReadWhileCompacting) {
        return Ok(None);
    }
    if shape == Shape::ReadAfterDrop && store.dataset.keys < PARTITIONS as u64 {
        return Err(format!("{name} needs at least {PARTITIONS} keys").into());
    }
    let progress = AtomicU64::new(0);
    let ops = ops_of(store, planned);
    let mut phase = store.phase(streams(store, planned, "before"), &progress);
    phase.ops = ops.unwrap_or(u64::MAX);
    phase.duration_s = limit_s(store.settings, shape);
    phase.rate = store.settings.rate;
    let label = format!("{} {name} (before)", store.factory.name);
    watched(&label, ops, store.dir(), &progress, || phase.run()).0.map(Some)
}

/// The figures of a record for the part before and for the measured part.
pub(super) fn compared_with(before: &Outcome, outcome: &Outcome) -> [(String, f64); 3] {
    let ops_per_s = |outcome: &Outcome| outcome.tally.ops as f64 / outcome.seconds;
    let latency = Latency::of(&before.recorder.all_kinds());
    [
        ("before_ops_per_s".to_owned(), ops_per_s(before)),
        ("before_p99_ns".to_owned(), latency.p99_ns as f64),
        ("share_of_before".to_owned(), ops_per_s(outcome) / ops_per_s(before)),
    ]
}

/// Drops partitions and reads the others at once.
fn read_after_drop(
    store: &Store<'_>,
    planned: &Planned,
    measured: Phase<'_>,
) -> Result<(Outcome, BTreeMap<String, f64>)> {
    let drops = drop_partitions(store, &AtomicU64::new(0))?;
    let work = streams(store, planned, planned.workload.name);
    let mut outcome = Phase { work, ..measured }.run()?;
    outcome.tally.live_bytes += drops.tally.live_bytes;
    Ok((outcome, BTreeMap::from([("drop_s".to_owned(), drops.seconds)])))
}
