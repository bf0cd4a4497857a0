//! Bits per key by run size, compared with equal bits, in forests of all sizes.
#![expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "figures to compare")]

use pleach_table::{false_positive_rate, probes_for};

use super::*;

fn bits_per_key(average: f32, entries: u64, others: &[u64], upper_stages: u8, k: usize) -> f32 {
    let fill = StageFill::of(Shape::Forest, k);
    super::bits_per_key(average, fill, entries, others.iter().copied(), upper_stages)
}

fn rate(bits: f32) -> f64 {
    false_positive_rate(bits, probes_for(bits))
}

#[test]
fn a_run_alone_gets_the_average() {
    for average in [0.0, 1.0, 4.0, 5.5, 10.0, 20.0, 32.0] {
        assert_eq!(bits_per_key(average, 1_000_000, &[], 0, 4), average);
        assert_eq!(bits_per_key(average, 1, &[], 9, 4), average);
    }
}

#[test]
fn equal_runs_get_the_average() {
    let bits = bits_per_key(10.0, 5_000, &[5_000, 5_000, 5_000], 0, 4);
    assert!((bits - 10.0).abs() < 1e-4, "{bits}");
}

#[test]
fn a_run_of_half_the_size_gets_half_the_rate() {
    let forest: Vec<_> = [1.0, 2.0, 4.0, 8.0].map(|size| Group { size: size * 1e6, runs: 1.0 }).into();
    let bits = BitsBySize::solve(&forest, 10.0);
    assert!((bits.average(&forest) - 10.0).abs() < 1e-6);
    for pair in forest.windows(2) {
        let step = bits.bits_exact(pair[0].size) - bits.bits_exact(pair[1].size);
        assert!((step - std::f64::consts::LOG2_E).abs() < 1e-6, "{step}");
    }
}

#[test]
fn bounds_hold_and_the_average_stays() {
    let forest: Vec<_> = (0..9).map(|i| Group { size: 10f64.powi(i), runs: 2.0 }).collect();
    let bits = BitsBySize::solve(&forest, 5.0);
    assert!((bits.average(&forest) - 5.0).abs() < 1e-6);
    let bits: Vec<_> = forest.iter().map(|group| bits.bits_exact(group.size)).collect();
    assert!(bits.is_sorted_by(|a, b| a >= b) && bits[0] <= BITS_MAX && bits[8] >= BITS_MIN, "{bits:?}");
    assert_eq!((bits_per_key(2.0, 9, &[900], 1, 4), bits_per_key(32.0, 9, &[900], 1, 4)), (2.0, 32.0));
}

#[test]
fn a_large_run_leaves_room_for_the_forest_that_will_grow_over_it() {
    let (alone, over_many) = (bits_per_key(10.0, 64_000, &[], 1, 4), bits_per_key(10.0, 64_000, &[], 9, 4));
    assert!(over_many < alone && alone < 10.0, "{over_many}, {alone}");
}

/// A run of the model forest.
#[derive(Clone, Copy)]
struct ModelRun {
    stage: usize,
    entries: u64,
    bits: f32,
}

/// Mean and largest bits per entry; mean and largest sum of rates; the mean sum of rates of uniform filters.
#[derive(Default)]
struct Outcome {
    bits: f64,
    bits_max: f64,
    rates: f64,
    rates_max: f64,
    rates_uniform: f64,
}

/// The outcome of `flushes` of 1000 entries in a forest of `k` runs a stage; with `bottom`, everything is merged into one
/// run of the last stage whenever the rest has grown to that share of it.
fn grow(flushes: u32, k: usize, bottom: Option<f64>) -> Outcome {
    let mut runs: Vec<ModelRun> = Vec::new();
    let mut outcome = Outcome::default();
    let merge = |runs: &mut Vec<ModelRun>, merged: &dyn Fn(&ModelRun) -> bool, stage: usize| {
        let upper_stages = u8::try_from(stage).unwrap();
        let (inputs, others): (Vec<_>, Vec<_>) = runs.iter().copied().partition(merged);
        let entries = inputs.iter().map(|run| run.entries).sum();
        let sizes: Vec<_> = others.iter().map(|run| run.entries).collect();
        let bits = bits_per_key(10.0, entries, &sizes, upper_stages, k);
        *runs = others;
        runs.push(ModelRun { stage, entries, bits });
    };
    for flush in 0..flushes {
        runs.push(ModelRun { stage: usize::MAX, entries: 1000, bits: 0.0 });
        merge(&mut runs, &|run| run.stage == usize::MAX, 0);
        for stage in 0..20 {
            if runs.iter().filter(|run| run.stage == stage).count() >= k {
                merge(&mut runs, &|run| run.stage == stage, stage + 1);
            }
        }
        let sum = |is_last: bool| -> u64 {
            runs.iter().filter(|run| (run.stage == 99) == is_last).map(|run| run.entries).sum()
        };
        let (last, rest) = (sum(true), sum(false));
        if bottom.is_some_and(|share| rest as f64 >= (last as f64 * share).max(8_000.0)) {
            merge(&mut runs, &|_| true, 99);
        }
        if flush >= flushes / 4 {
            outcome.note(&runs, f64::from(flushes - flushes / 4));
        }
    }
    outcome
}

impl Outcome {
    fn note(&mut self, runs: &[ModelRun], of: f64) {
        let entries: u64 = runs.iter().map(|run| run.entries).sum();
        let bits =
            runs.iter().map(|run| run.entries as f64 * f64::from(run.bits)).sum::<f64>() / entries as f64;
        let rates: f64 = runs.iter().map(|run| rate(run.bits)).sum();
        self.bits += bits / of;
        self.bits_max = self.bits_max.max(bits);
        self.rates += rates / of;
        self.rates_max = self.rates_max.max(rates);
        self.rates_uniform += runs.len() as f64 * rate(10.0) / of;
    }
}

#[test]
fn a_growing_forest_wastes_half_of_what_uniform_filters_do_with_the_same_memory() {
    for (flushes, k, bottom) in [
        (60, 4, None),
        (1000, 4, None),
        (1000, 2, None),
        (1000, 8, None),
        (1000, 4, Some(0.33)),
        (1000, 4, Some(1.0)),
    ] {
        let outcome = grow(flushes, k, bottom);
        let Outcome { bits, bits_max, rates, rates_max, rates_uniform } = outcome;
        let told = format!(
            "{flushes} flushes, k {k}, bottom {bottom:?}: {bits:.2} bits, at most {bits_max:.2}; \
             rates {rates:.4}, at most {rates_max:.4}, uniform {rates_uniform:.4}"
        );
        println!("{told}");
        assert!((9.3..10.1).contains(&bits) && bits_max < 10.9, "{told}");
        assert!(rates < 0.05 && (rates_max < 0.06 || k > 4), "{told}");
        assert!(rates < rates_uniform * if flushes > 100 { 0.6 } else { 0.8 }, "{told}");
    }
}

#[test]
fn a_store_that_lacks_memory_has_fewer_bits_but_not_too_few() {
    let average = |entries| affordable_bits(10.0, 1000, entries);
    assert!((average(0) - 10.0).abs() < 1e-6);
    assert!((average(760) - 10.0).abs() < 1e-6, "all fit");
    assert!((average(1000) - 7.6).abs() < 1e-6, "7600 bits for 1000 keys");
    assert!((average(u64::MAX) - AFFORDABLE_MIN).abs() < 1e-6);
    assert!((affordable_bits(2.0, 0, 1000) - 2.0).abs() < 1e-6, "fewer than that were wanted");
}
