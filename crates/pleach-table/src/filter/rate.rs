//! The false positive rate of a filter of given size, and the best number of probes.

use super::{LINE_BITS, PROBES_MAX};

/// Bits per key from which on 2, 3, ... probes pay: each saves at least 2 % of the false positives of one probe fewer.
/// Computed from [`false_positive_rate`]; a test computes it again.
const PAYS_FROM: [f32; PROBES_MAX as usize - 1] =
    [2.2, 3.8, 5.4, 7.1, 8.8, 10.6, 12.6, 14.8, 17.1, 19.7, 22.6, 25.8, 29.5];

/// How many bits a key should set when a filter has `bits_per_key`.
pub fn probes_for(bits_per_key: f32) -> u32 {
    1 + u32::try_from(PAYS_FROM.iter().take_while(|&&from| bits_per_key >= from).count()).expect("at most 13")
}

/// The rate at which a filter says "maybe" for absent keys.
///
/// A Bloom filter with one array for all keys has a rate of `0.6185^bits` (0.82 % at 10 bits). In a filter of lines the number
/// of keys in a line is Poisson distributed, and the rate rises more in full lines than it falls in empty ones (0.97 % at 10
/// bits). Measured rates are within 3 % of the computed one up to 16 bits per key.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the tail of a sum may be cut anywhere"
)]
pub fn false_positive_rate(bits_per_key: f32, probes: u32) -> f64 {
    let load = LINE / f64::from(bits_per_key);
    let mut likelihood = (-load).exp();
    let mut rate = 0.0;
    for keys in 0..(load * 3.0) as u32 + 60 {
        rate += likelihood * line_rate(keys, probes);
        likelihood *= load / f64::from(keys + 1);
    }
    rate
}

/// Bits of a line.
#[expect(clippy::cast_precision_loss, reason = "512 has few bits")]
const LINE: f64 = LINE_BITS as f64;

/// The probability that `probes` random bits of a line are all set after each of `keys` keys has set `probes` bits. It is the
/// `probes`-th moment of the share of bits set, by mean and variance. The variance is that of the occupancy problem; without
/// it the rate would be 1 % too low at 10 bits per key, 4 % at 20.
pub(super) fn line_rate(keys: u32, probes: u32) -> f64 {
    let thrown = f64::from(probes) * f64::from(keys);
    let (one_clear, two_clear) = ((1.0 - 1.0 / LINE).powf(thrown), (1.0 - 2.0 / LINE).powf(thrown));
    let mean = 1.0 - one_clear;
    if keys == 0 {
        return 0.0;
    }
    let variance = one_clear / LINE + (1.0 - 1.0 / LINE) * two_clear - one_clear * one_clear;
    let spread = f64::from(probes) * f64::from(probes.saturating_sub(1)) / 2.0 * variance.max(0.0);
    (mean.powi(probes.cast_signed()) * (1.0 + spread / (mean * mean))).min(1.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::cast_precision_loss, reason = "tenths")]
    use super::*;

    #[test]
    fn thresholds_follow_from_the_rate() {
        for (i, &from) in PAYS_FROM.iter().enumerate() {
            let probes = u32::try_from(i).unwrap() + 1;
            let computed = (10..600)
                .rev()
                .map(|tenth| tenth as f32 / 10.0)
                .take_while(|&bits| {
                    false_positive_rate(bits, probes + 1) <= 0.98 * false_positive_rate(bits, probes)
                })
                .last()
                .unwrap_or(60.0);
            assert!((computed - from).abs() < 0.11, "{} probes pay from {computed}", probes + 1);
        }
    }
}
