//! What a filter of given size can do: the arithmetic behind the choice of the number of probes.

use super::{LINE_BITS, PROBES_MAX};

/// Bits a key from which on each further probe pays, from two probes up: it saves at least 2 % of false positives.
/// Computed from [`false_positive_rate`]; a test computes it again.
const PAYS_FROM: [f32; PROBES_MAX as usize - 1] =
    [2.2, 3.8, 5.4, 7.0, 8.7, 10.6, 12.5, 14.6, 16.9, 19.5, 22.3, 25.4, 28.9];

/// How many bits a key should set when a filter has `bits_per_key`.
pub fn probes_for(bits_per_key: f32) -> u32 {
    1 + u32::try_from(PAYS_FROM.iter().take_while(|&&from| bits_per_key >= from).count()).expect("at most 13")
}

/// The rate at which a filter says "maybe" for keys that are absent.
///
/// The number of keys in a line is Poisson distributed; with `i` keys in its line, an absent key finds its bits set
/// with probability `(1 - (1 - 1/512)^(probes * i))^probes`.
#[expect(clippy::cast_precision_loss, reason = "512 has few bits")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the tail of a sum may be cut anywhere"
)]
pub fn false_positive_rate(bits_per_key: f32, probes: u32) -> f64 {
    let line_bits = LINE_BITS as f64;
    let load = line_bits / f64::from(bits_per_key);
    let clear = 1.0 - 1.0 / line_bits;
    let mut likelihood = (-load).exp();
    let mut rate = 0.0;
    for keys in 0..(load * 3.0) as u32 + 60 {
        let set = 1.0 - clear.powf(f64::from(probes * keys));
        rate += likelihood * set.powi(probes.cast_signed());
        likelihood *= load / f64::from(keys + 1);
    }
    rate
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
