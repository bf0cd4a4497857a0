//! Key sets: which keys there are. A set gives a key for every index, all different, and keys that are never put but
//! lie among those that are.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::generated_text;
use super::random::mix64;

/// Indexes from here on are never put; sets without an order of their own take missing keys from there.
const MISSING_FROM: u64 = 1 << 41;
/// Lines of an order in the composite set.
const LINES: u64 = 8;
/// Tenants in the composite set.
const TENANTS: u64 = 10_000;

/// The kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeySet {
    /// `%016d`, as `db_bench` writes them: 16 bytes.
    Decimal,
    /// Random 64-bit numbers, big-endian: 8 bytes.
    Binary,
    /// YCSB's `user` and a hash in decimal, not padded: up to 23 bytes.
    User,
    /// Random UUIDs in text: 36 bytes.
    Uuid,
    /// `tenant/order/line`, orders of random tenants one after the other: 22 bytes.
    Composite,
    /// URLs with shared hosts and folders: about 50 bytes.
    Url,
    /// File paths: about 50 bytes.
    Path,
}

impl KeySet {
    /// Whether a larger index always has a larger key.
    pub(crate) fn is_ordered(self) -> bool {
        self == Self::Decimal
    }

    /// Puts the key with `index` into `key`.
    #[inline]
    pub(crate) fn write(self, index: u64, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Decimal => decimal(index, 16, key),
            Self::Binary => key.extend_from_slice(&mix64(index).swap_bytes().to_le_bytes()),
            Self::User => user(index, key),
            Self::Uuid => uuid(index, key),
            Self::Composite => composite(index / LINES, index % LINES, key),
            Self::Url => generated_text::url(index, key),
            Self::Path => generated_text::path(index, key),
        }
    }

    /// Puts a key into `key` that is not in the set. It lies near the one with `index`, or anywhere among the set's
    /// keys where those have no order.
    #[inline]
    pub(crate) fn write_missing(self, index: u64, key: &mut Vec<u8>) {
        match self {
            Self::Decimal => {
                self.write(index, key);
                key.push(b'.');
            }
            Self::Composite => {
                key.clear();
                composite(index / LINES, index % LINES + LINES, key);
            }
            _ => self.write(MISSING_FROM + index, key),
        }
    }
}

/// The number in decimal with at least `width` digits.
#[inline]
fn decimal(mut number: u64, width: usize, key: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key.extend_from_slice(&digits[at.min(digits.len() - width)..]);
}

/// As YCSB's `buildKeyName`: FNV-1a over the eight bytes of the number, made positive.
fn user(index: u64, key: &mut Vec<u8>) {
    let hash = index.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    key.extend_from_slice(b"user");
    decimal(hash.cast_signed().unsigned_abs(), 1, key);
}

/// A random UUID (version 4) in its usual form.
fn uuid(index: u64, key: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let high = (mix64(index) & !0xf000) | 0x4000;
    let low = (mix64(!index) & !(0b11 << 62)) | (0b10 << 62);
    for (at, shift) in (0..16).map(|digit| 60 - digit * 4).enumerate() {
        if at == 8 || at == 12 {
            key.push(b'-');
        }
        key.push(DIGITS[((high >> shift) & 15) as usize]);
    }
    for (at, shift) in (0..16).map(|digit| 60 - digit * 4).enumerate() {
        if at == 0 || at == 4 {
            key.push(b'-');
        }
        key.push(DIGITS[((low >> shift) & 15) as usize]);
    }
}

fn composite(order: u64, line: u64, key: &mut Vec<u8>) {
    key.push(b't');
    decimal(mix64(order) % TENANTS, 5, key);
    key.extend_from_slice(b"/o");
    decimal(order, 10, key);
    key.push(b'/');
    decimal(line, 3, key);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(set: KeySet, index: u64) -> Vec<u8> {
        let mut key = Vec::new();
        set.write(index, &mut key);
        key
    }

    #[test]
    fn keys_look_as_they_should() {
        let text = |set, index| String::from_utf8(key(set, index)).expect("it is text");
        assert_eq!(text(KeySet::Decimal, 42), "0000000000000042");
        // What YCSB's own `Utils.hash` gives.
        assert_eq!(text(KeySet::User, 0), "user6284781860667377211");
        assert_eq!(text(KeySet::User, 1), "user8517097267634966620");
        assert_eq!(text(KeySet::Uuid, 7).len(), 36);
        assert_eq!(&text(KeySet::Uuid, 7)[14..15], "4");
        assert_eq!(text(KeySet::Composite, 17), "t08110/o0000000002/001");
        assert!(text(KeySet::Url, 3).starts_with("https://"));
        assert!(text(KeySet::Path, 3).starts_with("/srv/data/"));
        assert_eq!(key(KeySet::Binary, 3).len(), 8);
    }

    #[test]
    fn keys_are_unique_and_missing_ones_are_missing() {
        for &set in KeySet::value_variants() {
            let keys: BTreeSet<Vec<u8>> = (0..50_000).map(|index| key(set, index)).collect();
            assert_eq!(keys.len(), 50_000, "{set:?}");
            let (first, last) = (keys.first().expect("not empty"), keys.last().expect("not empty"));
            let mut missing = Vec::new();
            let mut inside = 0;
            for index in 0..10_000 {
                set.write_missing(index, &mut missing);
                assert!(!keys.contains(&missing), "{set:?} {index}");
                inside += usize::from(first < &missing && &missing < last);
            }
            assert!(inside > 9_990, "{set:?} {inside}");
        }
    }

    #[test]
    fn order_is_as_promised() {
        for &set in KeySet::value_variants() {
            let ordered = (1..1000).all(|index| key(set, index - 1) < key(set, index));
            assert_eq!(ordered, set.is_ordered(), "{set:?}");
        }
    }
}
