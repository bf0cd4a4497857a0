//! The demo's entries: keys and values are computed from numbers, so that everything read can be checked.

/// Length of a value.
pub(super) const VALUE_LEN: usize = 100;

/// Length of a key: decimal digits, so that byte order is the order of numbers.
pub(super) const KEY_LEN: usize = 16;

/// A prime larger than any number of entries: its multiples visit all entries in scattered order.
const STRIDE: u64 = 2_654_435_761;

/// A partition of the demo.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Share of the entries in percent.
    percent: u64,
    /// Whether keys are written in scattered or ascending order.
    pub(super) scattered: bool,
}

/// The data that is loaded.
pub(super) const KINDS: [Kind; 3] = [
    Kind { name: "users", percent: 20, scattered: true },
    Kind { name: "orders", percent: 30, scattered: true },
    Kind { name: "events", percent: 50, scattered: false },
];

/// The partition that is dropped: the largest.
pub(super) const DROPPED: Kind = KINDS[2];

impl Kind {
    /// Its entries if the demo has `total`.
    pub(super) fn entries(self, total: u64) -> u64 {
        total * self.percent / 100
    }

    /// Number of the entry that is written as the `n`th of `entries`.
    pub(super) fn nth(self, n: u64, entries: u64) -> u64 {
        if self.scattered { n * STRIDE % entries } else { n }
    }
}

/// The key of entry `number`.
pub(super) fn key(number: u64) -> [u8; KEY_LEN] {
    let mut key = [b'0'; KEY_LEN];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    key
}

/// The value of entry `number` of the partition `name`: letters that depend on both.
pub(super) fn value(name: &str, number: u64) -> [u8; VALUE_LEN] {
    let salt = name.bytes().fold(0u64, |salt, byte| salt.wrapping_mul(31).wrapping_add(byte.into()));
    let mut random = fastrand::Rng::with_seed(number ^ salt.rotate_left(32));
    let mut value = [0; VALUE_LEN];
    for chunk in value.chunks_mut(8) {
        // Eight letters from eight random bytes: a to p.
        let letters = (random.u64(..) & 0x0f0f_0f0f_0f0f_0f0f) + 0x6161_6161_6161_6161;
        chunk.copy_from_slice(&letters.to_le_bytes()[..chunk.len()]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_visited_once() {
        for entries in [1, 7, 1000, 200_000] {
            for kind in KINDS {
                let mut numbers: Vec<_> = (0..entries).map(|n| kind.nth(n, entries)).collect();
                numbers.sort_unstable();
                assert!(numbers.into_iter().eq(0..entries));
            }
        }
    }

    #[test]
    fn keys_are_decimal_and_values_differ() {
        assert_eq!(&key(1_234_567), b"0000000001234567");
        assert_eq!(value("users", 1), value("users", 1));
        assert_ne!(value("users", 1), value("users", 2));
        assert_ne!(value("users", 1), value("orders", 1));
        assert!(value("users", 1).iter().all(u8::is_ascii_lowercase));
    }
}
