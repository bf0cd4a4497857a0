//! Metamorphic test: one history under many sets of options must give identical answers.
//!
//! Options (sizes, shapes, compression, filters, direct reads), the times of flushes and compactions, and the turns of the jobs
//! must never change an answer.

use std::sync::Arc;

use fastrand::Rng;
use pleach::env::failpoint;
use pleach::{LearnedIndex, Shape};

use crate::rig::action::Action;
use crate::rig::catch::catch;
use crate::rig::driver::{Driver, UNPACKED};
use crate::rig::plan::{Mix, Plan};
use crate::rig::query::{Answer, Query, Source};
use crate::rig::setup::{Setup, machine};
use crate::rig::threads::in_parallel;
use crate::rig::tuning::with_site;
use crate::rig::vars;
use crate::rig::world::World;

/// Larger than any history: everything stays in the memtable.
const ALL_IN_MEMORY: usize = 8 << 20;

/// The actions, and the queries in between.
enum Step {
    Do(Action),
    Ask(Query),
}

/// Which of the actions that change no answer are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upkeep {
    AsPlanned,
    None,
    /// After every action all jobs run to their end.
    Eager,
}

fn setups() -> Vec<(Setup, Upkeep)> {
    let plain = Setup {
        memtable_bytes: 16 << 10,
        sst_bytes: 4 << 10,
        shape: Some(Shape::ForestOverBottom),
        compaction_threads: 1,
        runs_per_stage: 4,
        clean_every: 10,
        filter_bits: 10,
        compression: Some(false),
        direct_reads: false,
        learned: Some(LearnedIndex::Never),
        separate_at: Some(0),
    };
    let separated = Setup { separate_at: Some(1), ..plain };
    let learned = Setup { learned: Some(LearnedIndex::Always), ..plain };
    let adaptive = Setup { learned: Some(LearnedIndex::Adaptive), ..plain };
    vec![
        (Setup { memtable_bytes: ALL_IN_MEMORY, ..plain }, Upkeep::None),
        (plain, Upkeep::AsPlanned),
        (plain, Upkeep::Eager),
        (learned, Upkeep::AsPlanned),
        (learned, Upkeep::Eager),
        (adaptive, Upkeep::AsPlanned),
        (adaptive, Upkeep::Eager),
        (Setup { compression: Some(true), sst_bytes: 64 << 10, ..adaptive }, Upkeep::AsPlanned),
        (Setup { compression: Some(true), sst_bytes: 64 << 10, ..learned }, Upkeep::AsPlanned),
        (Setup { learned: None, runs_per_stage: 2, clean_every: 1, ..plain }, Upkeep::Eager),
        (Setup { compression: Some(true), ..plain }, Upkeep::AsPlanned),
        (Setup { filter_bits: 0, ..plain }, Upkeep::None),
        (Setup { filter_bits: 32, direct_reads: true, ..plain }, Upkeep::AsPlanned),
        (Setup { runs_per_stage: 2, clean_every: 1, ..plain }, Upkeep::Eager),
        (Setup { runs_per_stage: 64, ..plain }, Upkeep::Eager),
        (Setup { shape: Some(Shape::Forest), compaction_threads: 2, ..plain }, Upkeep::AsPlanned),
        (Setup { shape: Some(Shape::Leveled), runs_per_stage: 2, ..learned }, Upkeep::Eager),
        (
            Setup { shape: None, learned: None, runs_per_stage: 2, compaction_threads: 2, ..plain },
            Upkeep::AsPlanned,
        ),
        (Setup { sst_bytes: 1 << 20, memtable_bytes: 64 << 10, ..plain }, Upkeep::AsPlanned),
        (Setup { clean_every: 1, direct_reads: true, compression: Some(true), ..plain }, Upkeep::Eager),
        (separated, Upkeep::AsPlanned),
        (Setup { runs_per_stage: 2, clean_every: 1, ..separated }, Upkeep::Eager),
        (Setup { separate_at: Some(64), direct_reads: true, ..learned }, Upkeep::AsPlanned),
        (Setup { compression: Some(true), ..separated }, Upkeep::AsPlanned),
        (
            Setup { compression: Some(true), direct_reads: true, separate_at: Some(40), ..plain },
            Upkeep::Eager,
        ),
        (Setup { compression: None, separate_at: None, runs_per_stage: 2, ..plain }, Upkeep::Eager),
        (Setup { separate_at: None, shape: None, compaction_threads: 2, ..plain }, Upkeep::Eager),
        (Setup { separate_at: None, shape: Some(Shape::Leveled), ..plain }, Upkeep::AsPlanned),
    ]
}

#[test]
fn one_history_gives_the_same_answers_under_all_options() {
    let (seed, cases) = (vars::seed(), vars::cases(40));
    println!("seeds {seed}..{}, {} sets of options", seed + cases, setups().len());
    in_parallel(cases, |case| {
        let seed = seed + case;
        // Every other history with memory for few filters, every fourth with large values.
        let site = ["tune.short_filters", "", "tune.short_filters", "tune.large_values"];
        let site = site[usize::try_from(seed % 4).unwrap()];
        catch(|| with_site(site, || compare(seed)))
            .map_err(|m| format!("{m}\nrepeat: PLEACH_SEED={seed} PLEACH_CASES=1"))
    });
}

fn compare(seed: u64) -> Result<(), String> {
    let steps = steps(seed);
    let (mut reference, mut unpacked) = (None, false);
    for (setup, upkeep) in setups() {
        let told = |message: String| format!("{setup:?}, {upkeep:?}: {message}");
        let answers = run(&steps, setup, upkeep, seed).map_err(told)?;
        unpacked |= failpoint::take_report(UNPACKED).is_some();
        let reference = reference.get_or_insert_with(|| answers.clone());
        if let Some(at) = answers.iter().zip(reference.iter()).position(|(a, b)| a != b) {
            return Err(told(format!("answer {at} differs from the first set's")));
        }
    }
    if unpacked { Ok(()) } else { Err("no packed value was read".to_owned()) }
}

/// The history that `seed` makes. Its answers are not known here, and need not be.
fn steps(seed: u64) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let setup = setups()[1].0;
    let mut plan = Plan::new(rng.fork(), &setup);
    plan.mix = Mix { full_disks: 0, togethers: 0, ..plan.mix };
    let mut world = World::new();
    let mut steps = Vec::new();
    for _ in 0..300 {
        let action = plan.next(&world);
        match &action {
            Action::Write { ops, .. } => world.write(ops),
            Action::Create(slot) => world.create(*slot),
            Action::Drop(slot) => world.drop_partition(*slot),
            _ => {}
        }
        steps.push(Step::Do(action));
        for _ in 0..2 {
            steps.push(Step::Ask(Query::random(&mut plan, &world)));
        }
    }
    steps
}

fn run(steps: &[Step], setup: Setup, upkeep: Upkeep, seed: u64) -> Result<Vec<Answer>, String> {
    let env = machine(seed);
    let mut driver = Driver::create(Arc::clone(&env), setup).map_err(|e| format!("create: {e}"))?;
    let mut answers = Vec::new();
    for step in steps {
        match step {
            Step::Do(action) if upkeep == Upkeep::None && is_upkeep(action) => {}
            Step::Do(action) => driver.must(action)?,
            Step::Ask(query) => {
                answers.push(query.ask(Source::Newest(driver.db())).map_err(|e| format!("{query:?}: {e}"))?);
            }
        }
        if upkeep == Upkeep::Eager {
            env.run_jobs();
        }
    }
    driver.check(&mut Rng::with_seed(seed))?;
    Ok(answers)
}

/// Whether it can be left out without changing an answer.
fn is_upkeep(action: &Action) -> bool {
    !matches!(action, Action::Write { .. } | Action::OnFullDisk(..) | Action::Create(_) | Action::Drop(_))
}
