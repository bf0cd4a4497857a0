//! Builder of a filter block: collects the hashes of an SST's keys.

use super::{FIELDS, HEAD_LEN, LINE_BITS, LINE_LEN, fields, line_of, position_words, probes_for};
use crate::sizes::FILTER_LEN_MAX;

/// The builder. Grammar: `new (add)* encode`.
pub(crate) struct FilterBuilder {
    bits_per_key: f32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A builder of a filter with so many bits per key; none if they are 0.
    pub(crate) fn new(bits_per_key: f32) -> Self {
        Self { bits_per_key, hashes: Vec::new() }
    }

    /// Changes the bits per key. Requires: [`FilterBuilder::new`] got more than 0.
    pub(crate) fn set_bits_per_key(&mut self, bits_per_key: f32) {
        debug_assert!(self.bits_per_key > 0.0, "hashes were collected");
        self.bits_per_key = bits_per_key;
    }

    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        if self.bits_per_key > 0.0 {
            self.hashes.push(hash);
        }
    }

    /// Length of what `encode` would append now.
    pub(crate) fn encoded_len(&self) -> usize {
        if self.hashes.is_empty() { 0 } else { HEAD_LEN + self.lines() * LINE_LEN }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size"
    )]
    fn lines(&self) -> usize {
        let bits = self.hashes.len() as f64 * f64::from(self.bits_per_key);
        ((bits / LINE_BITS as f64).ceil() as usize).clamp(1, (FILTER_LEN_MAX - HEAD_LEN) / LINE_LEN)
    }

    /// Appends the payload of the filter block and returns the number of filter bits. Appends nothing if there is no filter.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a ratio, to choose by")]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> u64 {
        if self.hashes.is_empty() {
            return 0;
        }
        let lines = self.lines();
        let real_bits_per_key = (lines * LINE_BITS) as f64 / self.hashes.len() as f64;
        let probes = probes_for(self.bits_per_key.min(real_bits_per_key as f32));
        out.extend_from_slice(&[u8::try_from(probes).expect("at most 14"), 0, 0, 0]);
        out.extend_from_slice(&u32::try_from(lines).expect("a filter is at most 32 MiB").to_le_bytes());
        let start = out.len();
        out.resize(start + lines * LINE_LEN, 0);
        let bits = out[start..].as_chunks_mut::<LINE_LEN>().0;
        for &hash in &self.hashes {
            let line = &mut bits[line_of(hash, lines)];
            let [low, high] = position_words(hash);
            let mut set = |position: usize| line[position / 8 % LINE_LEN] |= 1 << (position % 8);
            fields(low, probes.min(FIELDS)).for_each(&mut set);
            fields(high, probes.saturating_sub(FIELDS)).for_each(&mut set);
        }
        (lines * LINE_BITS) as u64
    }
}
