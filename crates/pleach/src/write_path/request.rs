//! A batch in the commit queue, and why some of a group are refused before the log.

use pleach_env::{Error, ErrorKind, Result};
use pleach_log::{Durability, SeqNo};

use super::TouchedPartitions;
use crate::memtable::{Footprint, MemtableWriter};
use crate::operations::Operations;

/// A batch in the commit queue.
pub(crate) struct WriteRequest {
    pub(crate) operations: Operations,
    pub(crate) partitions: TouchedPartitions,
    pub(crate) durability: Durability,
    /// Whether to wait for a flush to make room, and to be slowed down, rather than fail.
    pub(crate) may_wait: bool,
    /// Sequence number of its first operation, when it went to the log; 0 before.
    pub(crate) first_seq: SeqNo,
    /// Set by the leader. None after a leader panicked.
    pub(crate) result: Option<Result<()>>,
}

impl WriteRequest {
    /// A request that may wait.
    pub(crate) fn new(operations: Operations, partitions: TouchedPartitions, durability: Durability) -> Self {
        Self { operations, partitions, durability, may_wait: true, first_seq: 0, result: None }
    }

    pub(crate) fn cost(&self) -> usize {
        self.operations.payload_len()
    }
}

/// Memtable bytes of those of the group that are not refused.
pub(super) fn admitted_footprint(group: &[WriteRequest]) -> Footprint {
    let admitted = group.iter().filter(|r| r.result.is_none());
    admitted.fold(Footprint::default(), |sum, r| sum.and(r.operations.footprint()))
}

/// Refuses the largest requests of a group for which there is no memory, until the others find some.
#[cold]
pub(super) fn admit_to_memory(memtable: &mut MemtableWriter, group: &mut [WriteRequest]) {
    let bytes = |r: &&mut WriteRequest| r.operations.footprint().bytes_in_memtable();
    while !memtable.reserve(admitted_footprint(group)) {
        let admitted = group.iter_mut().filter(|r| r.result.is_none());
        let Some(largest) = admitted.max_by_key(bytes) else { return };
        largest.result = Some(Err(out_of_memory(largest.operations.footprint())));
    }
}

/// The error of operations that the memtable finds no memory for. Nothing of them was logged.
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
    for request in group.iter_mut().filter(|r| !r.may_wait && r.result.is_none()) {
        request.result = Some(Err(would_wait(why)));
    }
}

/// The error of requests that may not wait.
pub(super) fn would_wait(why: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("{why}; try again"))
}

/// Bytes of those admitted who may be slowed down.
pub(super) fn waiting_bytes(group: &[WriteRequest]) -> usize {
    group.iter().filter(|r| r.may_wait && r.result.is_none()).map(|r| r.operations.record_len()).sum()
}

/// The error of a call that uses a dropped partition.
pub(crate) fn dropped_error(name: &str) -> Error {
    Error::new(ErrorKind::Closed, format!("partition {name:?} has been dropped"))
}
