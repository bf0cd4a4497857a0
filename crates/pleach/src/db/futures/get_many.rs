//! Values of many keys, read by one future.
//!
//! # Cost
//! A poll looks at the lookups of which a read has ended, however many wait.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};

use pleach_env::Result;

use super::parts::{PARTS_MAX, Parts};
use super::{Deadline, KeyBytes};
use crate::db::partition::Partition;
use crate::db::snapshot::Snapshot;
use crate::loads::block_on;
use crate::lookup::{Search, timed_out};
use crate::read_options::ReadOptions;
use crate::state::ReadView;
use crate::value::Value;

/// The values of many keys that are being read: [`Partition::get_many_async`], [`Snapshot::get_many_async`]. Any executor
/// can poll it, and it can be dropped at any time ([rules](crate#reads-that-do-not-block)). Up to 128 keys wait for blocks at
/// the same time.
///
/// # Panics
/// A poll after the answer panics.
#[must_use = "nothing is read before the future is polled"]
pub struct GetManyFuture {
    options: ReadOptions,
    keys: std::vec::IntoIter<KeyBytes>,
    answers: Vec<Option<Value>>,
    /// Lookups that wait, with the places of their answers; each is the part of the task with its number.
    open: Vec<Option<(usize, Search)>>,
    free: Vec<usize>,
    parts: Parts,
    /// Taken at the first poll.
    begun: Option<(ReadView, Deadline)>,
    has_ended: bool,
    /// What to read, if not the newest state.
    snapshot: Option<Snapshot>,
    /// Dropped last, as in [`GetFuture`](super::GetFuture).
    partition: Partition,
}

impl GetManyFuture {
    pub(in crate::db) fn new(partition: Partition, keys: Vec<KeyBytes>, options: &ReadOptions) -> Self {
        Self {
            partition,
            snapshot: None,
            options: options.clone().policy(options.policy.of_many()),
            answers: Vec::with_capacity(keys.len()),
            keys: keys.into_iter(),
            open: Vec::new(),
            free: Vec::new(),
            parts: Parts::default(),
            begun: None,
            has_ended: false,
        }
    }

    /// The same in a snapshot.
    pub(in crate::db) fn in_snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// The same in a view.
    pub(in crate::db) fn in_view(mut self, view: ReadView) -> Self {
        self.begun = Some((view, Deadline::new(&self.partition.inner().ctx, &self.options)));
        self
    }

    /// Runs it to its end on the calling thread.
    pub(in crate::db) fn run(&mut self) -> Result<Vec<Option<Value>>> {
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
            let view = match self.snapshot.take() {
                Some(snapshot) => snapshot.view_of(&self.partition)?,
                None => self.partition.view()?,
            };
            self.begun = Some((view, Deadline::new(ctx, &self.options)));
        }
        let (view, deadline) = self.begun.as_mut().expect("begun above");
        for number in self.parts.take_woken(waker) {
            if let Some((place, search)) = &mut self.open[number]
                && let Poll::Ready(answer) = search.poll(ctx, self.parts.waker(number))
            {
                self.answers[*place] = answer?;
                self.open[number] = None;
                self.free.push(number);
            }
        }
        while (self.open.len() < PARTS_MAX || !self.free.is_empty())
            && let Some(key) = self.keys.next()
        {
            let place = self.answers.len();
            self.answers.push(None);
            let mut search = match self.partition.begin_get_in(view, &key, &self.options) {
                Err(answer) => {
                    self.answers[place] = answer?;
                    continue;
                }
                Ok(search) => search,
            };
            let number = self.free.pop().unwrap_or(self.open.len());
            if number == self.open.len() {
                self.open.push(None);
            }
            match search.poll(ctx, self.parts.waker(number)) {
                Poll::Pending => self.open[number] = Some((place, search)),
                Poll::Ready(answer) => {
                    self.answers[place] = answer?;
                    self.free.push(number);
                }
            }
        }
        if self.free.len() == self.open.len() {
            return Ok(Poll::Ready(mem::take(&mut self.answers)));
        }
        deadline.wait(ctx, waker).map(|()| Poll::Pending)
    }
}

impl Future for GetManyFuture {
    type Output = Result<Vec<Option<Value>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        assert!(!self.has_ended, "the future has given its answer");
        let polled = match self.try_poll(cx.waker()) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(polled) => polled.map(Ok),
        };
        if polled.is_ready() {
            self.has_ended = true;
            // A caller may keep the future. It pins nothing, and after an error the other lookups want no further block.
            self.open.clear();
            self.answers.clear();
            self.begun = None;
            self.keys = Vec::new().into_iter();
        }
        polled
    }
}
