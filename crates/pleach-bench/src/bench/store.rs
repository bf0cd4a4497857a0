//! The store under test: opened, emptied and loaded as workloads need it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::execute::Tally;
use super::phase::{Phase, Work};
use super::progress::watched;
use super::settings::Settings;
use crate::data::Dataset;
use crate::engine::{Engine, EngineConfig, EngineFactory, Result};
use crate::workload::{Needs, PARTITIONS, ScanLen, Shape, StreamContext};

/// An engine's store, and what is known of its contents.
pub(super) struct Store<'a> {
    pub(super) factory: &'a EngineFactory,
    pub(super) settings: &'a Settings,
    pub(super) dataset: Arc<Dataset>,
    pub(super) timing_cost_ns: f64,
    config: EngineConfig,
    engine: Option<Box<dyn Engine>>,
    /// The state it is in, if it is one that a workload may start from.
    pub(super) holds: Option<Needs>,
    /// Bytes of live keys and values.
    pub(super) live_bytes: u64,
    /// Indexes beyond the loaded ones that may have been inserted.
    pub(super) inserted: u64,
}

impl<'a> Store<'a> {
    /// Requires: the settings are checked.
    pub(super) fn new(
        factory: &'a EngineFactory,
        settings: &'a Settings,
        timing_cost_ns: f64,
    ) -> Result<Self> {
        let config = settings.engine_config(factory.name, settings.dir.join(factory.name))?;
        let dataset = Dataset::new(settings.keys, settings.key_set, settings.value_size, settings.seed);
        Ok(Self {
            factory,
            settings,
            dataset: Arc::new(dataset),
            timing_cost_ns,
            config,
            engine: None,
            holds: None,
            live_bytes: 0,
            inserted: 0,
        })
    }

    pub(super) fn dir(&self) -> &PathBuf {
        &self.config.dir
    }

    /// Requires: [`Store::prepare`] came before.
    pub(super) fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().expect("the store was prepared")
    }

    /// What the stream of `thread` has to know.
    pub(super) fn context(&self, purpose: &'static str, shape: Shape, thread: usize) -> StreamContext {
        let many = if matches!(shape, Shape::Mix { many: true, .. }) { self.settings.multi } else { 1 };
        StreamContext {
            dataset: Arc::clone(&self.dataset),
            purpose,
            thread,
            threads: self.settings.threads,
            batch: self.settings.batch,
            many,
            scan_len: ScanLen::Fixed(self.settings.scan_len),
            missing: matches!(shape, Shape::Mix { missing: true, .. }),
            partitioned: shape.needs() == Needs::Partitioned,
            inserted_before: self.inserted,
        }
    }

    /// Brings the store into the state that a workload starts from.
    pub(super) fn prepare(&mut self, needs: Needs) -> Result<()> {
        if self.holds == Some(needs) && needs == Needs::Loaded {
            return Ok(());
        }
        let partitions = if needs == Needs::Partitioned { PARTITIONS } else { 1 };
        self.reopen(partitions)?;
        match needs {
            Needs::Fresh => {}
            Needs::Loaded | Needs::Partitioned => self.load(needs)?,
            Needs::Queues => self.fill_queues()?,
        }
        self.holds = Some(needs);
        Ok(())
    }

    fn reopen(&mut self, partitions: usize) -> Result<()> {
        self.close()?;
        self.empty()?;
        fs::create_dir_all(self.dir())?;
        self.config.partitions = partitions;
        self.engine = Some((self.factory.open)(&self.config)?);
        self.live_bytes = 0;
        self.inserted = 0;
        Ok(())
    }

    fn load(&mut self, needs: Needs) -> Result<()> {
        let shape = Shape::Fill { sorted: false };
        let work = |thread| {
            let mut context = self.context("load", shape, thread);
            context.partitioned = needs == Needs::Partitioned;
            Work::Ops(shape.stream(&context, self.settings.distribution))
        };
        let work = (0..self.settings.threads).map(work).collect();
        self.fill(work, self.settings.keys)
    }

    fn fill_queues(&mut self) -> Result<()> {
        let work = |thread| {
            let context = self.context("load", Shape::Queue, thread);
            Work::Ops(Shape::queue_filling_stream(&context))
        };
        let work = (0..self.settings.threads).map(work).collect();
        self.fill(work, u64::MAX)
    }

    /// Performs unmeasured writes and waits for the store to settle.
    fn fill(&mut self, work: Vec<Work>, ops: u64) -> Result<()> {
        let progress = AtomicU64::new(0);
        let phase = Phase {
            engine: self.engine(),
            work,
            ops,
            duration_s: None,
            rate: None,
            beside: None,
            timing_cost_ns: self.timing_cost_ns,
            progress: &progress,
        };
        let name = format!("{} (loading)", self.factory.name);
        let known = (ops < u64::MAX).then_some(ops);
        let (outcome, _disk) = watched(&name, known, &self.config.dir, &progress, || phase.run());
        let tally: Tally = outcome?.tally;
        self.live_bytes = self.live_bytes.saturating_add_signed(tally.live_bytes);
        self.engine().settle()
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.holds = None;
        self.engine.take().map_or(Ok(()), Engine::close)
    }

    /// Removes what the store has on disk.
    pub(super) fn empty(&self) -> Result<()> {
        if self.dir().exists() {
            fs::remove_dir_all(self.dir())?;
        }
        Ok(())
    }
}
