//! A store that grows by stages: in each a part of the keys is put, then as many gets choose among the keys that are there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::phase::{Outcome, Phase, Work};
use super::store::Store;
use crate::data::Distribution;
use crate::engine::Result;
use crate::measure::Latency;
use crate::workload::{Mix, OpStream, Planned, STAGES, Shape, StreamContext};

/// Performs all stages. The mean time of a put and of a get of each stage, `put_ns_1` and so on, are the extra figures.
pub(super) fn run_stages(
    store: &Store<'_>,
    planned: &Planned,
    progress: &AtomicU64,
) -> Result<(Outcome, BTreeMap<String, f64>)> {
    let keys = store.settings.keys;
    if keys < STAGES {
        return Err(format!("{} needs at least {STAGES} keys", planned.workload.name).into());
    }
    let mut extra = BTreeMap::new();
    let mut all: Option<Outcome> = None;
    for stage in 1..=STAGES {
        let part = keys * (stage - 1) / STAGES..keys * stage / STAGES;
        let gets = part.end - part.start;
        let puts =
            run(store, planned, progress, u64::MAX, |context| Shape::part_stream(context, part.clone()))?;
        let gets = run(store, planned, progress, gets, |context| get_stream(context, stage, 0..part.end))?;
        extra.insert(format!("put_ns_{stage}"), mean_ns(&puts));
        extra.insert(format!("get_ns_{stage}"), mean_ns(&gets));
        for outcome in [puts, gets] {
            match &mut all {
                None => all = Some(outcome),
                Some(all) => all.follow_with(&outcome),
            }
        }
    }
    Ok((all.ok_or("a stage was expected")?, extra))
}

/// One part of a stage, by all threads.
fn run(
    store: &Store<'_>,
    planned: &Planned,
    progress: &AtomicU64,
    ops: u64,
    stream: impl Fn(&StreamContext) -> Box<dyn OpStream>,
) -> Result<Outcome> {
    let Planned { workload, threads, .. } = *planned;
    let work = |thread| Work::Ops(stream(&store.context(workload.name, workload.shape, thread, threads)));
    let work = (0..threads).map(work).collect();
    Phase { ops, ..store.phase(work, progress) }.run()
}

/// Gets of keys that were put, each stage with other numbers.
fn get_stream(context: &StreamContext, stage: u64, there: Range<u64>) -> Box<dyn OpStream> {
    let context = StreamContext { turn: stage, choices: Some(there), ..context.clone() };
    let gets = Shape::Mix { mix: Mix::GETS, distribution: None, missing: false, many: false };
    gets.stream(&context, Distribution::Uniform)
}

fn mean_ns(outcome: &Outcome) -> f64 {
    Latency::of(&outcome.recorder.all_kinds()).mean_ns
}
