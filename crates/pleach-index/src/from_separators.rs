//! The index that is learned from separators when an SST is finished: training while reading.
//!
//! The keys around a boundary are in the file. A model in memory can do without them: it answers every key exactly as the
//! separators do, so the promise of [`crate::Index::find`] holds. It is made from resident separators, takes their place in
//! memory, and is never stored.
//!
//! # Invariants
//! 1. *Points*: for a separator `s` that codes reach, `k < s` implies `code(k) < code(s)`, and `k >= s` implies
//!    `code(k) >= code(s)`, for any byte string `k`.
//! 2. *The same answer*: `find(k)` is the number of separators that are not above `k`.
//!
//! *Invariant 1.* The second half is that encoding is monotone. For the first half, let `k < s`, and let `j` be the first
//! position at which they differ. All bytes of `s` occur, so they have ranks of their own, and both codes have the same ranks
//! before `j`. There are two cases. *A symbol of `k` has a rank there that is less than that of `s`*: it occurs, or it is absent
//! and takes the rank of the next one below. Whatever follows in `k`, its code is less. *No rank is less*: `k` ends at `j` or
//! has a byte there that is below all that occur. Then the code of `k` has rank 0 there and at all later positions. The last
//! byte of `s` is not before `j`, and its rank is above 0. So the code of `k` is less. If `j` is within the prefix, the code of
//! `k` is 0, and that of `s` is not.
//!
//! *Invariant 2.* The model has the boundary of `s` between `code(s) - 1` and `code(s)`. So its answer counts exactly the
//! separators that are not above `k`, if codes reach all of them. A longer separator is kept whole, and the model has the
//! boundary of its beginning `t`. Because `s <= k` implies `code(t) <= code(k)`, the model counts all separators that are not
//! above `k`, and perhaps some long ones too many. These are the last ones that it counts, and a comparison excludes them.
//! The model gets codes plus 1, because the code of `t` may be 0.
//!
//! # Cost
//! About the bits of the codes of one block for each boundary, because every gap is one code wide. Models that are made while
//! an SST is written have wider gaps and take less.
//!
//! # Origin
//! `TridentKV` 3.2, training while reading, after Bourbon (Dai et al., 2020). Departure: those models predict with an error,
//! and a read searches around; this one is exact.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use crate::encoders::Encoders;
use crate::index::Obstacle;
use crate::model::Model;
use crate::separators::Separators;
use crate::snbc::{Points, Snbc, train_at_points};

/// The index.
#[derive(Clone, Debug)]
pub(crate) struct FromSeparators {
    /// Shared by the indexes whose encoders are equal.
    encoder: Arc<Snbc>,
    model: Model<u64>,
    long: LongSeparators,
}

impl FromSeparators {
    /// The index that answers as `separators`, if it takes less memory or `any_size` will do.
    pub(crate) fn train(separators: &Separators, any_size: bool) -> Result<Self, Obstacle> {
        if separators.blocks() == 1 {
            return Err(Obstacle::OneBlock);
        }
        let trained = Points::new(separators).and_then(|points| Self::of(&points)).ok_or(Obstacle::Ties)?;
        let memory = trained.own_memory() + trained.encoder.memory();
        if any_size || memory < separators.memory() { Ok(trained) } else { Err(Obstacle::Larger) }
    }

    fn of(points: &Points) -> Option<Self> {
        let (encoder, reach) = train_at_points(points)?;
        let mut gaps = Vec::with_capacity(points.len());
        let mut separator = points.prefix.clone();
        for suffix in points.suffixes() {
            separator.truncate(points.prefix.len());
            separator.extend_from_slice(suffix.get(..reach).unwrap_or(suffix));
            let code = encoder.encode(&separator);
            gaps.push((code, code.checked_add(1)?));
        }
        let model = Model::build(&gaps)?;
        let long = LongSeparators::new(points, reach);
        Some(Self { encoder: Arc::new(encoder), model, long })
    }

    /// Number of the block that can hold `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> u32 {
        let block = self.model.find(self.encoder.encode(key).saturating_add(1));
        if self.long.marks(block) { self.long.find(key, block) } else { block }
    }

    /// Number of blocks; at least 2.
    pub(crate) fn blocks(&self) -> u32 {
        self.model.blocks()
    }

    /// The model.
    pub(crate) fn model(&self) -> &Model<u64> {
        &self.model
    }

    /// The encoder.
    pub(crate) fn encoder(&self) -> &Arc<Snbc> {
        &self.encoder
    }

    /// Shares the encoder with those that `encoders` knows, if one of them is equal.
    pub(crate) fn share(&mut self, encoders: &Encoders) {
        self.encoder = encoders.shared(&self.encoder);
    }

    /// Bytes of memory of its own, those of this struct included, which is on the heap; the encoder's are apart.
    pub(crate) fn own_memory(&self) -> usize {
        size_of::<Self>() + self.model.memory() + self.long.memory()
    }
}

/// The separators that are longer than codes reach.
#[derive(Clone, Debug)]
struct LongSeparators {
    prefix: Box<[u8]>,
    /// A bit for each block: whether the separator before it is long. Empty if none is.
    marks: Box<[u64]>,
    /// The blocks behind long separators, ascending.
    blocks: Box<[u32]>,
    /// What the separators have behind the prefix, and where each one ends.
    bytes: Box<[u8]>,
    ends: Box<[u32]>,
}

impl LongSeparators {
    fn new(points: &Points, reach: usize) -> Self {
        let mut marks = vec![0_u64; points.len() / 64 + 1];
        let (mut blocks, mut bytes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for (block, suffix) in (1_u32..).zip(points.suffixes()).filter(|(_, suffix)| suffix.len() > reach) {
            if let Some(word) = marks.get_mut(block as usize / 64) {
                *word |= 1 << (block % 64);
            }
            blocks.push(block);
            bytes.extend_from_slice(suffix);
            ends.push(u32::try_from(bytes.len()).expect("an SST's index is far below 4 GiB"));
        }
        if blocks.is_empty() {
            marks.clear();
        }
        let prefix = if blocks.is_empty() { Box::default() } else { points.prefix.as_slice().into() };
        Self { prefix, marks: marks.into(), blocks: blocks.into(), bytes: bytes.into(), ends: ends.into() }
    }

    /// Whether the separator before `block` is long.
    #[inline]
    fn marks(&self, block: u32) -> bool {
        self.marks.get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// The block of `key` if the model says `block`, which is marked.
    #[cold]
    fn find(&self, key: &[u8], mut block: u32) -> u32 {
        let mut no = self.blocks.partition_point(|&marked| marked < block);
        while self.blocks.get(no) == Some(&block) && self.is_above(no, key) {
            block -= 1;
            let Some(before) = no.checked_sub(1) else { break };
            no = before;
        }
        block
    }

    /// Whether long separator `no` is above `key`.
    fn is_above(&self, no: usize, key: &[u8]) -> bool {
        let end_of = |no: usize| self.ends.get(no).map_or(0, |&end| end as usize);
        let start = no.checked_sub(1).map_or(0, end_of);
        let suffix = self.bytes.get(start..end_of(no)).unwrap_or_default();
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => rest < suffix,
            None => *key < *self.prefix,
        }
    }

    fn memory(&self) -> usize {
        self.prefix.len()
            + self.bytes.len()
            + size_of_val(&*self.marks)
            + size_of_val(&*self.blocks)
            + size_of_val(&*self.ends)
    }
}

#[cfg(test)]
mod tests;
