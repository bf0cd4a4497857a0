//! A filter in memory.

#![deny(clippy::indexing_slicing)]

use pleach_coding::Malformed;
use pleach_env::memory::prefetch;

use super::{FIELD_BITS, FIELDS, HEAD_LEN, LINE_LEN, PROBES_MAX, fields, line_of, position_words};

/// Probes of a test before its first branch. One in twenty absent keys needs more probes. An earlier branch would cost more in
/// mispredictions than it saves.
const FIRST_PROBES: u32 = 4;

/// A line of 512 bits in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE_LEN / 8]);

/// The filter of an SST, in memory. It says "no" for most keys that are not in the SST, and "maybe" for all others.
///
/// An [`Sst`](crate::Sst) is opened with its filter. The filter can be taken from it, and read again later.
pub struct Filter {
    lines: Box<[Line]>,
    probes: u32,
}

impl Filter {
    /// Decodes the payload of a filter block.
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
        Ok(Self { lines, probes: u32::from(probes) })
    }

    /// Prefetches the cache line that [`Filter::may_contain`] will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(line_of(hash, self.lines.len())) {
            prefetch(std::ptr::from_ref(line).cast());
        }
    }

    /// Whether a key with this hash can be in the SST.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(line_of(hash, self.lines.len())) else { return true };
        let [low, high] = position_words(hash);
        if self.probes <= FIRST_PROBES {
            return line.has_all(low, self.probes);
        }
        line.has_all(low, FIRST_PROBES)
            && line.has_all(low >> (FIELD_BITS * FIRST_PROBES), self.probes.min(FIELDS) - FIRST_PROBES)
            && line.has_all(high, self.probes.saturating_sub(FIELDS))
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.lines.len() * LINE_LEN
    }
}

impl Line {
    /// Whether all bits that the first `count` fields of `word` name are set.
    #[inline]
    fn has_all(&self, word: u64, count: u32) -> bool {
        fields(word, count).fold(1, |all, position| all & self.word(position / 64) >> (position % 64)) == 1
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        let Self(words) = self;
        words.get(at % words.len()).copied().unwrap_or_default()
    }

    fn decode(bytes: &[u8; LINE_LEN]) -> Self {
        let mut words = [0; LINE_LEN / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }
}
