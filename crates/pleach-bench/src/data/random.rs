//! Random numbers whose stream never changes: SplitMix64 (Steele, Lea, Flood 2014). A library may change its generator in a
//! release; then old and new figures would be for different keys.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64-bit numbers that leaves no visible pattern.
#[inline]
pub(crate) fn mix64(number: u64) -> u64 {
    let mut z = number.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seeded stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed` for one purpose; streams of other purposes are unrelated to it.
    pub(crate) fn new(seed: u64, purpose: &str, number: u64) -> Self {
        let mut state = mix64(seed);
        for &byte in purpose.as_bytes() {
            state = mix64(state ^ u64::from(byte));
        }
        Self { state: mix64(state ^ mix64(number)) }
    }

    #[inline]
    pub(crate) fn next_u64(&mut self) -> u64 {
        let number = mix64(self.state);
        self.state = self.state.wrapping_add(STEP);
        number
    }

    /// A number below `bound`, which is not zero. Its bias is below 2^-32 for every bound in use here.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        unit_of(self.next_u64())
    }
}

/// 53 random bits as a number in [0, 1).
#[inline]
pub(crate) fn unit_of(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_never_changes() {
        let mut random = Random::new(1, "purpose", 0);
        let first = [random.next_u64(), random.next_u64()];
        let mut again = Random::new(1, "purpose", 0);
        assert_eq!(first, [again.next_u64(), again.next_u64()]);
        assert_ne!(first[0], Random::new(1, "purpose", 1).next_u64());
        assert_ne!(first[0], Random::new(2, "purpose", 0).next_u64());
        assert_ne!(first[0], Random::new(1, "other", 0).next_u64());
        // Reference output of SplitMix64 for seed 0.
        assert_eq!(mix64(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn below_is_even() {
        let mut random = Random::new(7, "below", 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
    }
}
