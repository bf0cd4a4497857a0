//! Requests to merge all runs of a partition into one, or a key range of them.
//!
//! A request is fulfilled when a merge of all runs that was started for it has ended. Runs that are flushed meanwhile do not
//! count: otherwise no request would be fulfilled while data is written.

use std::collections::BTreeMap;

use crate::keys::{KeyRange, PartitionId};
use crate::version::edit::RunId;

/// The requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pending: BTreeMap<PartitionId, Request>,
    /// Requests made so far.
    made: u64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    number: u64,
    /// Whether separated values are to be copied in the order of keys.
    converts: bool,
    /// The output of the merge that was started for it.
    merge: Option<RunId>,
}

impl Requests {
    /// Requests the merge of all runs that the partition has now, and if it `converts`, copies of their separated values in the
    /// order of keys. A merge in progress does not fulfil it.
    pub(crate) fn insert(&mut self, partition: PartitionId, converts: bool) {
        self.made += 1;
        let converts = converts || self.pending.get(&partition).is_some_and(|before| before.converts);
        self.pending.insert(partition, Request { number: self.made, converts, merge: None });
    }

    /// Whether a request for the partition is pending.
    pub(crate) fn contains(&self, partition: PartitionId) -> bool {
        self.pending.contains_key(&partition)
    }

    /// Removes a request.
    pub(crate) fn remove(&mut self, partition: PartitionId) {
        self.pending.remove(&partition);
    }

    /// Whether no request is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether a merge has yet to be started for the partition.
    pub(super) fn is_open(&self, partition: PartitionId) -> bool {
        self.pending.get(&partition).is_some_and(|request| request.merge.is_none())
    }

    /// Partitions for which a merge has yet to be started, with the number of the request and whether it converts.
    pub(super) fn open(&self) -> impl Iterator<Item = (PartitionId, u64, bool)> {
        let open = self.pending.iter().filter(|(_, request)| request.merge.is_none());
        open.map(|(id, request)| (*id, request.number, request.converts))
    }

    /// The output of the merge that was started for the request of the partition.
    pub(crate) fn output(&self, partition: PartitionId) -> Option<RunId> {
        self.pending.get(&partition)?.merge
    }

    /// Whether the merge into `output` was started for a request that converts.
    pub(super) fn converts_into(&self, partition: PartitionId, output: RunId) -> bool {
        self.pending.get(&partition).is_some_and(|request| request.converts && request.merge == Some(output))
    }

    /// Notes that the merge into `output` was started for request `number`, if that is still pending.
    pub(super) fn started(&mut self, partition: PartitionId, number: u64, output: RunId) {
        if let Some(request) = self.pending.get_mut(&partition)
            && request.number == number
        {
            request.merge = Some(output);
        }
    }

    /// Keeps the requests that `is_pending` selects, by the merge that was started for them, and whether they convert; returns
    /// whether any was removed.
    pub(super) fn retain(&mut self, is_pending: impl Fn(PartitionId, Option<RunId>, bool) -> bool) -> bool {
        let before = self.pending.len();
        self.pending.retain(|id, request| is_pending(*id, request.merge, request.converts));
        self.pending.len() < before
    }
}

/// Requests to merge a key range of a partition's runs. Each has a number, and one thread that waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeRequests {
    pending: Vec<RangeRequest>,
    /// Requests made so far.
    made: u64,
}

#[derive(Clone, Debug)]
pub(super) struct RangeRequest {
    pub(super) number: u64,
    pub(super) partition: PartitionId,
    pub(super) range: KeyRange,
    /// Whether a job is at work for it.
    is_started: bool,
}

impl RangeRequests {
    /// Requests the merge of `range` in the runs that the partition has now. Returns the number of the request.
    pub(crate) fn insert(&mut self, partition: PartitionId, range: KeyRange) -> u64 {
        self.made += 1;
        self.pending.push(RangeRequest { number: self.made, partition, range, is_started: false });
        self.made
    }

    /// Whether the request is pending.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.pending.iter().any(|request| request.number == number)
    }

    /// Removes a request.
    pub(crate) fn remove(&mut self, number: u64) {
        self.pending.retain(|request| request.number != number);
    }

    /// Whether no request is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The requests without a job, oldest first.
    pub(super) fn open(&self) -> impl Iterator<Item = &RangeRequest> {
        self.pending.iter().filter(|request| !request.is_started)
    }

    /// Whether a job has yet to be started for the partition.
    pub(super) fn is_open(&self, partition: PartitionId) -> bool {
        self.open().any(|request| request.partition == partition)
    }

    /// Notes whether a job is at work for the request.
    pub(super) fn set_started(&mut self, number: u64, is_started: bool) {
        if let Some(request) = self.pending.iter_mut().find(|request| request.number == number) {
            request.is_started = is_started;
        }
    }

    /// Keeps the requests that have a job, or that `is_pending` selects; returns whether any was removed.
    pub(super) fn retain(&mut self, is_pending: impl Fn(&RangeRequest) -> bool) -> bool {
        let before = self.pending.len();
        self.pending.retain(|request| request.is_started || is_pending(request));
        self.pending.len() < before
    }
}
