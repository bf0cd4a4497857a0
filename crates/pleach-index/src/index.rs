//! The index of an SST, of whichever kind is best for its keys.
//!
//! The builder gets each boundary between blocks as it is written. When the SST is finished, the builder trains a model and
//! takes it if it needs no more bytes than separators would ([`IndexChoice`]).
//!
//! # Invariants
//! 1. *Promise*: if `find(key)` is `b`, then `key` is above the last key of block `b - 1` and below the first key of block
//!    `b + 1`. It holds for every key, present or absent. By construction in each kind.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block.

use pleach_coding::{Malformed, common_prefix_len};

use crate::encoders::Encoders;
use crate::from_separators::FromSeparators;
use crate::greedy_plr::GreedyPlr;
use crate::learned::{KIND_LEARNED, Learned, can_learn};
use crate::separators::{Separators, SeparatorsBuilder};
use crate::snbc::Keys;

/// The builder looks whether the keys have codes after 64, 128, 256 and 512 boundaries, and then at every eightfold number. Keys
/// that tie, such as URLs, tie early; then the rest of the SST is packed without advice.
const TRIED_FIRST: usize = 64;
const TRIED_OFTEN: usize = 512;

/// A kind of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexKind {
    /// Shortest separators between blocks: for all keys.
    Separators,
    /// A model of the boundaries, without keys: for keys that become numbers in their order.
    Learned,
}

/// Which kind a builder makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexChoice {
    /// A model if neither its stored nor its resident bytes exceed those of separators; otherwise separators. Search times
    /// are not part of the rule: wherever a model is smaller, it was faster in a run (design/0011).
    #[default]
    Smallest,
    /// Separators.
    Separators,
    /// A model wherever one can be made, whatever its size; otherwise separators.
    Learned,
}

/// Why separators were taken though a model was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// The SST has one block.
    OneBlock,
    /// Keys at a boundary have equal codes even in 128 bits.
    Ties,
    /// A model would take more bytes than separators.
    Larger,
    /// Training took too long, as the caller said.
    TimedOut,
}

/// A stage of a search that waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStage {
    /// The table that narrows the search.
    Table,
    /// The keys between which the table leaves the choice.
    Keys,
}

/// The index: which block of an SST can hold a key.
#[derive(Clone, Debug)]
pub struct Index(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Separators(Separators),
    Learned(Learned),
    FromSeparators(Box<FromSeparators>),
}

impl Index {
    /// Number of the block that can hold `key`.
    ///
    /// Guarantees: less than [`Index::blocks`]. The key is above the last key of the block before, and below the first key of
    /// the block behind. That holds for absent keys too.
    #[inline]
    pub fn find(&self, key: &[u8]) -> u32 {
        match &self.0 {
            Kind::Separators(separators) => separators.find(key),
            Kind::Learned(learned) => learned.find(key),
            Kind::FromSeparators(learned) => learned.find(key),
        }
    }

    /// An address that [`Index::find`] of the same key will read at `stage`; `None` if the search waits for nothing there. A
    /// caller that searches several indexes prefetches these addresses stage by stage, so that the searches wait for memory
    /// together. This function reads what the stages before have prefetched.
    #[inline]
    pub fn address_read(&self, key: &[u8], stage: SearchStage) -> Option<*const u8> {
        match &self.0 {
            Kind::Separators(separators) => separators.reads(key, stage),
            // A model is not prefetched: its first load depends on the key's code.
            Kind::Learned(_) | Kind::FromSeparators(_) => None,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> IndexKind {
        match &self.0 {
            Kind::Separators(_) => IndexKind::Separators,
            Kind::Learned(_) | Kind::FromSeparators(_) => IndexKind::Learned,
        }
    }

    /// Number of blocks; at least 1.
    pub fn blocks(&self) -> u32 {
        match &self.0 {
            Kind::Separators(separators) => separators.blocks(),
            Kind::Learned(learned) => learned.blocks(),
            Kind::FromSeparators(learned) => learned.blocks(),
        }
    }

    /// Number of segments of the model; 0 without one.
    pub fn segments(&self) -> u32 {
        match &self.0 {
            Kind::Separators(_) => 0,
            Kind::Learned(learned) => learned.segments(),
            Kind::FromSeparators(learned) => learned.model().segments(),
        }
    }

    /// Bytes of the model's residuals: a part of [`Index::memory`]; 0 without a model.
    pub fn residual_bytes(&self) -> usize {
        match &self.0 {
            Kind::Separators(_) => 0,
            Kind::Learned(learned) => learned.residual_bytes(),
            Kind::FromSeparators(learned) => learned.model().residual_bytes(),
        }
    }

    /// Bytes of memory on the heap, besides this struct. An encoder that is shared counts in each index that shares it.
    pub fn memory(&self) -> usize {
        match &self.0 {
            Kind::Separators(separators) => separators.memory(),
            Kind::Learned(learned) => learned.own_memory() + learned.encoder().memory(),
            Kind::FromSeparators(learned) => learned.own_memory() + learned.encoder().memory(),
        }
    }

    /// Bytes of [`Index::memory`] that other indexes may share.
    pub fn shareable_memory(&self) -> usize {
        match &self.0 {
            Kind::Separators(_) => 0,
            Kind::Learned(learned) => learned.encoder().memory(),
            Kind::FromSeparators(learned) => learned.encoder().memory(),
        }
    }

    /// Shares the encoder of keys with the indexes that were passed to `encoders` before, if one of them has an equal encoder.
    pub fn share(&mut self, encoders: &Encoders) {
        match &mut self.0 {
            Kind::Separators(_) => {}
            Kind::Learned(learned) => learned.share(encoders),
            Kind::FromSeparators(learned) => learned.share(encoders),
        }
    }

    /// An index that answers every key as this one does: a model that is learned from the separators. It has no stored form.
    /// With [`IndexChoice::Smallest`] it takes less memory, with [`IndexChoice::Learned`] whatever it takes. This is training
    /// while reading.
    ///
    /// # Errors
    /// Why there is none. An index that is learned already, and [`IndexChoice::Separators`], are refused as
    /// [`Obstacle::Larger`].
    ///
    /// # Examples
    ///
    /// ```
    /// use pleach_index::{IndexBuilder, IndexChoice, IndexKind};
    ///
    /// let mut builder = IndexBuilder::new();
    /// for block in 1..1000_u32 {
    ///     let key = |n: u32| format!("{n:08}");
    ///     builder.boundary(key(block * 10 - 1).as_bytes(), key(block * 10).as_bytes());
    /// }
    /// let index = builder.finish();
    /// let learned = index.learn_from_separators(IndexChoice::Smallest)?;
    /// assert_eq!((index.kind(), learned.kind()), (IndexKind::Separators, IndexKind::Learned));
    /// assert_eq!(learned.find(b"00001234"), index.find(b"00001234"));
    /// assert!(learned.memory() < index.memory());
    /// # Ok::<(), pleach_index::Obstacle>(())
    /// ```
    pub fn learn_from_separators(&self, choice: IndexChoice) -> Result<Self, Obstacle> {
        let (Kind::Separators(separators), IndexChoice::Smallest | IndexChoice::Learned) = (&self.0, choice)
        else {
            return Err(Obstacle::Larger);
        };
        let learned = FromSeparators::train(separators, choice == IndexChoice::Learned)?;
        Ok(Self(Kind::FromSeparators(Box::new(learned))))
    }

    /// Among how many neighbouring boundaries a search chooses by residuals at most: 0, 1, 2 or 4; 0 without a model. A model
    /// that was not exact would have this error, in blocks.
    pub fn boundaries_compared(&self) -> u32 {
        match &self.0 {
            Kind::Separators(_) => 0,
            Kind::Learned(learned) => learned.boundaries_compared(),
            Kind::FromSeparators(learned) => learned.model().boundaries_compared(),
        }
    }

    /// Whether it is learned from separators: it has no stored form.
    pub fn is_from_separators(&self) -> bool {
        matches!(self.0, Kind::FromSeparators(_))
    }

    /// Appends the stored form.
    ///
    /// Requires: not [`Index::is_from_separators`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Kind::Separators(separators) => separators.encode(out),
            Kind::Learned(learned) => learned.encode(out),
            Kind::FromSeparators(_) => panic!("an index that is learned from separators is not stored"),
        }
    }

    /// Decodes the index of an SST of `blocks` data blocks from all of `bytes`. Takes memory in proportion to `bytes` and
    /// `blocks`: besides what is in proportion to `bytes`, at most 16 bytes a block.
    pub fn decode(bytes: &[u8], blocks: u32) -> Result<Self, Malformed> {
        if bytes.first() == Some(&KIND_LEARNED) {
            return Ok(Self(Kind::Learned(Learned::decode(bytes, blocks)?)));
        }
        Separators::decode(bytes, blocks).map(|separators| Self(Kind::Separators(separators)))
    }

    /// Whether two indexes share an encoder.
    #[cfg(test)]
    fn shares_with(&self, other: &Self) -> bool {
        use std::sync::Arc;
        match (&self.0, &other.0) {
            (Kind::Learned(a), Kind::Learned(b)) => Arc::ptr_eq(a.encoder(), b.encoder()),
            _ => false,
        }
    }
}

/// Collects the boundaries while an SST is written. Grammar: `new (boundary)* finish`.
///
/// # Examples
///
/// ```
/// use pleach_index::IndexBuilder;
///
/// let mut builder = IndexBuilder::learning();
/// for block in 1..1000_u32 {
///     // Each block has the keys of ten numbers.
///     let last = format!("{:08}", block * 10 - 1);
///     let first = format!("{:08}", block * 10);
///     builder.boundary(last.as_bytes(), first.as_bytes());
/// }
/// let index = builder.finish();
/// assert_eq!(index.find(b"00001234"), 123);
/// assert!(index.memory() < 2000);
/// ```
#[derive(Debug, Default)]
pub struct IndexBuilder {
    separators: SeparatorsBuilder,
    /// What a model is trained from; `None` if none is to be made, or if keys tie.
    keys: Option<Keys>,
    /// Whether a model was wanted from the start.
    wants_model: bool,
}

impl IndexBuilder {
    /// A builder of an index of one block, by separators.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder of an index of one block, of any kind. It keeps more bytes of the keys at each boundary than [`Self::new`].
    pub fn learning() -> Self {
        Self { keys: Some(Keys::default()), wants_model: true, ..Self::default() }
    }

    /// Whether a model can be made of the boundaries so far. If so, the packer should end blocks where [`Cuts`](crate::Cuts)
    /// says.
    pub fn is_learning(&self) -> bool {
        self.keys.is_some()
    }

    /// Adds the boundary between two neighbouring blocks: the last key of one and the first of the next.
    ///
    /// Requires: `last < first`, and calls come in key order.
    pub fn boundary(&mut self, last: &[u8], first: &[u8]) {
        let differ = common_prefix_len(last, first);
        assert!(last.get(differ) < first.get(differ), "blocks are written in key order");
        self.separators.boundary(first, differ);
        if let Some(keys) = &mut self.keys
            && (!keys.push(last, first, differ) || is_trial(keys.len()) && !can_learn(keys))
        {
            self.keys = None;
        }
    }

    /// The model of the boundaries so far that predicts within `error_max` blocks; see [`GreedyPlr`]. `None` without
    /// [`IndexBuilder::learning`], of one block, and if the keys at a boundary have equal codes even in 128 bits.
    pub fn greedy_plr(&self, error_max: u32) -> Option<GreedyPlr> {
        GreedyPlr::train(self.keys.as_ref()?, error_max)
    }

    /// Upper bound of the stored length if the index were finished now with [`IndexChoice::Smallest`].
    pub fn encoded_len_max(&self) -> usize {
        self.separators.encoded_len_max()
    }

    /// The index, by [`IndexChoice::Smallest`].
    pub fn finish(self) -> Index {
        self.finish_as(IndexChoice::Smallest).0
    }

    /// The index, by `choice`, and why it is not learned if a model was wanted. Without [`IndexBuilder::learning`] there is no
    /// choice but separators, and no obstacle.
    pub fn finish_as(self, choice: IndexChoice) -> (Index, Option<Obstacle>) {
        self.finish_in_time(choice, || true)
    }

    /// As [`IndexBuilder::finish_as`]. Asks `is_in_time` when a model has been trained, and takes separators if it was not.
    pub fn finish_in_time(
        self,
        choice: IndexChoice,
        is_in_time: impl FnOnce() -> bool,
    ) -> (Index, Option<Obstacle>) {
        let is_wanted = self.wants_model && choice != IndexChoice::Separators;
        let keys = self.keys.as_ref().filter(|_| is_wanted);
        let learned = keys.and_then(Learned::train);
        let is_late = learned.is_some() && !is_in_time();
        let learned = learned.filter(|_| !is_late).map(|learned| (bytes_of(&learned), learned));
        // Lower bounds of the separators' bytes decide for most SSTs, so the separators need not be finished.
        let least = self.separators.least_bytes();
        let learned = match learned {
            Some((bytes, learned)) if choice == IndexChoice::Learned || fits(bytes, least) => {
                return (Index(Kind::Learned(learned)), None);
            }
            learned => learned,
        };
        let separators = self.separators.finish();
        let obstacle = match learned {
            _ if is_late => Obstacle::TimedOut,
            Some((bytes, learned)) if fits(bytes, separators.bytes()) => {
                return (Index(Kind::Learned(learned)), None);
            }
            Some(_) => Obstacle::Larger,
            None if separators.blocks() == 1 => Obstacle::OneBlock,
            None => Obstacle::Ties,
        };
        (Index(Kind::Separators(separators)), is_wanted.then_some(obstacle))
    }
}

/// Whether the builder looks after so many boundaries.
fn is_trial(boundaries: usize) -> bool {
    let is_often = boundaries <= TRIED_OFTEN || boundaries.ilog2().is_multiple_of(3);
    boundaries.is_power_of_two() && is_often && boundaries >= TRIED_FIRST
}

/// Whether an index with these bytes, stored and in memory, takes no more than `limits`.
fn fits(bytes: (usize, usize), limits: (usize, usize)) -> bool {
    bytes.0 <= limits.0 && bytes.1 <= limits.1
}

/// Bytes stored and in memory. A shared encoder counts in full.
fn bytes_of(learned: &Learned) -> (usize, usize) {
    let mut stored = Vec::new();
    learned.encode(&mut stored);
    (stored.len(), learned.own_memory() + learned.encoder().memory())
}

#[cfg(test)]
mod tests;
