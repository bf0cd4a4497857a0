//! A queue in a key space: append at the end, take from the front. The keys taken leave tombstones where the next search for
//! the front begins, which makes the workload hard.

use std::sync::Arc;

use super::op::{Op, OpKind, OpStream};
use super::shape::StreamContext;
use crate::data::{Dataset, Values};

/// Bytes of a queue's key: prefix and position.
pub(crate) const QUEUE_KEY_LEN: usize = 12;
/// Bytes of the prefix: a letter and the queue's number.
const PREFIX_LEN: usize = 4;

/// The prefix of one thread's queue.
pub(crate) fn queue_prefix(thread: usize, key: &mut Vec<u8>) {
    key.clear();
    key.push(b'q');
    key.extend_from_slice(&(thread as u32).swap_bytes().to_le_bytes()[1..PREFIX_LEN]);
}

/// The key at a position of a thread's queue.
pub(crate) fn queue_key(thread: usize, position: u64, key: &mut Vec<u8>) {
    queue_prefix(thread, key);
    key.extend_from_slice(&position.swap_bytes().to_le_bytes());
}

/// Turns of one thread's queue. The operation's key is the one appended; the one to be found at the front lies
/// [`Op::limit`] positions before it.
pub(super) struct QueueStream {
    dataset: Arc<Dataset>,
    values: Values,
    thread: usize,
    backlog: u64,
    position: u64,
    /// Only append until the queue has its length.
    filling: bool,
}

impl QueueStream {
    pub(super) fn new(context: &StreamContext, filling: bool) -> Self {
        let backlog = (context.dataset.keys / 10 / context.threads as u64).max(1);
        Self {
            dataset: Arc::clone(&context.dataset),
            values: context.dataset.values.for_thread(context.thread as u64),
            thread: context.thread,
            backlog,
            position: if filling { 0 } else { backlog },
            filling,
        }
    }
}

impl OpStream for QueueStream {
    fn next(&mut self, op: &mut Op) -> bool {
        if self.filling && self.position == self.backlog {
            return false;
        }
        op.kind = if self.filling { OpKind::Put } else { OpKind::Turn };
        op.partition = 0;
        op.index = self.position;
        op.fresh = true;
        op.limit = self.backlog as usize;
        queue_key(self.thread, self.position, &mut op.key);
        // All values of a queue have the size of the first key's, so that its bytes stay the same.
        self.values.fill(self.position, self.dataset.sizes.of(0) as usize, &mut op.value);
        self.position += 1;
        true
    }
}
