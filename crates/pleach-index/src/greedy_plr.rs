//! Greedy-PLR+: lines that predict the block of a key within an error bound.
//!
//! An [`IndexBuilder`](crate::IndexBuilder) makes it of the same boundaries and codes as the learned index. It stores no
//! residuals. The caller reads the blocks around the prediction and compares keys.
//!
//! A segment begins at the first key of a block. Its line goes through that key and the first key of the next block, so it is
//! one number: the codes of a block, its *step*. The segment is extended block by block while the line predicts the first
//! key and the last key of the block within the bound.
//!
//! # Invariants
//! 1. *Bounded*: a key of block `b` is predicted within `error_max` of `b`. Proof: `fit` checks it for the first and the last
//!    key of a block, and predictions are monotone.
//! 2. *Monotone*: a larger key is never predicted in a lower block. Proof: codes are, lines ascend, and a segment predicts its
//!    own blocks only.
//! 3. *Promise*: of the blocks within `error_max` of the prediction, one satisfies the promise of [`crate::Index::find`], for
//!    absent keys too. Proof: a key between two keys of a block is predicted between them, so invariant 1 holds for it. A key
//!    between blocks `b` and `b + 1` is predicted at `b - error_max` or above, and at `b + 1 + error_max` or below. So the
//!    prediction is within `error_max` of `b` or of `b + 1`, and both satisfy the promise.
//!
//! # Cost
//! 20 bytes for a segment, 36 with codes of 128 bits. A search is a binary search of segments and a division.
//!
//! # Origin
//! `LearnedKV` 4.4. Departures: points are the first and last keys of blocks instead of all keys, so that slopes depend less on
//! the distance of two neighbouring keys; slopes are integers, and the line meets its first two points exactly; a prediction
//! does not leave the blocks of its segment.

#![deny(clippy::indexing_slicing)]

use std::ops::RangeInclusive;

use crate::learned::{Gaps, encoded};
use crate::model::{Code, Gap};
use crate::snbc::{Keys, Snbc};

/// A model that predicts the block of a key within an error bound.
///
/// # Examples
///
/// ```
/// use pleach_index::IndexBuilder;
///
/// let mut builder = IndexBuilder::learning();
/// let key = |n: u32| format!("{:08}", n * n);
/// for block in 1..1000_u32 {
///     builder.boundary(key(block * 10 - 1).as_bytes(), key(block * 10).as_bytes());
/// }
/// let model = builder.greedy_plr(2).expect("keys with different codes");
/// let blocks = model.search_range(key(1234).as_bytes());
/// assert!(blocks.contains(&123) && blocks.count() <= 5);
/// assert!(model.segments() < 100);
/// ```
#[derive(Clone, Debug)]
pub struct GreedyPlr {
    encoder: Snbc,
    error_max: u32,
    lines: Width,
}

/// The lines, by the width of codes.
#[derive(Clone, Debug)]
enum Width {
    Narrow(Lines<u64>),
    Wide(Lines<u128>),
}

impl GreedyPlr {
    /// The model of the blocks between which `keys` are. `None` if keys at a boundary have equal codes even in 128 bits, or if
    /// there is one block only.
    pub(crate) fn train(keys: &Keys, error_max: u32) -> Option<Self> {
        let (encoder, gaps) = encoded(keys)?;
        let lines = match gaps {
            Gaps::Narrow(gaps) => Width::Narrow(Lines::fit(&gaps, error_max)?),
            Gaps::Wide(gaps) => Width::Wide(Lines::fit(&gaps, error_max)?),
        };
        Some(Self { encoder, error_max, lines })
    }

    /// Number of the block that is predicted for `key`.
    ///
    /// Guarantees: less than [`GreedyPlr::blocks`]. If a block has `key`, it is at most [`GreedyPlr::error_max`] away. A larger
    /// key is not predicted in a lower block.
    pub fn predict(&self, key: &[u8]) -> u32 {
        match &self.lines {
            Width::Narrow(lines) => lines.predict(self.encoder.encode(key)),
            Width::Wide(lines) => lines.predict(self.encoder.encode_wide(key)),
        }
    }

    /// Numbers of the blocks that a search for `key` has to look at: those within the error bound of the prediction.
    ///
    /// Guarantees: one of them satisfies the promise of [`Index::find`](crate::Index::find).
    pub fn search_range(&self, key: &[u8]) -> RangeInclusive<u32> {
        let predicted = self.predict(key);
        let last = self.blocks() - 1;
        predicted.saturating_sub(self.error_max)..=predicted.saturating_add(self.error_max).min(last)
    }

    /// The error bound, in blocks.
    pub fn error_max(&self) -> u32 {
        self.error_max
    }

    /// Number of blocks; at least 2.
    pub fn blocks(&self) -> u32 {
        match &self.lines {
            Width::Narrow(lines) => lines.blocks,
            Width::Wide(lines) => lines.blocks,
        }
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        match &self.lines {
            Width::Narrow(lines) => lines.firsts.len(),
            Width::Wide(lines) => lines.firsts.len(),
        }
    }

    /// Bytes of memory, those of this struct and of the encoder included.
    pub fn memory(&self) -> usize {
        let lines = match &self.lines {
            Width::Narrow(lines) => lines.memory(),
            Width::Wide(lines) => lines.memory(),
        };
        size_of::<Self>() - size_of::<Snbc>() + self.encoder.memory() + lines
    }
}

/// The segments. Keys below the first one are in block 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lines<C> {
    blocks: u32,
    /// For each segment: the code of its first key; the codes of a block; the number of its first block.
    starts: Box<[C]>,
    steps: Box<[C]>,
    firsts: Box<[u32]>,
}

impl<C: Code> Lines<C> {
    /// The segments of the blocks between which there are `gaps`. `None` if there are none, or if they do not ascend.
    fn fit(gaps: &[Gap<C>], error_max: u32) -> Option<Self> {
        let blocks = u32::try_from(gaps.len()).ok()?.checked_add(1).filter(|&blocks| blocks > 1)?;
        let ascend = gaps.iter().all(|gap| gap.0 < gap.1)
            && gaps.iter().zip(gaps.iter().skip(1)).all(|(a, b)| a.1 <= b.0);
        if !ascend {
            return None;
        }
        let (mut starts, mut steps, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
        // Each block but the first, with the code of its first key, and of its last key unless it is the last block.
        let lasts = gaps.iter().skip(1).map(|gap| Some(gap.0)).chain([None]);
        let mut points = (1..).zip(gaps.iter().map(|gap| gap.1).zip(lasts)).peekable();
        while let Some((first, (start, _))) = points.next() {
            // No code is that far from the start of the last block, which is the only one of its segment then.
            let step = points.peek().map_or(start, |(_, (next, _))| *next - start);
            let is_near = |(block, (lowest, highest)): &(u32, (C, Option<C>))| {
                let predict = |code: C| first + (code - start).steps(step).min(blocks - first);
                predict(*lowest).saturating_add(error_max) >= *block
                    && highest.is_none_or(|highest| predict(highest) <= block.saturating_add(error_max))
            };
            while points.next_if(is_near).is_some() {}
            starts.push(start);
            steps.push(step);
            firsts.push(first);
        }
        Some(Self { blocks, starts: starts.into(), steps: steps.into(), firsts: firsts.into() })
    }

    /// Number of the block that is predicted for `code`.
    fn predict(&self, code: C) -> u32 {
        let behind = self.starts.partition_point(|start| *start <= code);
        let Some(segment) = behind.checked_sub(1) else { return 0 };
        let line = self.starts.get(segment).zip(self.steps.get(segment)).zip(self.firsts.get(segment));
        let Some(((start, step), first)) = line else { return 0 };
        let end = self.firsts.get(behind).copied().unwrap_or(self.blocks);
        first + (code - *start).steps(*step).min(end - 1 - first)
    }

    /// Bytes of memory on the heap.
    fn memory(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.steps) + size_of_val(&*self.firsts)
    }
}

#[cfg(test)]
mod tests;
