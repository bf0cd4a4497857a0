//! Reads that do not block their thread: futures of no runtime.

mod get_many;
mod parts;

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use pleach_env::Result;
use smallvec::SmallVec;

use super::partition::Partition;
use super::snapshot::Snapshot;
use crate::context::Context;
use crate::loads::Alarm;
use crate::lookup::{Search, timed_out};
use crate::read_options::ReadOptions;
use crate::value::Value;

pub use get_many::GetManyFuture;

type KeyBytes = SmallVec<[u8; 56]>;

/// Copies of the keys.
pub(super) fn key_bytes<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Vec<KeyBytes> {
    keys.into_iter().map(|key| KeyBytes::from_slice(key.as_ref())).collect()
}

/// A value that is being read: [`Partition::get_async`], [`Snapshot::get_async`]. Any executor can poll it, and it can be
/// dropped at any time ([rules](crate#reads-that-do-not-block)).
///
/// # Panics
/// A poll after the answer panics.
#[must_use = "nothing is read before the future is polled"]
pub struct GetFuture {
    options: ReadOptions,
    phase: Phase,
    /// Dropped last: it may be the last handle, which closes the store, and then no wait of this task is left.
    partition: Partition,
}

#[expect(clippy::large_enum_variant, reason = "a box would be allocated for each read")]
enum Phase {
    Start(KeyBytes),
    StartIn(Snapshot, KeyBytes),
    Waiting(Search, Deadline),
    Ended,
}

/// When a read has taken too long.
struct Deadline {
    /// `None` if it may take any time.
    at: Option<Duration>,
    /// Wakes this task then.
    alarm: Option<(Waker, Option<Alarm>)>,
}

impl Deadline {
    fn new(ctx: &Context, options: &ReadOptions) -> Self {
        Self { at: options.timeout.map(|timeout| ctx.env.now().saturating_add(timeout)), alarm: None }
    }

    /// Fails after the deadline. Before it, the task will be woken when it has come.
    fn wait(&mut self, ctx: &Context, waker: &Waker) -> Result<()> {
        let Some(at) = self.at else { return Ok(()) };
        if ctx.env.now() >= at {
            return Err(timed_out());
        }
        if !self.alarm.as_ref().is_some_and(|(known, _)| known.will_wake(waker)) {
            self.alarm = Some((waker.clone(), ctx.loads.wake_at(at, waker)));
        }
        Ok(())
    }
}

impl GetFuture {
    pub(super) fn new(partition: Partition, key: &[u8], options: &ReadOptions) -> Self {
        Self { partition, options: options.clone(), phase: Phase::Start(KeyBytes::from_slice(key)) }
    }

    /// The same in a snapshot.
    pub(super) fn in_snapshot(
        snapshot: Snapshot,
        partition: Partition,
        key: &[u8],
        options: &ReadOptions,
    ) -> Self {
        let phase = Phase::StartIn(snapshot, KeyBytes::from_slice(key));
        Self { partition, options: options.clone(), phase }
    }

    /// Begins the read; the error is the answer, where no block must be waited for. `None` if it has begun before.
    fn begin(&self) -> Option<std::result::Result<Search, Result<Option<Value>>>> {
        match &self.phase {
            Phase::Start(key) => Some(self.partition.begin_get(key, &self.options)),
            Phase::StartIn(snapshot, key) => Some(match snapshot.view_of(&self.partition) {
                Ok(view) => self.partition.begin_get_in(&view, key, &self.options),
                Err(error) => Err(Err(error)),
            }),
            _ => None,
        }
    }
}

impl Future for GetFuture {
    type Output = Result<Option<Value>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ctx = &this.partition.inner().ctx;
        if let Some(begun) = this.begin() {
            match begun {
                Ok(search) => this.phase = Phase::Waiting(search, Deadline::new(ctx, &this.options)),
                Err(answer) => {
                    this.phase = Phase::Ended;
                    return Poll::Ready(answer);
                }
            }
        }
        let Phase::Waiting(search, deadline) = &mut this.phase else {
            panic!("the future has given its answer");
        };
        let answer = match search.poll(ctx, cx.waker()) {
            Poll::Pending => match deadline.wait(ctx, cx.waker()) {
                Ok(()) => return Poll::Pending,
                Err(error) => Err(error),
            },
            Poll::Ready(answer) => answer,
        };
        this.phase = Phase::Ended;
        Poll::Ready(answer)
    }
}
