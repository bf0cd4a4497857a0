//! Reads of a seek: the blocks that the sources of a merge seek in, read together.
//!
//! The sources seek in turns. While one waits for memory, the others send their requests. When all that are left wait for
//! blocks of their files, these are read at once by a [`ReadQueue`] of the calling thread; a lone block is read by `pread`.
//! A source whose block is there goes on while the other reads are in flight.
//!
//! # Cost
//! A seek over any number of runs waits for the device about once. It waits again only for sources whose entry is the first
//! or last one of a neighbouring block.
//!
//! # Origin
//! `SifrDB`, section 4.2, "Range Query": the blocks of the start key are loaded from all trees concurrently. There by
//! threads that make point lookups; here the seeks themselves are in flight.

use std::io;

use pleach_env::{Error, ReadQueue, Result, is_out_of_files};
use pleach_table::{BlockLoad, SeekStep};
use smallvec::SmallVec;

use super::source::SourceCursor;
use crate::context::Context;

/// Blocks in flight at most, as for lookups; a seek over more runs waits more often.
const READS_MAX: u32 = 128;

/// Indices of sources.
pub(super) type Indices = SmallVec<[usize; 16]>;

/// The reads of one seek.
struct SeekReads<'c> {
    ctx: &'c Context,
    /// Made when two sources wait for blocks at the same time.
    queue: Option<ReadQueue<'c, BlockLoad>>,
    in_flight: u32,
}

/// Takes the seeks that all sources have begun to their ends. The source `first` wants a block.
pub(super) fn finish_seeks(ctx: &Context, sources: &mut [SourceCursor], first: usize) -> Result<()> {
    let mut reads = SeekReads { ctx, queue: None, in_flight: 0 };
    let mut seeking: Indices = (0..sources.len()).filter(|source| *source != first).collect();
    let mut waiting = Indices::from_slice(&[first]);
    loop {
        while !seeking.is_empty() {
            take_turns(sources, &mut seeking, &mut waiting)?;
        }
        match waiting[..] {
            [] if reads.in_flight == 0 => return Ok(()),
            [alone] if reads.in_flight == 0 => {
                sources[alone].sst_mut().read()?;
                (waiting, seeking) = (seeking, waiting);
            }
            _ => {
                reads.begin(sources, &mut waiting, &mut seeking)?;
                seeking.push(reads.end_one(sources)?);
            }
        }
    }
}

/// Takes the seek that a source has begun to its end.
pub(super) fn finish_seek(ctx: &Context, source: &mut SourceCursor) -> Result<()> {
    match take_cached(std::slice::from_mut(source))? {
        Some(first) => finish_seeks(ctx, std::slice::from_mut(source), first),
        None => Ok(()),
    }
}

/// Takes the seeks as far as they come with cached blocks. Returns the first source that wants a block of its file.
pub(super) fn take_cached(sources: &mut [SourceCursor]) -> Result<Option<usize>> {
    loop {
        let mut is_over = true;
        for (at, source) in sources.iter_mut().enumerate() {
            match source.continue_seek()? {
                SeekStep::Done => {}
                SeekStep::Memory => is_over = false,
                SeekStep::Read => return Ok(Some(at)),
            }
        }
        if is_over {
            return Ok(None);
        }
    }
}

/// Continues the seek of each source once. Those that are done leave `seeking`; those that want a block move to `waiting`.
pub(super) fn take_turns(
    sources: &mut [SourceCursor],
    seeking: &mut Indices,
    waiting: &mut Indices,
) -> Result<()> {
    let mut kept = 0;
    for at in 0..seeking.len() {
        let source = seeking[at];
        match sources[source].continue_seek()? {
            SeekStep::Done => {}
            SeekStep::Read => waiting.push(source),
            SeekStep::Memory => {
                seeking[kept] = source;
                kept += 1;
            }
        }
    }
    seeking.truncate(kept);
    Ok(())
}

impl SeekReads<'_> {
    /// Begins the reads that sources wait for, as far as the queue has room. Where no descriptor is left for a read, it first
    /// waits for others, whose sources then go on in `seeking`.
    fn begin(
        &mut self,
        sources: &mut [SourceCursor],
        waiting: &mut Indices,
        seeking: &mut Indices,
    ) -> Result<()> {
        while self.in_flight < READS_MAX
            && let Some(source) = waiting.pop()
        {
            sources[source].sst_mut().read_ahead();
            while let Err(error) = self.push(sources, source)? {
                // A read in flight owns its descriptor until it has ended.
                if self.in_flight == 0 || !is_out_of_files(&error) {
                    let path = sources[source].sst_mut().sst().path();
                    return Err(Error::io("read the SST", path, error));
                }
                seeking.push(self.end_one(sources)?);
            }
            self.in_flight += 1;
        }
        Ok(())
    }

    /// Hands the read that a source waits for to the queue.
    fn push(&mut self, sources: &mut [SourceCursor], source: usize) -> Result<io::Result<()>> {
        let queue = match &mut self.queue {
            Some(queue) => queue,
            empty => empty.insert(self.ctx.read_queue(READS_MAX)?),
        };
        Ok(queue.push(sources[source].sst_mut().begin_read(source as u64)))
    }

    /// Waits for the read that ends next, and returns its source.
    ///
    /// Requires: a read is in flight.
    fn end_one(&mut self, sources: &mut [SourceCursor]) -> Result<usize> {
        let read = self.queue.as_mut().and_then(ReadQueue::next).expect("a read is in flight");
        self.in_flight -= 1;
        let source = usize::try_from(read.tag).expect("an index");
        sources[source].sst_mut().end_read(read.result)?;
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pleach_env::SimEnv;
    use pleach_table::{BackgroundReads, ScanHints};

    use super::*;
    use crate::Options;
    use crate::scan::{Direction, Merge, RunReads, SeekTo};

    #[test]
    fn a_seek_over_more_runs_than_reads_have_room_goes_on_when_one_has_ended() {
        let env = SimEnv::new(1);
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(16 << 20);
        let db = options.clone().open("/store").unwrap();
        db.default_partition().put("key", "value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let db = options.open("/store").unwrap();
        let ctx = Arc::clone(&db.inner().ctx);
        let id = db.default_partition().id();
        let state = db.inner().version_set.state.load_full();
        let run = &state.version.tree(id).unwrap().runs[0];
        let reads = Arc::clone(&ctx) as Arc<dyn BackgroundReads>;
        let hints = Arc::new(ScanHints { reads, fills_cache: false, bound: None });
        let source = |_| {
            let reads = RunReads::Scan { hints: Arc::clone(&hints), entries: 0, usual: 0 };
            SourceCursor::over_run(id, Arc::clone(run), reads)
        };
        let count = u64::from(READS_MAX) + 20;
        let mut merge = Merge::new((0..count).map(source).collect(), Direction::Up);
        let before = env.read_count();
        merge.seek(SeekTo::Key(b"k")).unwrap();
        while merge.is_waiting() {
            merge.wait(&ctx).unwrap();
        }
        assert_eq!(merge.current().and_then(SourceCursor::key), Some(&b"key"[..]));
        // While it waited, the last ones have found the block in the cache.
        assert!((u64::from(READS_MAX)..=count).contains(&(env.read_count() - before)));
    }
}
