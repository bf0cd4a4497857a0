//! Training while reading: SSTs that have separators get learned indexes when the machine is idle.
//!
//! A model is made from the separators in memory and stays in memory. No file is read or written, so nothing can be lost: after
//! an open, models are made again. A trained file gets another reader (`Sst::learn_index`), and a new version shows it, as
//! after a change of filters. Lookups in flight end with the version and the reader that they began with. The separators are
//! freed with the last of those versions.
//!
//! # Cost
//! A lookup pays nothing for the exchange: it takes the reader from its version, one load less than through the file.
//! Training takes some 10 ms for an SST of 64 MiB.
//!
//! # Origin
//! `TridentKV` 3.2, algorithm 1: [`crate::training`] decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pleach_env::{Job, JobStep, failpoint};
use pleach_table::Sst;

use super::Upkeep;
use crate::stats::add;
use crate::training::{self, Moment, ProcessorUse, Verdict};
use crate::version::SstFile;

/// How often the use of the processors is asked for while there is something to train.
const MEASURED_EVERY: Duration = Duration::from_secs(1);
/// Blocks whose boundaries one step learns: an SST of 64 MiB, or many small ones.
const BLOCKS_AT_ONCE: u64 = 16 << 10;
/// Models are shown when they cover this part of the blocks that are left, because each time the runs of their SSTs are copied.
/// Arbitrary.
const SHOWN_PART: u64 = 64;

/// The job. There is none unless training is adaptive.
pub(super) struct Trainer {
    upkeep: Arc<Upkeep>,
    processors: ProcessorUse,
    /// Readers with models that no version shows yet, and the blocks of their files.
    trained: Vec<Sst>,
    trained_blocks: u64,
}

/// Counts an SST as being trained while it is written, until it is dropped.
pub(super) struct TrainingWhileWriting<'i>(&'i AtomicUsize);

impl<'i> TrainingWhileWriting<'i> {
    pub(super) fn begin(count: &'i AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for TrainingWhileWriting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Trainer {
    pub(super) fn new(upkeep: &Arc<Upkeep>) -> Self {
        let upkeep = Arc::clone(upkeep);
        let processors = ProcessorUse::default();
        let mut trainer = Self { upkeep, processors, trained: Vec::new(), trained_blocks: 0 };
        trainer.processor_use();
        trainer
    }

    /// The use of the processors; if the system does not tell it, none while the store is quiet.
    fn processor_use(&mut self) -> Option<f64> {
        let env = &self.upkeep.ctx.env;
        let Some(time) = env.processor_time() else {
            return Some(if self.upkeep.is_quiet() { 0.0 } else { 1.0 });
        };
        self.processors.measure(env.now(), time, self.upkeep.processors())
    }

    /// Shows the models to lookups, and lets blocks have the memory of the separators.
    fn show_trained(&mut self) {
        self.trained_blocks = 0;
        if !self.trained.is_empty() {
            failpoint::report("index.trained", self.trained.len() as u64);
            self.upkeep.version_set.replace_ssts(std::mem::take(&mut self.trained));
            if let Some(wakers) = self.upkeep.ctx.status.wakers() {
                wakers.cleaner.wake();
            }
        }
    }
}

impl Job for Trainer {
    fn step(&mut self) -> JobStep {
        let status = &self.upkeep.ctx.status;
        if status.is_closed() || status.poison().is_some() {
            return JobStep::Idle;
        }
        let files = self.upkeep.version_set.state.load().version.live_files();
        let untrained = files.iter().filter(|file| file.is_trainable());
        let blocks_of = |file: &Arc<SstFile>| u64::from(file.summary.data_blocks);
        let untrained_blocks: u64 = untrained.clone().map(blocks_of).sum();
        if untrained_blocks == 0 {
            self.show_trained();
            return JobStep::Idle;
        }
        let is_writing = self.upkeep.trained_while_writing.load(Ordering::Relaxed) > 0;
        let processor_use = self.processor_use();
        if training::moment_to_read(is_writing, processor_use, self.upkeep.processors()) != Moment::Good {
            self.show_trained();
            add(&self.upkeep.ctx.counters.training_waits, 1);
            return JobStep::IdleFor(MEASURED_EVERY);
        }
        let mut blocks = 0;
        let at_once = untrained.take_while(|file| {
            let is_first = blocks == 0;
            blocks += blocks_of(file);
            is_first || blocks <= BLOCKS_AT_ONCE
        });
        self.trained.extend(at_once.filter_map(|file| self.upkeep.train_while_reading(file)));
        self.trained_blocks += blocks;
        if self.trained_blocks >= BLOCKS_AT_ONCE.max(untrained_blocks / SHOWN_PART) {
            self.show_trained();
        }
        JobStep::Again
    }

    fn gives_way(&self) -> bool {
        true
    }
}

impl Upkeep {
    fn processors(&self) -> u32 {
        u32::try_from(self.ctx.env.parallelism()).unwrap_or(u32::MAX)
    }

    /// The reader of `file` with a learned index, if there is one to use. Each file is tried once, and again only if the training
    /// took too long, because other threads may have had the processor.
    fn train_while_reading(&self, file: &SstFile) -> Option<Sst> {
        let Self { ctx, encoders, .. } = self;
        let started = ctx.env.now();
        let learned = file.sst().learn_index(ctx.options.learned_choice());
        let time = ctx.env.now().saturating_sub(started);
        let error = learned.as_ref().ok().map(Sst::index_error);
        if let Err(obstacle) = &learned {
            ctx.counters.note_obstacle(*obstacle);
        }
        let verdict = training::judge(ctx.options.training_limits(), time, error);
        ctx.counters.note_training(time, verdict);
        file.note_training(verdict == Verdict::TimedOut);
        let mut sst = learned.ok()?;
        if verdict != Verdict::Used {
            return None;
        }
        add(&ctx.counters.trained_while_reading, 1);
        sst.share_encoder(encoders);
        Some(sst)
    }
}

#[cfg(test)]
mod tests;
