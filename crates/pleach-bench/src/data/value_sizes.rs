//! Sizes of values: fixed or random, but always the same for the same key. So the size of the data is known exactly, also
//! after overwrites.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::random::{mix64, unit_of};

/// Facebook's value sizes as RocksDB's `mixgraph` draws them (Cao et al., FAST 2020).
const FACEBOOK: GeneralizedPareto = GeneralizedPareto { k: 0.2615, sigma: 25.45 };
/// What `mixgraph` cuts them to.
const PARETO_MIN: u64 = 10;
const PARETO_MAX: u64 = 1 << 20;

/// How long the values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum ValueSizes {
    Fixed(u64),
    /// From the first to the second, both included.
    Uniform(u64, u64),
    /// Facebook's: mean about 37 bytes with a long tail.
    Pareto,
}

impl ValueSizes {
    /// The size of the value of the key with this index.
    #[inline]
    pub(crate) fn of(self, index: u64) -> u64 {
        match self {
            Self::Fixed(size) => size,
            Self::Uniform(low, high) => {
                let random = mix64(index ^ 0x5a5a_0000_0000_0000);
                low + ((u128::from(random) * u128::from(high - low + 1)) >> 64) as u64
            }
            Self::Pareto => {
                let size = FACEBOOK.quantile(unit_of(mix64(index ^ 0x5a5a_0000_0000_0000)));
                (size as u64).clamp(PARETO_MIN, PARETO_MAX)
            }
        }
    }
}

impl FromStr for ValueSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| -> Result<u64, String> {
            text.parse().map_err(|_| format!("{text:?} is not a number of bytes"))
        };
        if text == "pareto" {
            return Ok(Self::Pareto);
        }
        let Some(bounds) = text.strip_prefix("uniform:") else { return Ok(Self::Fixed(number(text)?)) };
        let (low, high) = bounds.split_once('-').ok_or("expected uniform:<low>-<high>")?;
        let (low, high) = (number(low)?, number(high)?);
        if low > high {
            return Err(format!("the lower bound {low} is above the upper bound {high}"));
        }
        Ok(Self::Uniform(low, high))
    }
}

impl fmt::Display for ValueSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low}-{high}"),
            Self::Pareto => f.write_str("pareto"),
        }
    }
}

impl From<ValueSizes> for String {
    fn from(sizes: ValueSizes) -> Self {
        sizes.to_string()
    }
}

impl TryFrom<String> for ValueSizes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A generalised Pareto distribution that starts at zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GeneralizedPareto {
    pub(crate) k: f64,
    pub(crate) sigma: f64,
}

impl GeneralizedPareto {
    /// The number below which the share `unit` lies.
    pub(crate) fn quantile(self, unit: f64) -> f64 {
        self.sigma * ((1.0 - unit).powf(-self.k) - 1.0) / self.k
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(sizes: ValueSizes) -> f64 {
        (0..100_000).map(|index| sizes.of(index) as f64).sum::<f64>() / 100_000.0
    }

    #[test]
    fn text_goes_there_and_back() {
        for text in ["100", "uniform:1-200", "pareto"] {
            assert_eq!(text.parse::<ValueSizes>().expect("it is well-formed").to_string(), text);
        }
        for text in ["", "x", "uniform:5", "uniform:9-3", "-1"] {
            assert!(text.parse::<ValueSizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_the_right_mean_and_bounds() {
        assert!((mean(ValueSizes::Uniform(1, 200)) - 100.5).abs() < 1.0);
        assert!((0..10_000).all(|index| (1..=200).contains(&ValueSizes::Uniform(1, 200).of(index))));
        // sigma / (1 - k) = 34.5, a little more because small ones are rounded up to ten bytes.
        assert!((33.0..39.0).contains(&mean(ValueSizes::Pareto)), "{}", mean(ValueSizes::Pareto));
    }
}
