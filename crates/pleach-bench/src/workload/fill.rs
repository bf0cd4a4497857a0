//! Loads: every key once, in key order or shuffled.

use std::ops::Range;
use std::sync::Arc;

use super::op::{Op, OpKind, OpStream};
use super::shape::{StreamContext, partition_of};
use crate::data::{Dataset, Permutation, Values};

/// Puts every `threads`th key, alone or in batches.
pub(super) struct FillStream {
    dataset: Arc<Dataset>,
    values: Values,
    sorted: bool,
    partitioned: bool,
    /// Whether the keys are new.
    fresh: bool,
    batch: usize,
    /// An order of the positions; `None`: that in which they ascend.
    order: Option<(u64, Permutation)>,
    position: u64,
    /// Where it ends.
    end: u64,
    step: u64,
}

impl FillStream {
    pub(super) fn new(context: &StreamContext, sorted: bool) -> Self {
        Self::of_part(context, sorted, 0..context.dataset.keys)
    }

    /// Puts only keys of a part of the order.
    pub(super) fn of_part(context: &StreamContext, sorted: bool, part: Range<u64>) -> Self {
        let thread = context.thread as u64;
        Self {
            dataset: Arc::clone(&context.dataset),
            values: context.dataset.values.for_thread(thread),
            sorted,
            partitioned: context.partitioned,
            fresh: true,
            batch: context.batch,
            order: None,
            position: part.start + thread,
            end: part.end,
            step: context.threads as u64,
        }
    }

    /// Puts keys again that are there, not in the order of their load: otherwise the oldest values would die first.
    pub(super) fn again(context: &StreamContext) -> Self {
        let part = context.choices.clone().unwrap_or(0..context.dataset.keys);
        let permutation = Permutation::new(part.end - part.start, context.dataset.seed ^ 0x0061_6761_696e);
        let order = Some((part.start, permutation));
        Self { fresh: false, order, ..Self::of_part(context, false, part) }
    }

    fn next_index(&mut self) -> Option<u64> {
        let position = self.position;
        if position >= self.end {
            return None;
        }
        self.position += self.step;
        let position = match &self.order {
            Some((start, permutation)) => start + permutation.apply(position - start),
            None => position,
        };
        let dataset = &self.dataset;
        Some(if self.sorted { dataset.sorted(position) } else { dataset.shuffled.apply(position) })
    }

    fn next_batch(&mut self, op: &mut Op) -> bool {
        op.kind = OpKind::PutMany;
        op.partition = 0;
        op.fresh = self.fresh;
        let mut count = 0;
        while count < self.batch {
            let Some(index) = self.next_index() else { break };
            count += 1;
            let entry = &mut op.entries_mut(count)[count - 1];
            entry.index = index;
            self.dataset.key_set.write(index, &mut entry.key);
            self.values.fill(index, self.dataset.sizes.of(index) as usize, &mut entry.value);
        }
        count > 0
    }
}

impl OpStream for FillStream {
    fn next(&mut self, op: &mut Op) -> bool {
        if self.batch > 1 && !self.partitioned {
            return self.next_batch(op);
        }
        let Some(index) = self.next_index() else { return false };
        op.kind = OpKind::Put;
        op.partition = if self.partitioned { partition_of(index) } else { 0 };
        op.index = index;
        op.fresh = self.fresh;
        self.dataset.key_set.write(index, &mut op.key);
        self.values.fill(index, self.dataset.sizes.of(index) as usize, &mut op.value);
        true
    }
}
