//! A filter in memory.

#![deny(clippy::indexing_slicing)]

use pleach_env::memory::prefetch;
use pleach_index::Malformed;

use super::{HEAD_LEN, LINE_LEN, PROBES_MAX, line_of, positions};

/// A line of 512 bits in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE_LEN / 8]);

/// See the folder's text.
pub(crate) struct Filter {
    lines: Box<[Line]>,
    probes: usize,
}

impl Filter {
    /// The filter stored in the payload of a filter block.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let short = Malformed::new(0, "a filter's head");
        let (head, rest) = payload.split_first_chunk::<HEAD_LEN>().ok_or(short)?;
        let [probes, zero_0, zero_1, zero_2, lines @ ..] = *head;
        if probes == 0 || u32::from(probes) > PROBES_MAX {
            return Err(Malformed::new(0, "1 to 14 probes"));
        }
        if [zero_0, zero_1, zero_2] != [0; 3] {
            return Err(Malformed::new(1, "zeros"));
        }
        let lines = u32::from_le_bytes(lines) as usize;
        if lines == 0 || rest.len() % LINE_LEN != 0 || rest.len() / LINE_LEN != lines {
            return Err(Malformed::new(4, "as many lines as there are bytes for"));
        }
        let lines = rest.as_chunks::<LINE_LEN>().0.iter().map(Line::decode).collect();
        Ok(Self { lines, probes: usize::from(probes) })
    }

    /// Starts fetching the cache line that the test of `hash` will look at.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(line_of(hash, self.lines.len())) {
            prefetch(std::ptr::from_ref(line).cast());
        }
    }

    /// Whether a key with this hash can be in the SST.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(Line(words)) = self.lines.get(line_of(hash, self.lines.len())) else { return true };
        let mut all = 1;
        for position in positions(hash).take(self.probes) {
            all &= words.get(position / 64).map_or(0, |word| word >> (position % 64));
        }
        all & 1 == 1
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.lines.len() * LINE_LEN
    }
}

impl Line {
    fn decode(bytes: &[u8; LINE_LEN]) -> Self {
        let mut words = [0; LINE_LEN / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, clippy::cast_precision_loss, reason = "a test")]
    use super::super::{FilterBuilder, false_positive_rate, probes_for};
    use super::*;

    fn filter(bits_per_key: f32, hashes: impl Iterator<Item = u64>) -> (Filter, Vec<u8>) {
        let mut builder = FilterBuilder::new(bits_per_key);
        hashes.for_each(|hash| builder.add(hash));
        let mut payload = Vec::new();
        builder.encode(&mut payload);
        assert_eq!(payload.len(), builder.encoded_len());
        (Filter::decode(&payload).unwrap(), payload)
    }

    fn hash(i: u64) -> u64 {
        crate::key_hash(3, &i.to_le_bytes())
    }

    #[test]
    fn false_positives_come_at_the_computed_rate() {
        for bits in [6.0, 10.0, 14.0, 20.0] {
            const KEYS: u64 = 200_000;
            let (filter, _) = filter(bits, (0..KEYS).map(hash));
            assert!((0..KEYS).all(|i| filter.may_contain(hash(i))), "no false negatives");
            let probed = 4_000_000;
            let hits = (KEYS..KEYS + probed).filter(|&i| filter.may_contain(hash(i))).count();
            let (rate, expected) = (hits as f64 / probed as f64, false_positive_rate(bits, probes_for(bits)));
            assert!((rate / expected - 1.0).abs() < 0.1, "{bits} bits: {rate:.6}, expected {expected:.6}");
        }
    }

    #[test]
    fn stored_bytes_are_fixed() {
        let (_, payload) = filter(10.0, [1, u64::MAX, 0x0123_4567_89ab_cdef].into_iter());
        assert_eq!(payload[..8], [6, 0, 0, 0, 1, 0, 0, 0]);
        let set: Vec<usize> = (0..512).filter(|i| payload[8 + i / 8] >> (i % 8) & 1 == 1).collect();
        assert_eq!(set, [68, 95, 100, 123, 130, 157, 220, 242, 263, 300, 316, 411, 415, 428, 429, 443]);
    }

    #[test]
    fn damaged_heads_are_rejected() {
        let (_, payload) = filter(10.0, (0..100).map(hash));
        for (at, value) in [(0, 0), (0, 15), (1, 1), (4, 0), (4, 9), (7, 1)] {
            let mut damaged = payload.clone();
            damaged[at] = value;
            assert!(Filter::decode(&damaged).is_err(), "byte {at} = {value}");
        }
        assert!(Filter::decode(&payload[..payload.len() - 1]).is_err());
        assert!(Filter::decode(&[]).is_err());
    }
}
