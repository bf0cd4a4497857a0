//! The store under test: opens, empties and loads it as workloads need.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use pleach_command::Interrupt;

use super::execute::Tally;
use super::kept::KeptStore;
use super::phase::{Phase, Work};
use super::progress::watched;
use super::settings::Settings;
use super::steps::put_in_steps;
use crate::data::Dataset;
use crate::engine::{Engine, EngineConfig, EngineFactory, Result};
use crate::measure::disk_bytes;
use crate::workload::{Needs, PARTITIONS, Planned, ScanLen, Shape, StreamContext};

/// Keys per write of loads that are not measured, so that engines with a high cost per write load quickly.
const LOAD_BATCH: usize = 100;

/// One in so many keys is overwritten before a measured compaction.
const OVERWRITTEN_SHARE: u64 = 10;

/// The entry of a load in [`Store::history`].
const LOADED_SHUFFLED: &str = "load in random order";
const LOADED_SORTED: &str = "load in key order";

/// An engine's store and its known contents.
pub(super) struct Store<'a> {
    pub(super) factory: &'a EngineFactory,
    pub(super) settings: &'a Settings,
    pub(super) dataset: Arc<Dataset>,
    pub(super) timing_cost_ns: f64,
    pub(super) interrupt: &'a Interrupt,
    config: EngineConfig,
    engine: Option<Box<dyn Engine>>,
    /// Its state, if a workload may start from it.
    pub(super) holds: Option<Needs>,
    /// What has written to it since it was empty, in order.
    pub(super) history: Vec<String>,
    /// Whether a load in random order did not end in time. Later loads are in key order.
    pub(super) load_sorted: bool,
    /// Bytes of live keys and values.
    pub(super) live_bytes: u64,
    /// Indexes beyond the loaded ones that may have been inserted.
    pub(super) inserted: u64,
    /// Seconds that the open of a kept store took, until a record tells them.
    pub(super) open_s: Option<f64>,
}

impl<'a> Store<'a> {
    /// Requires: the settings are checked.
    pub(super) fn new(
        factory: &'a EngineFactory,
        settings: &'a Settings,
        timing_cost_ns: f64,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let config = settings.engine_config(factory.name, settings.dir.join(factory.name))?;
        let dataset = Dataset::new(settings.keys, settings.key_set, settings.value_size, settings.seed);
        Ok(Self {
            factory,
            settings,
            dataset: Arc::new(dataset),
            timing_cost_ns,
            interrupt,
            config,
            engine: None,
            holds: None,
            history: Vec::new(),
            load_sorted: false,
            live_bytes: 0,
            inserted: 0,
            open_s: None,
        })
    }

    pub(super) fn dir(&self) -> &PathBuf {
        &self.config.dir
    }

    /// Requires: [`Store::prepare`] came before.
    pub(super) fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().expect("the store was prepared")
    }

    /// A phase without limits or rate.
    pub(super) fn phase<'p>(&'p self, work: Vec<Work>, progress: &'p AtomicU64) -> Phase<'p> {
        Phase {
            engine: self.engine(),
            work,
            ops: u64::MAX,
            duration_s: None,
            rate: None,
            beside: None,
            meanwhile: None,
            until: None,
            timing_cost_ns: self.timing_cost_ns,
            interrupt: self.interrupt,
            progress,
        }
    }

    /// The parameters of the stream of `thread`, one of `threads`.
    pub(super) fn context(
        &self,
        purpose: &'static str,
        shape: Shape,
        thread: usize,
        threads: usize,
    ) -> StreamContext {
        let many = if matches!(shape, Shape::Mix { many: true, .. }) { self.settings.multi } else { 1 };
        StreamContext {
            dataset: Arc::clone(&self.dataset),
            purpose,
            thread,
            threads,
            turn: 0,
            batch: self.settings.batch,
            many,
            scan_len: ScanLen::Fixed(self.settings.scan_len),
            missing: matches!(shape, Shape::Mix { missing: true, .. }),
            partitioned: shape.needs() == Needs::Partitioned,
            choices: self.settings.choices(),
            inserted_before: self.inserted,
        }
    }

    /// Brings the store into the state that a workload starts from, settled.
    pub(super) fn prepare(&mut self, planned: &Planned) -> Result<()> {
        let needs = planned.workload.shape.needs();
        if self.holds == Some(needs) && needs == Needs::Loaded {
            return Ok(());
        }
        if needs == Needs::Loaded && self.settings.reuse && self.reuse()? {
            return Ok(());
        }
        let partitions = if needs == Needs::Partitioned { PARTITIONS } else { 1 };
        self.reopen(partitions)?;
        match needs {
            Needs::Fresh => {}
            Needs::Loaded if self.settings.rounds > 1 => {
                self.load(needs, partitions)?;
                // Each round starts with a store that was just opened.
                self.close()?;
                self.engine = Some((self.factory.open)(&self.config)?);
            }
            Needs::Loaded | Needs::Partitioned => self.load(needs, partitions)?,
            Needs::Queues => self.fill_queues(planned.threads)?,
        }
        self.holds = Some(needs);
        Ok(())
    }

    /// Opens what an earlier run has left; whether there was a store with the keys of this one.
    fn reuse(&mut self) -> Result<bool> {
        let Some(kept) = KeptStore::read(self.dir()).filter(|kept| kept.fits(self.settings)) else {
            return Ok(false);
        };
        self.close()?;
        self.config.partitions = 1;
        let started = Instant::now();
        self.engine = Some((self.factory.open)(&self.config)?);
        self.open_s = Some(started.elapsed().as_secs_f64());
        // A workload may change the store.
        KeptStore::remove(self.dir());
        (self.history, self.live_bytes) = (kept.history, kept.live_bytes);
        self.inserted = 0;
        self.holds = Some(Needs::Loaded);
        Ok(true)
    }

    /// Lets a later run reuse the store, if it holds exactly the keys that were loaded.
    pub(super) fn keep(&mut self) -> Result<()> {
        let is_loaded = self.holds == Some(Needs::Loaded) && self.inserted == 0 && disk_bytes(self.dir()) > 0;
        self.close()?;
        if is_loaded {
            KeptStore::write(self.dir(), self.settings, &self.history, self.live_bytes)?;
        }
        Ok(())
    }

    fn reopen(&mut self, partitions: usize) -> Result<()> {
        self.close()?;
        self.empty()?;
        fs::create_dir_all(self.dir())?;
        self.config.partitions = partitions;
        self.engine = Some((self.factory.open)(&self.config)?);
        self.history.clear();
        self.live_bytes = 0;
        self.inserted = 0;
        Ok(())
    }

    /// Loads all keys in random order, in which they are harder to read, or in key order if that has taken too long before.
    fn load(&mut self, needs: Needs, partitions: usize) -> Result<()> {
        if !self.load_sorted {
            if self.load_in_order(needs, false)? {
                return Ok(());
            }
            self.load_sorted = true;
            self.reopen(partitions)?;
        }
        self.load_in_order(needs, true)?;
        Ok(())
    }

    /// Loads the keys; returns whether all are there. A load in key order has no time limit and only one thread, because several
    /// threads would not keep the order; so has a load in steps.
    fn load_in_order(&mut self, needs: Needs, sorted: bool) -> Result<bool> {
        let shape = Shape::Fill { sorted };
        let steps = self.settings.settle_every;
        let threads = if sorted || steps.is_some() { 1 } else { self.settings.threads };
        if sorted {
            self.dataset.prepare_sorted();
        }
        let stream = |thread| {
            let mut context = self.context("load", shape, thread, threads);
            context.partitioned = needs == Needs::Partitioned;
            context.batch = context.batch.max(LOAD_BATCH);
            shape.stream(&context, self.settings.distribution)
        };
        let order = if sorted { LOADED_SORTED } else { LOADED_SHUFFLED };
        if let Some(every) = steps {
            let tally = put_in_steps(self, stream(0), every)?;
            self.note_load(&tally, order);
            return Ok(tally.ops == self.settings.keys);
        }
        let work = (0..threads).map(|thread| Work::Ops(stream(thread))).collect();
        let limit = self.settings.load_limit.filter(|_| !sorted);
        let put = self.fill(work, Some(self.settings.keys), limit, order)?;
        Ok(put == self.settings.keys)
    }

    fn fill_queues(&mut self, threads: usize) -> Result<()> {
        let work = |thread| {
            let context = self.context("load", Shape::Queue, thread, threads);
            Work::Ops(Shape::queue_filling_stream(&context))
        };
        let work = (0..threads).map(work).collect();
        self.fill(work, None, None, "fill the queues").map(drop)
    }

    /// Overwrites keys in the whole key space, without waiting for compactions, so that there is something to merge.
    pub(super) fn overwrite_some(&mut self) -> Result<()> {
        let mut context = self.context("overwrites", Shape::ReadWhileCompacting, 0, 1);
        context.batch = context.batch.max(LOAD_BATCH);
        let work = vec![Work::Ops(Shape::writer_stream(&context))];
        let ops = (self.settings.keys / OVERWRITTEN_SHARE).max(1);
        self.write(work, Some(ops), None, "overwrite a tenth").map(drop)
    }

    /// Performs unmeasured writes, and waits for the store to settle if all were done. Returns how many were done.
    fn fill(
        &mut self,
        work: Vec<Work>,
        ops: Option<u64>,
        duration_s: Option<f64>,
        what: &str,
    ) -> Result<u64> {
        let done = self.write(work, ops, duration_s, what)?;
        if ops.is_none_or(|ops| done == ops) {
            self.settle()?;
        }
        Ok(done)
    }

    /// Performs unmeasured writes. Returns how many.
    fn write(
        &mut self,
        work: Vec<Work>,
        ops: Option<u64>,
        duration_s: Option<f64>,
        what: &str,
    ) -> Result<u64> {
        let progress = AtomicU64::new(0);
        let phase = Phase { ops: ops.unwrap_or(u64::MAX), duration_s, ..self.phase(work, &progress) };
        let name = format!("{} ({what})", self.factory.name);
        let (outcome, _samples) = watched(&name, ops, self.dir(), &progress, || phase.run());
        let tally = outcome?.tally;
        self.note_load(&tally, what);
        Ok(tally.ops)
    }

    fn note_load(&mut self, tally: &Tally, what: &str) {
        self.live_bytes = self.live_bytes.saturating_add_signed(tally.live_bytes);
        self.history.push(what.to_owned());
    }

    /// Settles the store: flushes memory, and waits for flushes and compactions to end.
    pub(super) fn settle(&self) -> Result<()> {
        self.engine().flush()?;
        self.engine().settle()
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.holds = None;
        self.engine.take().map_or(Ok(()), Engine::close)
    }

    /// Removes the store's files.
    pub(super) fn empty(&self) -> Result<()> {
        KeptStore::remove(self.dir());
        if self.dir().exists() {
            fs::remove_dir_all(self.dir())?;
        }
        Ok(())
    }
}
