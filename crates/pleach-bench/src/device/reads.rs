//! The measured loops: random reads of blocks, so many in flight at a time.

use std::sync::Barrier;

use hdrhistogram::Histogram;
use pleach::env::memory::Region;
use pleach::env::{ReadDriver, ReadQueue, ReadRequest, RealEnv};

use super::BLOCK_BYTES;
use super::files::StoreFiles;
use crate::data::Random;
use crate::engine::Result;
use crate::measure::{Latency, ProcessCounts, Stopwatch, histogram};

/// How blocks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) driver: ReadDriver,
    /// Reads in flight of each thread; [`ReadDriver::Blocking`] has one.
    pub(crate) depth: u32,
    pub(crate) threads: usize,
    /// Whether the next reads begin only when all in flight have ended, as those of the next `get_many`.
    pub(crate) in_calls: bool,
}

/// What one measurement has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) reads_per_s: f64,
    pub(crate) cpu_us_per_read: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// Reads random blocks for `seconds`. `number` chooses the blocks.
pub(crate) fn sample(files: &StoreFiles, manner: Manner, seconds: f64, number: u64) -> Result<Sample> {
    let stopwatch = Stopwatch::start();
    let barrier = Barrier::new(manner.threads + 1);
    let length_ns = (seconds * 1e9) as u64;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..manner.threads as u64)
            .map(|thread| {
                let (stopwatch, barrier) = (stopwatch.clone(), &barrier);
                let random = Random::new(number, "device", thread);
                scope.spawn(move || {
                    barrier.wait();
                    let thread =
                        Thread { files, random, deadline_ns: stopwatch.now_ns() + length_ns, stopwatch };
                    thread.read(manner)
                })
            })
            .collect();
        let before = ProcessCounts::now();
        barrier.wait();
        let begin_ns = stopwatch.now_ns();
        let mut latencies = histogram();
        for thread in threads {
            let seen = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            latencies.add(seen).expect("all have the same bounds");
        }
        let elapsed_ns = (stopwatch.now_ns() - begin_ns).max(1);
        let cpu_ns = ProcessCounts::now().since(before).cpu_ns;
        let latency = Latency::of(&latencies);
        Ok(Sample {
            reads_per_s: latency.count as f64 * 1e9 / elapsed_ns as f64,
            cpu_us_per_read: cpu_ns as f64 / 1e3 / latency.count.max(1) as f64,
            p50_ns: latency.p50_ns,
            p99_ns: latency.p99_ns,
        })
    })
}

/// One thread's reads.
struct Thread<'a> {
    files: &'a StoreFiles,
    random: Random,
    stopwatch: Stopwatch,
    deadline_ns: u64,
}

impl Thread<'_> {
    fn read(mut self, manner: Manner) -> Result<Histogram<u64>> {
        let Manner { driver, depth, in_calls, .. } = manner;
        let env = RealEnv::new();
        let mut queue = ReadQueue::new(&env, driver, depth)?;
        let mut latencies = histogram();
        let mut begun_ns = Vec::new();
        for tag in 0..depth {
            let buffer = Region::try_new(BLOCK_BYTES as usize).ok_or("there is no memory for a block")?;
            begun_ns.push(self.stopwatch.now_ns());
            queue.push(self.request(buffer, u64::from(tag)))?;
        }
        let mut ended = Vec::new();
        while let Some(done) = queue.next() {
            let now_ns = self.stopwatch.now_ns();
            latencies.saturating_record(now_ns - begun_ns[done.tag as usize]);
            ended.push((done.result?, done.tag));
            if now_ns >= self.deadline_ns || in_calls && ended.len() < depth as usize {
                continue;
            }
            for (buffer, tag) in ended.drain(..) {
                begun_ns[tag as usize] = now_ns;
                queue.push(self.request(buffer, tag))?;
            }
        }
        Ok(latencies)
    }

    fn request(&mut self, buffer: Region, tag: u64) -> ReadRequest<'_, Region> {
        let (file, offset) = self.files.place(self.random.below(self.files.blocks()));
        ReadRequest { file, offset, buffer, needed: BLOCK_BYTES as usize, tag }
    }
}
