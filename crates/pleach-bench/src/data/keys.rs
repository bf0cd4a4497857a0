//! Keys of generated sets. A set gives a key for every index, all different, and keys that are never put but lie among those
//! that are. The examples of `pleach-index` and `pleach-table` include this file, so it knows nothing of the command line.

use super::generated_text;
use super::permutation::Permutation;
use super::random::mix64;

/// Indexes from here on are never put; sets without an order of their own take missing keys from there.
const MISSING_FROM: u64 = 1 << 41;
/// Lines of an order in the composite set.
const LINES: u64 = 8;
/// Tenants in the composite set.
const TENANTS: u64 = 10_000;
/// In the sparse set, one of so many decimal keys is there.
const SPARSE: u64 = 16;
/// Keys without a gap in the set of segments, and how many numbers a segment takes with its gap.
const SEGMENT: [u64; 2] = [100, 1000];
/// Numbers of 7 digits, which say where a key of the bell-shaped and the clustered set lies.
const PLACES: u64 = 10_000_000;
/// Clusters of the clustered set.
const CLUSTERS: u64 = 5000;

/// The kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySet {
    Decimal,
    Sparse,
    Random16,
    Seg1,
    Binary,
    Dense8,
    User,
    Uuid,
    Hex40,
    Composite,
    Ar,
    Osm,
    Url,
    Path,
}

impl KeySet {
    pub(crate) const ALL: [Self; 14] = [
        Self::Decimal,
        Self::Sparse,
        Self::Random16,
        Self::Seg1,
        Self::Binary,
        Self::Dense8,
        Self::User,
        Self::Uuid,
        Self::Hex40,
        Self::Composite,
        Self::Ar,
        Self::Osm,
        Self::Url,
        Self::Path,
    ];

    /// Its name, and what its keys are.
    pub(crate) fn description(self) -> (&'static str, &'static str) {
        match self {
            Self::Decimal => ("decimal", "`%016d`, as `db_bench` writes them: 16 bytes"),
            Self::Sparse => ("sparse", "one of 16 of `decimal`, at random: 16 bytes"),
            Self::Random16 => ("random16", "16 random digits"),
            Self::Seg1 => ("seg1", "`decimal` with a gap of 900 after each 100: 16 bytes"),
            Self::Binary => ("binary", "random 64-bit numbers, big-endian: 8 bytes"),
            Self::Dense8 => ("dense8", "consecutive 64-bit numbers, big-endian: 8 bytes"),
            Self::User => ("user", "YCSB's `user` and a hash in decimal, not padded: up to 23 bytes"),
            Self::Uuid => ("uuid", "random UUIDs in text: 36 bytes"),
            Self::Hex40 => ("hex40", "40 hexadecimal digits, as of a hash"),
            Self::Composite => {
                ("composite", "`tenant/order/line`, orders of random tenants one after the other: 22 bytes")
            }
            Self::Ar => ("ar", "20 digits, the first 7 bell-shaped, as of Amazon reviews"),
            Self::Osm => ("osm", "20 digits, the first 7 in clusters of uneven size, as of OpenStreetMap"),
            Self::Url => ("url", "URLs with shared hosts and folders: about 50 bytes"),
            Self::Path => ("path", "file paths: about 50 bytes"),
        }
    }

    /// Whether a larger index always has a larger key.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(self, Self::Decimal | Self::Sparse | Self::Seg1 | Self::Dense8)
    }

    /// Puts the key with `index` into `key`.
    #[inline]
    pub(crate) fn write(self, index: u64, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Decimal => decimal(index, 16, key),
            Self::Sparse => decimal(index * SPARSE + mix64(index) % SPARSE, 16, key),
            Self::Random16 => decimal(Permutation::new(10_u64.pow(16), 0).apply(index), 16, key),
            Self::Seg1 => decimal(index / SEGMENT[0] * SEGMENT[1] + index % SEGMENT[0], 16, key),
            Self::Binary => key.extend_from_slice(&mix64(index).swap_bytes().to_le_bytes()),
            Self::Dense8 => key.extend_from_slice(&index.swap_bytes().to_le_bytes()),
            Self::User => user(index, key),
            Self::Uuid => uuid(index, key),
            Self::Hex40 => {
                hexadecimal(mix64(index), 16, key);
                hexadecimal(mix64(!index), 16, key);
                hexadecimal(index, 8, key);
            }
            Self::Composite => composite(index / LINES, index % LINES, key),
            Self::Ar => placed(bell_shaped(index), index, key),
            Self::Osm => placed(clustered(index), index, key),
            Self::Url => generated_text::url(index, key),
            Self::Path => generated_text::path(index, key),
        }
    }

    /// Puts a key into `key` that is not in the set. It lies near the one with `index`, or anywhere among the set's
    /// keys where those have no order.
    #[inline]
    pub(crate) fn write_missing(self, index: u64, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Decimal => {
                self.write(index, key);
                key.push(b'.');
            }
            Self::Dense8 => {
                self.write(index, key);
                key.push(0);
            }
            Self::Sparse => {
                let other = (mix64(index) + 1 + mix64(!index) % (SPARSE - 1)) % SPARSE;
                decimal(index * SPARSE + other, 16, key);
            }
            Self::Seg1 => decimal(index / SEGMENT[0] * SEGMENT[1] + index % SEGMENT[0] + 450, 16, key),
            Self::Composite => composite(index / LINES, index % LINES + LINES, key),
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

/// The lowest `digits` digits of the number in hexadecimal.
fn hexadecimal(number: u64, digits: u32, key: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    key.extend((0..digits).rev().map(|digit| DIGITS[((number >> (4 * digit)) & 15) as usize]));
}

/// A place of 7 digits, and 13 digits that no other index has.
fn placed(place: u64, index: u64, key: &mut Vec<u8>) {
    decimal(place, 7, key);
    decimal(Permutation::new(10_u64.pow(13), 0).apply(index), 13, key);
}

/// The sum of four random numbers.
fn bell_shaped(index: u64) -> u64 {
    (0..4).map(|n| mix64(mix64(index) + n) % (PLACES / 4)).sum()
}

/// A place near the centre of a cluster; a few clusters have most of the keys, and most keys are near the centre.
fn clustered(index: u64) -> u64 {
    let random = |n: u64, bound: u64| mix64(mix64(index) ^ n << 60) % bound;
    let cluster = random(1, random(2, CLUSTERS) + 1);
    let distance = random(3, random(4, PLACES / 100) + 1);
    (mix64(cluster) % PLACES + distance) % PLACES
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
