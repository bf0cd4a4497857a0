//! Filters: their bytes, no false negative, and false positives as theory has them.
#![expect(clippy::cast_precision_loss, reason = "figures to compare")]

use super::*;

fn filter(bits_per_key: f32, hashes: impl Iterator<Item = u64>) -> (Filter, Vec<u8>) {
    let mut builder = FilterBuilder::new(bits_per_key);
    hashes.for_each(|hash| builder.add(hash));
    let mut payload = Vec::new();
    builder.encode(&mut payload);
    assert_eq!(payload.len(), builder.encoded_len());
    (Filter::decode(&payload).unwrap(), payload)
}

fn hash(i: u64) -> u64 {
    crate::key_hash(3, &i.to_le_bytes())
}

/// As [`false_positive_rate`], for few lines: the number of keys in a line is binomially distributed.
fn rate_of_few(keys: u32, lines: usize, probes: u32) -> f64 {
    let share = 1.0 / lines as f64;
    let mut likelihood = (1.0 - share).powf(f64::from(keys));
    let mut rate = 0.0;
    for i in 0..keys {
        rate += likelihood * rate::line_rate(i, probes);
        likelihood *= f64::from(keys - i) / f64::from(i + 1) * share / (1.0 - share);
    }
    rate
}

/// Of `probed` absent keys, the share that a filter of `keys` keys lets through, over `filters` of them; each is asked
/// for its own keys too. And lines and probes of each.
fn measure(bits: f32, keys: u64, filters: u64, probed: u64) -> (f64, usize, u32) {
    let (mut hits, mut shape) = (0, (0, 0));
    for base in (0..filters).map(|i| i << 40) {
        let (filter, payload) = filter(bits, (0..keys).map(|i| hash(base + i)));
        assert!((0..keys).all(|i| filter.may_contain(hash(base + i))), "no false negatives");
        let absent = base + keys..base + keys + probed / filters;
        hits += absent.filter(|&i| filter.may_contain(hash(i))).count();
        shape = (filter.memory() / LINE_LEN, u32::from(payload[0]));
    }
    (hits as f64 / (probed / filters * filters) as f64, shape.0, shape.1)
}

#[test]
fn false_positives_come_at_the_computed_rate() {
    for bits in [4.0, 5.0, 6.0, 7.3, 8.0, 10.0, 11.5, 12.0, 15.0, 16.0, 20.0] {
        let (rate, _, probes) = measure(bits, 200_000, 1, 4_000_000);
        let expected = false_positive_rate(bits, probes);
        println!("{bits:4} bits, {probes:2} probes: {rate:.6}, expected {expected:.6}");
        assert!((rate / expected - 1.0).abs() < 0.1, "{bits} bits: {rate:.6}, expected {expected:.6}");
        let best = (1..=PROBES_MAX).map(|probes| false_positive_rate(bits, probes)).fold(1.0, f64::min);
        assert!(expected <= 1.03 * best, "{bits} bits: {expected:.6}, with other probes {best:.6}");
    }
}

#[test]
fn small_filters_keep_the_rate_that_their_lines_allow() {
    for (keys, filters) in [(300, 500), (3_000, 100)] {
        for bits in [4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0] {
            let (rate, lines, probes) = measure(bits, keys, filters, 2_000_000);
            let expected = rate_of_few(u32::try_from(keys).unwrap(), lines, probes);
            let told = format!("{keys} keys, {bits} bits: {rate:.6}, expected {expected:.6}");
            assert!((rate / expected - 1.0).abs() < 0.1, "{told}");
            let asked_for = false_positive_rate(bits, probes_for(bits));
            assert!(rate < 1.05 * asked_for, "rounding up to whole lines does no harm: {told}");
        }
    }
}

#[test]
fn stored_bytes_are_fixed() {
    let hashes = [1, u64::MAX, 0x0123_4567_89ab_cdef];
    let set = |bits| {
        let (_, payload) = filter(bits, hashes.into_iter());
        assert_eq!(payload[1..8], [0, 0, 0, 1, 0, 0, 0]);
        let set = (0..512).filter(|i| payload[8 + i / 8] >> (i % 8) & 1 == 1).collect::<Vec<_>>();
        (payload[0], set)
    };
    let six = [68, 95, 100, 123, 130, 157, 220, 242, 263, 300, 316, 411, 415, 428, 429, 443];
    assert_eq!(set(10.0), (6, six.to_vec()));
    let (probes, nine) = set(16.0);
    assert!(probes == 9 && six.iter().all(|bit| nine.contains(bit)), "{nine:?}");
}

#[test]
fn damaged_heads_are_rejected() {
    let (_, payload) = filter(10.0, (0..100).map(hash));
    for (at, value) in [(0, 0), (0, 15), (1, 1), (4, 0), (4, 9), (7, 1)] {
        let mut damaged = payload.clone();
        damaged[at] = value;
        assert!(Filter::decode(&damaged).is_err(), "byte {at} = {value}");
    }
    assert!(Filter::decode(&payload[..payload.len() - 1]).is_err());
    assert!(Filter::decode(&[]).is_err());
}
