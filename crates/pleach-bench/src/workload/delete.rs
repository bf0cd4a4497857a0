//! Deletes: keys in random order, each once.

use std::sync::Arc;

use super::op::{Op, OpKind, OpStream};
use super::shape::StreamContext;
use crate::data::{Dataset, Permutation};

/// The order in which keys are deleted.
pub(crate) fn delete_order(dataset: &Dataset) -> Permutation {
    Permutation::new(dataset.keys, dataset.seed ^ 0x6465_6c65_7465)
}

/// Deletes every `threads`th key of an order of its own.
pub(super) struct DeleteStream {
    dataset: Arc<Dataset>,
    order: Permutation,
    position: u64,
    step: u64,
}

impl DeleteStream {
    pub(super) fn new(context: &StreamContext) -> Self {
        Self {
            dataset: Arc::clone(&context.dataset),
            order: delete_order(&context.dataset),
            position: context.thread as u64,
            step: context.threads as u64,
        }
    }
}

impl OpStream for DeleteStream {
    fn next(&mut self, op: &mut Op) -> bool {
        if self.position >= self.dataset.keys {
            return false;
        }
        op.kind = OpKind::Delete;
        op.partition = 0;
        op.index = self.order.apply(self.position);
        self.dataset.key_set.write(op.index, &mut op.key);
        self.position += self.step;
        true
    }
}
