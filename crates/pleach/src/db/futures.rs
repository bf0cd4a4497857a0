//! Reads that do not block their thread: futures of no runtime.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use pleach_env::Result;
use smallvec::SmallVec;

use super::partition::Partition;
use crate::loads::LoadFuture;
use crate::lookup::{PendingLookup, Supplied};
use crate::value::Value;

/// Keys whose blocks are being read at a time, for one [`GetManyFuture`].
const OPEN_MAX: usize = 128;

pub(super) type KeyBytes = SmallVec<[u8; 56]>;

/// A value that is being read: [`Partition::get_async`]. It can be polled by any executor, and dropped at any time. A value
/// that is in memory is ready at the first poll.
#[must_use = "nothing is read before the future is polled"]
pub struct GetFuture {
    partition: Partition,
    phase: Phase,
}

enum Phase {
    Start(KeyBytes),
    Waiting(PendingGet),
    Ended,
}

/// A lookup and the block that it waits for.
pub(super) struct PendingGet {
    lookup: PendingLookup,
    load: LoadFuture,
}

impl PendingGet {
    /// Goes on with a lookup until it waits for a block. The error is the answer.
    pub(super) fn new(
        partition: &Partition,
        mut lookup: PendingLookup,
    ) -> std::result::Result<Self, Result<Option<Value>>> {
        let ctx = &partition.inner().ctx;
        loop {
            let Some((sst, number)) = lookup.wanted() else { return Err(Ok(None)) };
            let Some(block) = sst.cached_block(number) else {
                let load = ctx.loads.load(ctx.read_driver(), sst, number).map_err(Err)?;
                return Ok(Self { lookup, load });
            };
            match lookup.supply(block) {
                Supplied::Found(answer) => return Err(Ok(answer)),
                Supplied::NotFound => ctx.note_wasted_probe(),
            }
        }
    }

    /// Waits for the block, and for those that follow where it does not hold the key.
    fn poll(
        mut self,
        partition: &Partition,
        cx: &mut Context<'_>,
    ) -> std::result::Result<Self, Result<Option<Value>>> {
        let ctx = &partition.inner().ctx;
        loop {
            let Poll::Ready(loaded) = Pin::new(&mut self.load).poll(cx) else { return Ok(self) };
            let block = loaded.map_err(|error| Err(ctx.status.read_failed(error)))?;
            match self.lookup.supply(block) {
                Supplied::Found(answer) => return Err(Ok(answer)),
                Supplied::NotFound => ctx.note_wasted_probe(),
            }
            self = Self::new(partition, self.lookup)?;
        }
    }
}

impl GetFuture {
    pub(super) fn new(partition: Partition, key: &[u8]) -> Self {
        Self { partition, phase: Phase::Start(KeyBytes::from_slice(key)) }
    }
}

impl Future for GetFuture {
    type Output = Result<Option<Value>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let pending = match mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Start(key) => self.partition.begin_get(&key),
            Phase::Waiting(pending) => Ok(pending),
            Phase::Ended => panic!("the future has given its answer"),
        };
        match pending.and_then(|pending| pending.poll(&self.partition, cx)) {
            Err(answer) => Poll::Ready(answer),
            Ok(pending) => {
                self.phase = Phase::Waiting(pending);
                Poll::Pending
            }
        }
    }
}

/// The values of many keys that are being read: [`Partition::get_many_async`]. It can be polled by any executor, and dropped at
/// any time.
#[must_use = "nothing is read before the future is polled"]
pub struct GetManyFuture {
    partition: Partition,
    keys: std::vec::IntoIter<KeyBytes>,
    answers: Vec<Option<Value>>,
    /// Lookups that wait, with the places of their answers.
    open: VecDeque<(usize, PendingGet)>,
    view: Option<crate::state::ReadView>,
}

impl GetManyFuture {
    pub(super) fn new(partition: Partition, keys: Vec<KeyBytes>) -> Self {
        let answers = Vec::with_capacity(keys.len());
        Self { partition, keys: keys.into_iter(), answers, open: VecDeque::new(), view: None }
    }

    fn try_poll(&mut self, cx: &mut Context<'_>) -> Result<Poll<Vec<Option<Value>>>> {
        if self.view.is_none() {
            self.view = Some(self.partition.view()?);
        }
        let view = self.view.as_ref().expect("taken above");
        loop {
            while self.open.len() < OPEN_MAX
                && let Some(key) = self.keys.next()
            {
                let place = self.answers.len();
                self.answers.push(None);
                match self.partition.begin_get_in(view, &key) {
                    Ok(pending) => self.open.push_back((place, pending)),
                    Err(answer) => self.answers[place] = answer?,
                }
            }
            let Some((place, pending)) = self.open.pop_front() else {
                return Ok(Poll::Ready(mem::take(&mut self.answers)));
            };
            match pending.poll(&self.partition, cx) {
                Err(answer) => self.answers[place] = answer?,
                Ok(pending) => {
                    self.open.push_front((place, pending));
                    return Ok(Poll::Pending);
                }
            }
        }
    }
}

impl Future for GetManyFuture {
    type Output = Result<Vec<Option<Value>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.try_poll(cx) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(answers)) => Poll::Ready(Ok(answers)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
