//! Write request: a batch in the commit queue. A request of a group is *admitted* until it has a result; one that gets an
//! error before the log is *refused*.

use pleach_env::{Error, ErrorKind, Result};
use pleach_log::{Durability, SeqNo};

use super::TouchedPartitions;
use super::recent_writers::ThreadMark;
use crate::memtable::{Footprint, MemtableWriter};
use crate::operations::Operations;

/// A batch in the commit queue.
pub(crate) struct WriteRequest {
    pub(crate) operations: Operations,
    pub(crate) partitions: TouchedPartitions,
    pub(crate) durability: Durability,
    /// Whether the request waits for flushes and accepts to be slowed down. Otherwise it fails instead.
    pub(crate) may_wait: bool,
    /// The thread that writes it.
    pub(crate) thread: ThreadMark,
    /// Sequence number of its first operation; 0 before it was logged.
    pub(crate) first_seq: SeqNo,
    /// Set by the leader; `None` if the leader panicked.
    pub(crate) result: Option<Result<()>>,
}

impl WriteRequest {
    /// A request that may wait.
    pub(crate) fn new(operations: Operations, partitions: TouchedPartitions, durability: Durability) -> Self {
        let thread = ThreadMark::current();
        Self { operations, partitions, durability, may_wait: true, thread, first_seq: 0, result: None }
    }

    pub(crate) fn cost(&self) -> usize {
        self.operations.copied_len()
    }

    pub(crate) fn syncs(&self) -> bool {
        self.durability == Durability::Sync
    }
}

/// The admitted requests of a group.
#[inline]
pub(super) fn admitted(group: &[WriteRequest]) -> impl Iterator<Item = &WriteRequest> {
    group.iter().filter(|r| r.result.is_none())
}

#[inline]
pub(super) fn admitted_mut(group: &mut [WriteRequest]) -> impl Iterator<Item = &mut WriteRequest> {
    group.iter_mut().filter(|r| r.result.is_none())
}

/// Memory that the admitted requests take in the memtable.
pub(super) fn admitted_footprint(group: &[WriteRequest]) -> Footprint {
    admitted(group).fold(Footprint::default(), |sum, r| sum.and(r.operations.footprint()))
}

/// Reserves memory for a group. Refuses the largest requests until there is enough for the others.
#[cold]
pub(super) fn admit_to_memory(memtable: &mut MemtableWriter, group: &mut [WriteRequest]) {
    let bytes = |r: &&mut WriteRequest| r.operations.footprint().bytes_in_memtable();
    while !memtable.reserve(admitted_footprint(group)) {
        let Some(largest) = admitted_mut(group).max_by_key(bytes) else { return };
        largest.result = Some(Err(out_of_memory(largest.operations.footprint())));
    }
}

/// The error of a request for which there is no memory.
fn out_of_memory(footprint: Footprint) -> Error {
    Error::invalid(format!(
        "{} operations need {} bytes of memory, which the system does not give; commit them in smaller batches or \
         let the process have more memory",
        footprint.records,
        footprint.bytes_in_memtable()
    ))
}

/// Refuses the requests that may not wait.
pub(super) fn refuse_to_wait(group: &mut [WriteRequest], why: &str) {
    admitted_mut(group)
        .filter(|r| !r.may_wait)
        .for_each(|request| request.result = Some(Err(would_wait(why))));
}

/// The error of requests that may not wait.
pub(super) fn would_wait(why: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("{why}; try again"))
}

/// Log bytes of the admitted requests that may wait.
pub(super) fn waiting_bytes(group: &[WriteRequest]) -> usize {
    admitted(group).filter(|r| r.may_wait).map(|r| r.operations.record_len()).sum()
}

/// The error of a call that uses a dropped partition.
pub(crate) fn dropped_error(name: &str) -> Error {
    Error::new(ErrorKind::Closed, format!("partition {name:?} has been dropped"))
}
