//! Choosers: which of the existing keys an operation touches.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::random::{Random, mix64};
use super::zipfian::Zipfian;

/// Items over which YCSB's scrambled Zipfian generator draws before it hashes.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// Scatters ranks over the keys, each to another one: a prime, near the golden ratio of 2^32.
const SCATTER: u64 = 2_654_435_761;

/// Parameters of RocksDB's `mixgraph` as its wiki gives them for the skew found at Facebook (Cao et al., FAST 2020): the heat
/// of 30 key ranges is the sum of two exponentials, and within a range keys follow a power law.
const HOT_RANGES: usize = 30;
const RANGE_HEAT: [f64; 4] = [14.18, -2.917, 0.0164, -0.08082];
const KEY_POWER: [f64; 2] = [0.002_312, 0.3467];

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Distribution {
    /// Each key as often as any other.
    Uniform,
    /// YCSB's scrambled Zipfian, exponent 0.99: few keys often, anywhere in the key space.
    Zipfian,
    /// Zipfian over the keys themselves, exponent 0.99, anywhere in the key space. Hotter than YCSB's, which draws from ten
    /// billion items: with a million keys, two fifths of those draws are spread evenly.
    ZipfianKeys,
    /// YCSB's latest: Zipfian from the newest key back.
    Latest,
    /// Hot key ranges with hot keys in them, as RocksDB's mixgraph.
    Mixgraph,
}

/// Draws positions of existing keys, `0..len`.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    Uniform { len: u64 },
    Zipfian { len: u64, ranks: Zipfian },
    ZipfianKeys { len: u64, ranks: Zipfian },
    Latest { len: u64, ranks: Zipfian },
    HotRanges { len: u64, heat: [f64; HOT_RANGES] },
}

impl Chooser {
    pub(crate) fn new(distribution: Distribution, len: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform { len },
            Distribution::Zipfian => Self::Zipfian { len, ranks: Zipfian::new(SCRAMBLED_ITEMS) },
            Distribution::ZipfianKeys => Self::ZipfianKeys { len, ranks: Zipfian::new(len) },
            Distribution::Latest => Self::Latest { len, ranks: Zipfian::new(len) },
            Distribution::Mixgraph => Self::HotRanges { len, heat: cumulative_heat() },
        }
    }

    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform { len } => random.below(*len),
            Self::Zipfian { len, ranks } => mix64(ranks.draw(random)) % len,
            Self::ZipfianKeys { len, ranks } => ranks.draw(random) * SCATTER % len,
            Self::Latest { len, ranks } => len - 1 - ranks.draw(random),
            Self::HotRanges { len, heat } => in_hot_range(*len, heat, random),
        }
    }

    /// One more key exists.
    pub(crate) fn grow(&mut self) {
        match self {
            Self::Uniform { len } | Self::Zipfian { len, .. } | Self::HotRanges { len, .. } => *len += 1,
            Self::ZipfianKeys { len, ranks } | Self::Latest { len, ranks } => {
                *len += 1;
                ranks.grow();
            }
        }
    }
}

/// The share of accesses that fall into the first i + 1 ranges.
fn cumulative_heat() -> [f64; HOT_RANGES] {
    let [high, steep, low, flat] = RANGE_HEAT;
    let mut heat = [0.0; HOT_RANGES];
    let mut sum = 0.0;
    for (at, slot) in heat.iter_mut().enumerate() {
        let x = (at + 1) as f64;
        sum += high * (steep * x).exp() + low * (flat * x).exp();
        *slot = sum;
    }
    heat.map(|share| share / sum)
}

fn in_hot_range(len: u64, heat: &[f64; HOT_RANGES], random: &mut Random) -> u64 {
    let unit = random.unit();
    let range = heat.iter().position(|&share| unit < share).unwrap_or(HOT_RANGES - 1) as u64;
    let range_len = len.div_ceil(HOT_RANGES as u64);
    // The hottest ranges are not neighbours: 7 and 30 have no common factor.
    let start = (range * 7 % HOT_RANGES as u64) * range_len;
    let [a, b] = KEY_POWER;
    let seed = (random.unit() / a).powf(1.0 / b).ceil() as u64;
    (start + mix64(seed) % range_len).min(len - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(distribution: Distribution) -> Vec<u32> {
        let chooser = Chooser::new(distribution, 1000);
        let mut random = Random::new(1, "chooser", 0);
        let mut counts = vec![0; 1000];
        for _ in 0..100_000 {
            counts[chooser.draw(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_touches_all_alike() {
        assert!(shares(Distribution::Uniform).iter().all(|&count| (50..160).contains(&count)));
    }

    #[test]
    fn zipfian_is_skewed_and_scattered() {
        let counts = shares(Distribution::Zipfian);
        let hottest = counts.iter().max().copied().unwrap_or(0);
        // 1 / zeta of ten billion items is 3.8 %; hashing to 1000 keys adds a little.
        assert!((3_700..4_400).contains(&hottest), "{hottest}");
        assert!(counts.iter().position(|&count| count == hottest) != Some(0));
    }

    #[test]
    fn zipfian_keys_are_scattered_one_to_one() {
        let counts = shares(Distribution::ZipfianKeys);
        let hottest = counts.iter().max().copied().unwrap_or(0);
        // 1 / zeta of 1000 items is 12.9 %.
        assert!((12_400..13_400).contains(&hottest), "{hottest}");
        let second = counts.iter().position(|&count| (6_000..7_000).contains(&count));
        assert_eq!(second, Some(761), "far from the first");
        assert!(counts.iter().filter(|&&count| count == 0).count() < 100, "every key has a rank");
    }

    #[test]
    fn latest_prefers_the_newest_and_follows_growth() {
        let counts = shares(Distribution::Latest);
        assert_eq!(counts.iter().max(), Some(&counts[999]));
        let mut chooser = Chooser::new(Distribution::Latest, 1000);
        (0..10).for_each(|_| chooser.grow());
        let mut random = Random::new(1, "latest", 0);
        let newest = (0..1000).filter(|_| chooser.draw(&mut random) >= 1000).count();
        assert!(newest > 300, "{newest}");
    }

    #[test]
    fn mixgraph_has_a_hot_range() {
        let counts = shares(Distribution::Mixgraph);
        let of_range = |range: usize| counts[range * 34..(range * 34 + 34).min(1000)].iter().sum::<u32>();
        let hottest = (0..29).map(of_range).max().unwrap_or(0);
        assert!(hottest > 50_000, "{hottest}");
    }
}
