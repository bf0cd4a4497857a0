//! The learned index: an encoder of keys as numbers, and a model from numbers to blocks. It stores no keys.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block.
//!
//! # Origin
//! Learned index block: `TridentKV` 3.2.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use pleach_coding::{Decoder, Malformed};

use crate::encoders::Encoders;
use crate::model::{Gap, Model};
use crate::snbc::{Keys, Snbc, train};

/// Number of the kind on disk. Never renumber.
pub(crate) const KIND_LEARNED: u8 = 2;

/// Whether the keys at each boundary have different codes.
pub(crate) fn can_learn(keys: &Keys) -> bool {
    let tells_apart = |encoder: &Snbc| keys.gaps(|key| encoder.encode_wide(key)).is_some();
    train(keys, true).as_ref().is_some_and(tells_apart)
}

/// Codes of the keys at each boundary, in as few bits as tell them apart.
pub(crate) enum Gaps {
    Narrow(Vec<Gap<u64>>),
    Wide(Vec<Gap<u128>>),
}

/// An encoder, and the codes at each boundary. `None` if keys at a boundary have equal codes even in 128 bits.
pub(crate) fn encoded(keys: &Keys) -> Option<(Snbc, Gaps)> {
    if let Some(encoder) = train(keys, false)
        && let Some(gaps) = keys.gaps(|key| encoder.encode(key))
    {
        return Some((encoder, Gaps::Narrow(gaps)));
    }
    let encoder = train(keys, true)?;
    let gaps = keys.gaps(|key| encoder.encode_wide(key))?;
    Some((encoder, Gaps::Wide(gaps)))
}

/// The learned index.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    /// Shared by the indexes whose encoders are equal.
    encoder: Arc<Snbc>,
    model: Width,
}

/// The model, by the width of codes.
#[derive(Clone, Debug)]
enum Width {
    Narrow(Model<u64>),
    Wide(Model<u128>),
}

impl Learned {
    /// The index of the blocks between which `keys` are. `None` if keys at a boundary have equal codes even in 128 bits, or if
    /// there is one block only.
    pub(crate) fn train(keys: &Keys) -> Option<Self> {
        let (encoder, gaps) = encoded(keys)?;
        let model = match gaps {
            Gaps::Narrow(gaps) => Width::Narrow(Model::build(&gaps)?),
            Gaps::Wide(gaps) => Width::Wide(Model::build(&gaps)?),
        };
        Some(Self { encoder: Arc::new(encoder), model })
    }

    /// Number of the block that can hold `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> u32 {
        match &self.model {
            Width::Narrow(model) => model.find(self.encoder.encode(key)),
            Width::Wide(model) => model.find(self.encoder.encode_wide(key)),
        }
    }

    /// Number of blocks; at least 2.
    pub(crate) fn blocks(&self) -> u32 {
        match &self.model {
            Width::Narrow(model) => model.blocks(),
            Width::Wide(model) => model.blocks(),
        }
    }

    /// Number of segments.
    pub(crate) fn segments(&self) -> u32 {
        match &self.model {
            Width::Narrow(model) => model.segments(),
            Width::Wide(model) => model.segments(),
        }
    }

    /// See [`Model::boundaries_compared`].
    pub(crate) fn boundaries_compared(&self) -> u32 {
        match &self.model {
            Width::Narrow(model) => model.boundaries_compared(),
            Width::Wide(model) => model.boundaries_compared(),
        }
    }

    /// See [`Model::residual_bytes`].
    pub(crate) fn residual_bytes(&self) -> usize {
        match &self.model {
            Width::Narrow(model) => model.residual_bytes(),
            Width::Wide(model) => model.residual_bytes(),
        }
    }

    /// The encoder.
    pub(crate) fn encoder(&self) -> &Arc<Snbc> {
        &self.encoder
    }

    /// Shares the encoder with those that `encoders` knows, if one of them is equal.
    pub(crate) fn share(&mut self, encoders: &Encoders) {
        self.encoder = encoders.shared(&self.encoder);
    }

    /// Bytes of memory on the heap; the encoder's are apart.
    pub(crate) fn own_memory(&self) -> usize {
        match &self.model {
            Width::Narrow(model) => model.memory(),
            Width::Wide(model) => model.memory(),
        }
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(KIND_LEARNED);
        self.encoder.store(out);
        match &self.model {
            Width::Narrow(model) => model.store(out),
            Width::Wide(model) => model.store(out),
        }
    }

    /// Decodes the index of `blocks` data blocks from all of `bytes`.
    ///
    /// Requires: `bytes` begin with [`KIND_LEARNED`].
    pub(crate) fn decode(bytes: &[u8], blocks: u32) -> Result<Self, Malformed> {
        let offset = |rest: &Decoder<'_>| bytes.len() - rest.0.len();
        let mut input = Decoder(bytes.get(1..).unwrap_or_default());
        let encoder = Arc::new(Snbc::load(&mut input, offset)?);
        let model = if encoder.is_wide() {
            Width::Wide(Model::load(input, blocks, offset)?)
        } else {
            Width::Narrow(Model::load(input, blocks, offset)?)
        };
        Ok(Self { encoder, model })
    }
}
