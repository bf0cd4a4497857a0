//! A random order of the numbers below n that needs no memory: a Feistel network over the next power of four, walked
//! until it lands below n.

use super::random::mix64;

const ROUNDS: u64 = 4;

/// A bijection of `0..len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    len: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Where `number`, which is below the length, goes. Fewer than four walks on average.
    #[inline]
    pub(crate) fn apply(&self, number: u64) -> u64 {
        debug_assert!(number < self.len);
        let mut at = number;
        loop {
            at = self.once(at);
            if at < self.len {
                return at;
            }
        }
    }

    #[inline]
    fn once(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (mix64(right ^ self.seed.wrapping_add(round << 56)) & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for len in [1, 2, 3, 10, 64, 1000, 4097] {
            let permutation = Permutation::new(len, 3);
            let mut seen = vec![false; len as usize];
            for number in 0..len {
                let at = permutation.apply(number) as usize;
                assert!(!std::mem::replace(&mut seen[at], true));
            }
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let permutation = Permutation::new(100_000, 1);
        let steps: f64 =
            (1..10_000).map(|i| permutation.apply(i).abs_diff(permutation.apply(i - 1)) as f64).sum();
        // The mean distance of two random numbers below n is n / 3.
        assert!((30_000.0..37_000.0).contains(&(steps / 9_999.0)));
    }
}
