//! Values: half compressible, as in `db_bench`, and tagged with their key, so that a check of each value read costs about a
//! nanosecond.

use super::random::{Random, mix64};

/// Bytes from which values are cut; larger values repeat them.
const POOL_LEN: usize = 1 << 20;
/// A piece of the pool: one half is random, the other repeats it.
const PIECE_LEN: usize = 100;
/// Bytes of the tag; shorter values have none.
const TAG_LEN: usize = 8;

/// A source of values.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pool: std::sync::Arc<[u8]>,
    at: usize,
}

impl Values {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, "values", 0);
        let mut pool = Vec::with_capacity(POOL_LEN + PIECE_LEN);
        while pool.len() < POOL_LEN {
            let start = pool.len();
            pool.extend((0..PIECE_LEN / 2).map(|_| random.next_u64() as u8));
            pool.extend_from_within(start..);
        }
        pool.truncate(POOL_LEN);
        Self { pool: pool.into(), at: 0 }
    }

    /// The same bytes, started from another place for each thread.
    pub(crate) fn for_thread(&self, thread: u64) -> Self {
        Self { pool: self.pool.clone(), at: mix64(thread) as usize % POOL_LEN }
    }

    /// Puts a value of `len` bytes for the key with `index` into `value`.
    #[inline]
    pub(crate) fn fill(&mut self, index: u64, len: usize, value: &mut Vec<u8>) {
        value.clear();
        while value.len() < len {
            let piece = (len - value.len()).min(POOL_LEN - self.at);
            value.extend_from_slice(&self.pool[self.at..self.at + piece]);
            self.at += piece;
            if self.at == POOL_LEN {
                self.at = 0;
            }
        }
        if let Some(tag) = value.first_chunk_mut::<TAG_LEN>() {
            *tag = mix64(index).to_le_bytes();
        }
    }
}

/// Whether `value` may be one of the key with `index`.
#[inline]
pub(crate) fn has_tag(value: &[u8], index: u64) -> bool {
    value.first_chunk::<TAG_LEN>().is_none_or(|tag| *tag == mix64(index).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_carry_their_tag_and_differ() {
        let mut values = Values::new(1);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        values.fill(5, 1000, &mut first);
        values.fill(5, 1000, &mut second);
        assert!(first.len() == 1000 && first != second);
        assert!(has_tag(&first, 5) && has_tag(&second, 5) && !has_tag(&first, 6));
        values.fill(5, 3, &mut first);
        assert!(first.len() == 3 && has_tag(&first, 5));
        values.fill(9, 3 << 20, &mut first);
        assert!(first.len() == 3 << 20 && has_tag(&first, 9));
    }

    #[test]
    fn values_are_half_compressible() {
        let mut value = Vec::new();
        Values::new(1).fill(0, 10_000, &mut value);
        let repeated = value.chunks_exact(PIECE_LEN).filter(|piece| piece[..50] == piece[50..]).count();
        assert!(repeated >= 99, "{repeated}");
    }
}
