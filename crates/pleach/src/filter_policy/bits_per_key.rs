//! Bits per key of a new run's filters: more for small runs, fewer for large ones, the same memory in all.
//!
//! A lookup of a missing key tests every run of its partition, so its cost is the *sum* of the runs' false-positive rates. A
//! bit per key costs memory in proportion to the run's keys; it lowers the rate by the same factor in every run. So for given
//! memory the sum is smallest when rates are proportional to sizes: a run of half the keys gets 1.44 bits per key more
//! (1 / ln 2, one halving of the rate).
//!
//! A filter does not change once it is written, but the runs around it do. So the bits are those for the expected forest
//! around the run, not for the present one. The runs of its own stage and the older ones stay about as they are. The stages
//! above it, which have just been emptied into it, fill again; on average they are half full.
//!
//! Where memory is short, the average falls ([`affordable_bits`]).
//!
//! # Cost
//! Some microseconds per run written.
//!
//! # Origin
//! Dayan, Athanassoulis, Idreos: Monkey (2017), there for a levelled tree of known size.

use crate::shape::Shape;

/// Bits per key that halve the rate of a Bloom filter: 1 / ln 2. Lines of 512 bits need 1.44 to 1.6 of them at 4 to 12
/// bits per key; with 1.6, memory and rates differ by less than 2 % from what they are with 1.44.
const BITS_PER_HALVING: f64 = std::f64::consts::LOG2_E;

/// Fewest bits per key, unless the average is below: a seventh of the probes pass. Fewer would save little memory.
const BITS_MIN: f64 = 4.0;
/// Most bits per key, unless the average is above: 1 probe in 5000 passes. More would save next to no probes.
const BITS_MAX: f64 = 20.0;

/// Fewest bits per key, on average, that a lack of memory leads to: a tenth of the probes pass. With fewer, the filters of keys
/// that nobody asks for would cost those that are used too much.
const AFFORDABLE_MIN: f32 = 5.0;

/// Filters are rounded up to whole lines, and those of small runs may have more bits.
const BUDGET_SHARE: f32 = 0.95;

/// The average bits per key of a store of `entries` whose filters may take `budget` bytes: `wanted`, if there is memory for
/// that.
///
/// A store that lacks it has fewer bits for all keys, because a probe without a filter costs far more than one whose filter is
/// weak: in half the memory 5 bits let a tenth of the probes pass, 10 bits for every second file half of them. Filters that
/// are there keep their bits until their files are merged, also when there is more memory again.
pub(crate) fn affordable_bits(wanted: f32, budget: u64, entries: u64) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a mean, to choose by")]
    let affordable = budget as f32 * 8.0 / entries.max(1) as f32;
    wanted.min((affordable * BUDGET_SHARE).max(AFFORDABLE_MIN))
}

/// How a shape fills the stages above a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageFill {
    /// How many times larger a run is than those of the stage above it.
    fanout: f64,
    /// Runs of a stage, on average.
    runs: f64,
}

impl StageFill {
    /// The fill of a shape with `k` runs a stage.
    pub(crate) fn of(shape: Shape, k: usize) -> Self {
        let k = f64::from(u8::try_from(k).unwrap_or(u8::MAX).max(2));
        match shape {
            Shape::Forest | Shape::ForestOverBottom => Self { fanout: k, runs: (k - 1.0) / 2.0 },
            Shape::Leveled => Self { fanout: 10.0, runs: 1.0 },
        }
    }
}

/// Bits per key for a run of `entries`, such that filters take `average` bits per key over the whole sub-tree.
///
/// `others` are the entries of the runs that stay beside it, `upper_stages` the stages of smaller runs that will fill above
/// it. A run without either gets the average.
pub(crate) fn bits_per_key(
    average: f32,
    fill: StageFill,
    entries: u64,
    others: impl IntoIterator<Item = u64>,
    upper_stages: u8,
) -> f32 {
    if average <= 0.0 {
        return 0.0;
    }
    let forest = expected_forest(fill, entries, others, upper_stages);
    BitsBySize::solve(&forest, f64::from(average)).bits(as_size(entries))
}

/// Runs of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Group {
    /// Entries of each.
    size: f64,
    /// How many there are on average.
    runs: f64,
}

/// The expected forest around a run of `entries`. Sizes within a factor of `sqrt(fanout)` are of one stage.
fn expected_forest(
    fill: StageFill,
    entries: u64,
    others: impl IntoIterator<Item = u64>,
    upper_stages: u8,
) -> Vec<Group> {
    let own = as_size(entries);
    let mut forest = vec![Group { size: own, runs: 1.0 }];
    let stay = others.into_iter().map(as_size).filter(|&size| size >= own / fill.fanout.sqrt());
    forest.extend(stay.map(|size| Group { size, runs: 1.0 }));
    let mut size = own;
    for _ in 0..upper_stages {
        size /= fill.fanout;
        if size < 1.0 {
            break;
        }
        forest.push(Group { size, runs: fill.runs });
    }
    forest
}

#[expect(clippy::cast_precision_loss, reason = "a size, to choose by")]
fn as_size(entries: u64) -> f64 {
    entries.max(1) as f64
}

/// The optimal bits per key by size: `base + 1.44 log2(total / size)`, within bounds.
struct BitsBySize {
    base: f64,
    total: f64,
    min: f64,
    max: f64,
}

impl BitsBySize {
    /// The bits that take `average` bits per key over `forest`.
    fn solve(forest: &[Group], average: f64) -> Self {
        let total = forest.iter().map(|group| group.size * group.runs).sum();
        let mut bits = Self { base: 0.0, total, min: average.min(BITS_MIN), max: average.max(BITS_MAX) };
        // The lowest base of this range gives every run the minimum, the highest the maximum.
        let (mut low, mut high) = (-BITS_PER_HALVING * 64.0, bits.max);
        for _ in 0..48 {
            bits.base = f64::midpoint(low, high);
            let taken = bits.average(forest);
            if taken < average { low = bits.base } else { high = bits.base }
        }
        bits
    }

    fn bits_exact(&self, size: f64) -> f64 {
        (self.base + BITS_PER_HALVING * (self.total / size).log2()).clamp(self.min, self.max)
    }

    fn average(&self, forest: &[Group]) -> f64 {
        let bits = forest.iter().map(|group| group.size * group.runs * self.bits_exact(group.size));
        bits.sum::<f64>() / self.total
    }

    #[expect(clippy::cast_possible_truncation, reason = "a hundredth of a bit is precise enough")]
    fn bits(&self, size: f64) -> f32 {
        self.bits_exact(size) as f32
    }
}

#[cfg(test)]
mod tests;
