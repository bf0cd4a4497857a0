//! Chunks of a range: its entries, read by futures.
//!
//! A future walks like a thread as long as blocks are in memory. Where they are not, it hands over what it has found, or
//! has the task woken when they are there. What it waits for is kept by the range, so a future can be dropped at any time.

use std::pin::Pin;
use std::task::{self, Poll, Waker, ready};

use pleach_env::{Error, Result};

use super::{Direction, Range};
use crate::keys::{Key, partition_key};
use crate::value::Value;
use crate::value_reads::{ValueLoad, read_resident_values};
use crate::values::ValueSegments;

/// Room that a chunk takes at once, in entries (arbitrary).
const ROOM: usize = 64;

/// Entries of a range that are handed over together, in the order of the walk; at least one.
pub type Chunk = Vec<(Key, Value)>;

/// The entries of a [`Range`], some at a time, for tasks: [`Range::into_chunks`].
///
/// A chunk that is in memory is ready at the first poll. A chunk ends early where the next block is not in memory; the read
/// of that block has then begun. So only the next chunk waits for it. Blocks are read ahead as for the range's iterator.
///
/// A chunk pins the blocks of its values, and the memory into which separated values were read. It has all of these, however
/// large: ask for few entries at a time if they are. A poll goes on as long as blocks are in memory, also over many tombstones.
///
/// It is no `Stream`, because that trait is not in the standard library. The crate `futures` makes one of it:
/// `try_unfold(chunks, |mut chunks| async move { Ok(chunks.next_chunk().await?.map(|chunk| (chunk, chunks))) })`.
#[must_use = "nothing is read before a chunk is asked for"]
pub struct RangeChunks {
    range: Range,
    direction: Direction,
    /// At least one.
    entries_max: usize,
    /// Returned instead of the next chunk.
    error: Option<Error>,
    /// A chunk whose separated values are being read: the places of these, and their reads.
    loading: Option<(Chunk, Vec<Load>)>,
}

/// The place of an entry in its chunk, and the read of its value.
type Load = (usize, ValueLoad);

/// A chunk that is being read: [`RangeChunks::next_chunk`]. Any executor can poll it, and it can be dropped at any time
/// ([rules](crate#reads-that-do-not-block)): the next one goes on where it was.
#[must_use = "nothing is read before the future is polled"]
pub struct ChunkFuture<'c>(&'c mut RangeChunks);

impl Range {
    /// The entries in ascending order, in chunks of up to `entries_max` (at least one), for tasks that must not block their
    /// thread. It goes on where the range stands.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(ready) = future.as_mut().poll(&mut cx) {
    /// #             return ready;
    /// #         }
    /// #     }
    /// # }
    /// # block_on(async {
    /// let db = pleach::Db::open(dir.path())?;
    /// let users = db.default_partition();
    /// for name in ["alice", "bob", "carol"] {
    ///     users.put(name, "1")?;
    /// }
    /// let mut chunks = users.range("b"..).into_chunks(1000);
    /// let mut names = Vec::new();
    /// while let Some(chunk) = chunks.next_chunk().await? {
    ///     names.extend(chunk.into_iter().map(|(name, _)| name));
    /// }
    /// assert_eq!(names, ["bob", "carol"]);
    /// # Ok::<(), pleach::Error>(())
    /// # })?;
    /// # Ok::<(), pleach::Error>(())
    /// ```
    pub fn into_chunks(self, entries_max: usize) -> RangeChunks {
        RangeChunks::new(self, Direction::Up, entries_max)
    }

    /// As [`Range::into_chunks`], in descending order.
    pub fn into_chunks_back(self, entries_max: usize) -> RangeChunks {
        RangeChunks::new(self, Direction::Down, entries_max)
    }
}

impl Range {
    /// The segments of separated values that its view has.
    fn segments(&self) -> ValueSegments {
        self.view.as_ref().map_or_else(ValueSegments::default, |view| view.state.version.values.clone())
    }

    /// Takes the separated values of a chunk that the system has in memory, and begins to read the others: their places, and
    /// their reads. Also the first error, and its place.
    fn begin_values(
        &self,
        segments: &ValueSegments,
        chunk: &mut Chunk,
    ) -> (Vec<Load>, Option<(usize, Error)>) {
        let entries = chunk.iter_mut().map(|(key, value)| (&key[..], value));
        // What could not be read is read again, and fails, by itself.
        let read = read_resident_values(&self.ctx, segments, self.partition, entries, self.fills_cache);
        let tree = self.view.as_ref().and_then(|view| view.state.version.tree(self.partition));
        if let (Ok(disorder_ns), Some(tree)) = (read, tree) {
            tree.reads.note_values(disorder_ns);
            self.ctx.look_at_reads(&tree.reads);
        }
        let mut loads = Vec::new();
        for (place, (key, value)) in chunk.iter().enumerate().filter(|(_, (_, value))| value.is_pointer()) {
            match ValueLoad::begin(
                &self.ctx,
                segments,
                partition_key(self.partition, key),
                value,
                self.fills_cache,
            ) {
                Ok(load) => loads.push((place, load)),
                Err(error) => return (loads, Some((place, error))),
            }
        }
        (loads, None)
    }
}

impl RangeChunks {
    fn new(mut range: Range, direction: Direction, entries_max: usize) -> Self {
        range.discard_ahead();
        Self { range, direction, entries_max: entries_max.max(1), error: None, loading: None }
    }

    /// The next entries; `None` at the end of the range.
    ///
    /// # Errors
    /// Those of the range's iterator. Entries in front of an error come first, in a chunk of their own. After the error the
    /// range has ended.
    pub fn next_chunk(&mut self) -> ChunkFuture<'_> {
        ChunkFuture(self)
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<Option<Chunk>>> {
        if self.loading.is_some() {
            return self.poll_values(waker);
        }
        let segments = self.range.segments();
        let mut chunk = match ready!(self.poll_entries(waker)) {
            Ok(Some(chunk)) if chunk.iter().any(|(_, value)| value.is_pointer()) => chunk,
            polled => return Poll::Ready(polled),
        };
        let (loads, failed) = self.range.begin_values(&segments, &mut chunk);
        self.loading = Some((chunk, loads));
        if let Some((place, error)) = failed {
            self.end_at(place, error);
        }
        self.poll_values(waker)
    }

    /// Ends the range with an error.
    fn fail(&mut self, error: Error) -> Error {
        self.range.finish(Err(error)).err().unwrap_or_else(Error::closed)
    }

    /// Ends the range with the error of the entry at `place` of the chunk that is being read. The entries before it come first.
    fn end_at(&mut self, place: usize, error: Error) {
        self.error = Some(self.fail(error));
        if let Some((chunk, _)) = &mut self.loading {
            chunk.truncate(place);
        }
    }

    /// The chunk, once its separated values are there.
    fn poll_values(&mut self, waker: &Waker) -> Poll<Result<Option<Chunk>>> {
        if self.range.is_closed() {
            (self.loading, self.error) = (None, None);
            return Poll::Ready(Err(self.fail(Error::closed())));
        }
        let Some((chunk, loads)) = &mut self.loading else { return Poll::Ready(Ok(None)) };
        let mut failed = None;
        loads.retain_mut(|(place, load)| {
            // Nobody gets an entry behind one that failed.
            let polled = if failed.is_none() { load.poll(&self.range.ctx, waker) } else { return false };
            match polled {
                Poll::Pending => return true,
                Poll::Ready(Ok(value)) => chunk[*place].1 = value,
                Poll::Ready(Err(error)) => failed = Some((*place, error)),
            }
            false
        });
        let is_pending = !loads.is_empty();
        if let Some((place, error)) = failed {
            self.end_at(place, error);
        }
        if is_pending {
            return Poll::Pending;
        }
        let chunk = self.loading.take().map(|(chunk, _)| chunk).filter(|chunk| !chunk.is_empty());
        Poll::Ready(match (chunk, &mut self.error) {
            (None, error) => error.take().map_or(Ok(None), Err),
            (chunk, _) => Ok(chunk),
        })
    }

    /// The next entries, with pointers to separated values.
    fn poll_entries(&mut self, waker: &Waker) -> Poll<Result<Option<Chunk>>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        let mut chunk = Chunk::new();
        while chunk.len() < self.entries_max {
            let found = if self.range.is_waiting(self.direction) {
                // A task that is given a chunk is not to be woken: it asks for the next one by itself.
                let waker = if chunk.is_empty() { waker } else { Waker::noop() };
                match self.range.poll(self.direction, waker) {
                    Poll::Ready(found) => found,
                    Poll::Pending if chunk.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                }
            } else {
                self.range.find(self.direction)
            };
            match found {
                Ok(true) => {
                    if chunk.is_empty() {
                        chunk.reserve(self.entries_max.min(ROOM));
                    }
                    chunk.extend(self.range.copy_entry(self.direction));
                }
                Ok(false) if self.range.is_waiting(self.direction) => {}
                end => {
                    self.error = self.range.finish(end).err();
                    break;
                }
            }
        }
        if chunk.is_empty()
            && let Some(error) = self.error.take()
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok((!chunk.is_empty()).then_some(chunk)))
    }
}

impl Future for ChunkFuture<'_> {
    type Output = Result<Option<Chunk>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx.waker())
    }
}
