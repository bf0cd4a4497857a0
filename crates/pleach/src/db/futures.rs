//! Reads that do not block their thread: futures of no runtime.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use pleach_env::Result;
use smallvec::SmallVec;

use super::partition::Partition;
use crate::context::Context;
use crate::loads::{Alarm, block_on};
use crate::lookup::{Search, timed_out};
use crate::read_options::ReadOptions;
use crate::state::ReadView;
use crate::value::Value;

/// Keys whose blocks are being read at a time, for one [`GetManyFuture`].
const OPEN_MAX: usize = 128;

type KeyBytes = SmallVec<[u8; 56]>;

/// Copies of the keys.
pub(super) fn key_bytes<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Vec<KeyBytes> {
    keys.into_iter().map(|key| KeyBytes::from_slice(key.as_ref())).collect()
}

/// A value that is being read: [`Partition::get_async`]. It can be polled by any executor, and dropped at any time. A value
/// that is in memory is ready at the first poll.
#[must_use = "nothing is read before the future is polled"]
pub struct GetFuture {
    partition: Partition,
    options: ReadOptions,
    phase: Phase,
}

#[expect(clippy::large_enum_variant, reason = "a box would be allocated for each read")]
enum Phase {
    Start(KeyBytes),
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
}

impl Future for GetFuture {
    type Output = Result<Option<Value>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ctx = &this.partition.inner().ctx;
        if let Phase::Start(key) = &this.phase {
            match this.partition.begin_get(key, &this.options) {
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

/// The values of many keys that are being read: [`Partition::get_many_async`]. It can be polled by any executor, and dropped at
/// any time.
#[must_use = "nothing is read before the future is polled"]
pub struct GetManyFuture {
    partition: Partition,
    options: ReadOptions,
    keys: std::vec::IntoIter<KeyBytes>,
    answers: Vec<Option<Value>>,
    /// Lookups that wait, with the places of their answers.
    open: VecDeque<(usize, Search)>,
    /// Taken at the first poll.
    begun: Option<(ReadView, Deadline)>,
}

impl GetManyFuture {
    pub(super) fn new(partition: Partition, keys: Vec<KeyBytes>, options: &ReadOptions) -> Self {
        Self {
            partition,
            options: options.clone(),
            answers: Vec::with_capacity(keys.len()),
            keys: keys.into_iter(),
            open: VecDeque::new(),
            begun: None,
        }
    }

    /// The same in a view.
    pub(super) fn in_view(mut self, view: ReadView) -> Self {
        self.begun = Some((view, Deadline::new(&self.partition.inner().ctx, &self.options)));
        self
    }

    /// Runs it to its end on the calling thread.
    pub(super) fn run(&mut self) -> Result<Vec<Option<Value>>> {
        let env = Arc::clone(&self.partition.inner().ctx.env);
        let deadline = self.begun.as_ref().and_then(|(_, deadline)| deadline.at);
        let polled = block_on(&*env, deadline, |waker| match self.try_poll(waker) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(polled) => polled.map(Ok),
        });
        polled.unwrap_or_else(|| Err(timed_out()))
    }

    fn try_poll(&mut self, waker: &Waker) -> Result<Poll<Vec<Option<Value>>>> {
        let ctx = &self.partition.inner().ctx;
        if self.begun.is_none() {
            self.begun = Some((self.partition.view()?, Deadline::new(ctx, &self.options)));
        }
        let (view, deadline) = self.begun.as_mut().expect("begun above");
        loop {
            while self.open.len() < OPEN_MAX
                && let Some(key) = self.keys.next()
            {
                let place = self.answers.len();
                self.answers.push(None);
                match self.partition.begin_get_in(view, &key, &self.options) {
                    Err(answer) => self.answers[place] = answer?,
                    Ok(mut search) => match search.poll(ctx, waker) {
                        Poll::Ready(answer) => self.answers[place] = answer?,
                        Poll::Pending => self.open.push_back((place, search)),
                    },
                }
            }
            let Some((place, search)) = self.open.front_mut() else {
                return Ok(Poll::Ready(mem::take(&mut self.answers)));
            };
            match search.poll(ctx, waker) {
                Poll::Pending => return deadline.wait(ctx, waker).map(|()| Poll::Pending),
                Poll::Ready(answer) => self.answers[*place] = answer?,
            }
            self.open.pop_front();
        }
    }
}

impl Future for GetManyFuture {
    type Output = Result<Vec<Option<Value>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        match self.try_poll(cx.waker()) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(polled) => polled.map(Ok),
        }
    }
}
