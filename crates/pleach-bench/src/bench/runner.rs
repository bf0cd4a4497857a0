//! The runner: an engine's workloads one after the other, each measured and made into a record.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use pleach_command::Interrupt;

use super::accounting::{Seen, add_costs, failed_record, record_of};
use super::execute::{Tally, execute};
use super::flanks::{Flanks, in_flight};
use super::machine_lock::MachineLock;
use super::measured::{
    NO_CONVERSION, compared_with, is_lacking, ops_of, run_before, run_shape, stopped_after_s, streams,
};
use super::phase::{Outcome, Phase, Work};
use super::progress::watched;
use super::record::Record;
use super::settings::Settings;
use super::store::Store;
use crate::engine::{Engine, EngineFactory, EngineStats, Error, NullEngine, Result};
use crate::measure::{ProcessCounts, Recorder, Sampler, Stopwatch, reset_peak_rss};
use crate::workload::{Mix, Needs, Op, Planned, Shape, Workload, delete_order};

/// Operations on the null engine, to measure the benchmark's own cost.
const OVERHEAD_OPS: u64 = 20_000;

/// Runs the settings' workloads on one engine in this process. Each record goes to `sink` at once. The first failure
/// ends the run; it is a record too, unless it is an interrupt.
pub(crate) fn run_workloads(
    factory: &EngineFactory,
    settings: &Settings,
    interrupt: &Interrupt,
    sink: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    settings.check()?;
    if settings.direct && !factory.capabilities.direct_reads {
        return Err(format!("{} cannot read past the page cache (--direct)", factory.name).into());
    }
    let timing_cost_ns = Recorder::cost_ns();
    let mut store = Store::new(factory, settings, timing_cost_ns, interrupt)?;
    let lock = settings.machine_lock.as_deref().map(MachineLock::open).transpose()?;
    let mut failed = None;
    let done = settings.plan()?.iter().try_for_each(|planned| {
        if is_lacking(&store, planned) {
            return sink(failed_record(factory, settings, planned, NO_CONVERSION));
        }
        let _held = lock.as_ref().map(MachineLock::hold).transpose()?;
        let record = interrupt.check().map_err(Into::into).and_then(|()| run_workload(&mut store, planned));
        if let Err(error) = &record
            && !interrupt.is_asked()
        {
            failed = Some(failed_record(factory, settings, planned, &error.to_string()));
        }
        sink(record?)
    });
    let ended = if settings.keep { store.keep() } else { close_and_empty(&mut store) };
    // Behind the removal of the store: the disk may have been full.
    let told = failed.map_or(Ok(()), sink);
    done.and(ended).and(told)
}

fn close_and_empty(store: &mut Store<'_>) -> Result<()> {
    let closed = store.close();
    store.empty()?;
    closed
}

/// Loads a store of `factory` in this process, closes it, and calls `read` with its folder. Removes it afterwards.
pub(crate) fn with_loaded(
    factory: &EngineFactory,
    settings: &Settings,
    interrupt: &Interrupt,
    read: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    settings.check()?;
    let mut store = Store::new(factory, settings, 0.0, interrupt)?;
    let planned = Planned::parse("readrandom", 1)?;
    let done = store.prepare(&planned).and_then(|()| store.close()).and_then(|()| read(store.dir()));
    close_and_empty(&mut store)?;
    done
}

fn run_workload(store: &mut Store<'_>, planned: &Planned) -> Result<Record> {
    let shape = planned.workload.shape;
    store.prepare(planned)?;
    get_ready(store, shape);
    warm_up(store, planned)?;
    let overhead_ns = overhead_ns(store, planned)?;
    let before = run_before(store, planned)?;
    if shape == Shape::ReadWhileCompacting {
        store.overwrite_some()?;
    }
    let round = |purpose| run_round(store, planned, purpose, before.as_ref());
    let (round, flanked) = match Flanks::new(store, planned)? {
        None => (round(planned.workload.name)?, None),
        Some(flanks) => {
            let (round, flanked) = flanks.around(planned.workload.name, round)?;
            (round, Some(flanked))
        }
    };
    let prepared_by = store.history.clone();
    follow(store, planned, &round.seen);
    let mut record =
        Record { overhead_ns, prepared_by, ..record_of(store, planned, &round.seen, &round.samples) };
    add_costs(&mut record, &round.counts, &round.stats_before, round.stats);
    record.in_flight = in_flight(store, planned);
    record.extra.extend(store.open_s.take().map(|seconds| ("open_s".to_owned(), seconds)));
    if let Some(flanked) = flanked {
        record.device_reads_per_s = Some(flanked.reads_per_s());
        record.extra.insert("device_change".to_owned(), flanked.change());
        record.extra.insert("rounds_discarded".to_owned(), f64::from(flanked.discarded));
    }
    Ok(record)
}

/// The measured part of a workload with its costs.
struct Round {
    seen: Seen,
    samples: Sampler,
    counts: ProcessCounts,
    stats_before: EngineStats,
    stats: EngineStats,
}

/// `purpose` names the choice of keys.
fn run_round(
    store: &Store<'_>,
    planned: &Planned,
    purpose: &'static str,
    before: Option<&Outcome>,
) -> Result<Round> {
    let shape = planned.workload.shape;
    let progress = AtomicU64::new(0);
    let label = format!("{} {}", store.factory.name, planned.workload.name);
    reset_peak_rss();
    let stats_before = store.engine().stats()?;
    let counts_before = ProcessCounts::now();
    let (seen, samples) = watched(&label, ops_of(store, planned), store.dir(), &progress, || {
        let (outcome, mut extra) = run_shape(store, planned, purpose, &progress)?;
        extra.extend(before.iter().flat_map(|before| compared_with(before, &outcome)));
        let cpu_ops_ns = ProcessCounts::now().since(counts_before).cpu_ns;
        let settle_s = settle(store, shape)?;
        let stopped_after_s = stopped_after_s(store, planned, &outcome);
        Ok::<_, Error>(Seen { outcome, extra, settle_s, cpu_ops_ns, stopped_after_s })
    });
    let counts = ProcessCounts::now().since(counts_before);
    Ok(Round { seen: seen?, samples, counts, stats_before, stats: store.engine().stats()? })
}

/// Does work of the benchmark that should not count in the measured time.
fn get_ready(store: &Store<'_>, shape: Shape) {
    match shape {
        Shape::Fill { sorted: true } => store.dataset.prepare_sorted(),
        Shape::Mix { missing: true, .. } => drop(store.dataset.bounds().clone()),
        _ => {}
    }
}

/// Gets by the workload's own choice of keys, before workloads that read.
fn warm_up(store: &Store<'_>, planned: &Planned) -> Result<()> {
    let workload = planned.workload;
    let ops = store.settings.warmup_ops();
    let shape = match workload.shape {
        Shape::Mix { mix, distribution, missing, .. } if mix.get + mix.scan + mix.read_modify_write > 0 => {
            Shape::Mix { mix: Mix::GETS, distribution, missing, many: false }
        }
        Shape::ReadWhileWriting | Shape::ReadWhileConverting | Shape::ReadWhileCompacting => workload.shape,
        _ => return Ok(()),
    };
    if ops == 0 {
        return Ok(());
    }
    let progress = AtomicU64::new(0);
    let label = format!("{} {} (warm-up)", store.factory.name, workload.name);
    let planned = Planned { workload: Workload { shape, ..workload }, ..*planned };
    let work = streams(store, &planned, "warm-up");
    let duration_s = store.settings.warmup_s();
    let phase = Phase { ops, duration_s, ..store.phase(work, &progress) };
    watched(&label, Some(ops), store.dir(), &progress, || phase.run()).0?;
    Ok(())
}

/// Time per operation on the null engine.
fn overhead_ns(store: &Store<'_>, planned: &Planned) -> Result<f64> {
    let has_no_stream =
        |shape| matches!(shape, Shape::ReadAll { .. } | Shape::DropPartitions | Shape::Convert);
    if has_no_stream(planned.workload.shape) {
        return Ok(0.0);
    }
    let Some(Work::Ops(mut stream)) = streams(store, planned, planned.workload.name).into_iter().next()
    else {
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

/// Waits for the store to settle. Returns the seconds.
fn settle(store: &Store<'_>, shape: Shape) -> Result<f64> {
    if store.settings.no_settle || !shape.writes() {
        return Ok(0.0);
    }
    let stopwatch = Stopwatch::start();
    store.settle()?;
    Ok(stopwatch.now_ns() as f64 / 1e9)
}

/// Notes how the workload has changed the store.
fn follow(store: &mut Store<'_>, planned: &Planned, seen: &Seen) {
    let shape = planned.workload.shape;
    let outcome: &Outcome = &seen.outcome;
    let deleted = if shape == Shape::Delete { deleted_bytes(store, outcome.tally.ops) } else { 0 };
    let change = outcome.tally.live_bytes - deleted.cast_signed();
    store.live_bytes = store.live_bytes.saturating_add_signed(change);
    let is_fill = shape.is_fill();
    let cut_short = is_fill && seen.stopped_after_s.is_some();
    store.load_sorted |= cut_short;
    store.holds = (shape.keeps_all_keys() && !cut_short).then_some(Needs::Loaded);
    if shape.writes() {
        store.history.push(planned.workload.name.to_owned());
    }
    if !is_fill {
        // Each thread inserts in steps of the number of threads, so no index exceeds the sum of all.
        store.inserted += outcome.tally.inserted * planned.threads as u64;
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
