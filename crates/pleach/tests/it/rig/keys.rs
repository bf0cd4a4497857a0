//! Keys of several shapes, and values of all sizes.

use std::sync::Arc;

use fastrand::Rng;

use super::real_bytes::RealBytes;

/// The form of the keys of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyShape {
    /// `00000042`.
    Decimal,
    /// Eight bytes, big-endian, far apart.
    Binary,
    /// A common prefix of 90 bytes, then a few digits. Some keys are prefixes of others.
    LongPrefix,
    /// One byte, zero and 255 among them, and the empty key.
    OneByte,
    /// Any bytes, many of them 0 and 255, from none to a few KiB.
    Wild,
}

const SHAPES: [KeyShape; 5] =
    [KeyShape::Decimal, KeyShape::Binary, KeyShape::LongPrefix, KeyShape::OneByte, KeyShape::Wild];

impl KeyShape {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        SHAPES[rng.usize(..SHAPES.len())]
    }

    /// Key `number` of this shape: the same number gives the same key.
    #[expect(clippy::big_endian_bytes, reason = "byte order is key order")]
    pub(crate) fn key(self, number: u64) -> Arc<[u8]> {
        match self {
            KeyShape::OneByte | KeyShape::Wild if number == 0 => [].into(),
            KeyShape::Decimal => format!("{number:08}").into_bytes().into(),
            KeyShape::Binary => (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes().into(),
            KeyShape::LongPrefix => format!("{}{}", "/long/prefix".repeat(8), number * 7).into_bytes().into(),
            KeyShape::OneByte => [u8::try_from(number.wrapping_mul(37) % 256).expect("below 256")].into(),
            KeyShape::Wild => wild(number),
        }
    }
}

fn wild(number: u64) -> Arc<[u8]> {
    let mut rng = Rng::with_seed(number);
    let len = match rng.u8(..20) {
        0 => rng.usize(1000..5000),
        1..=4 => rng.usize(1..4),
        _ => rng.usize(1..60),
    };
    let byte = |rng: &mut Rng| match rng.u8(..6) {
        0 => 0,
        1 => 255,
        _ => rng.u8(..),
    };
    (0..len).map(|_| byte(&mut rng)).collect()
}

/// A value that no other put has: it begins with `tag`, as far as it is long enough.
pub(crate) fn value(rng: &mut Rng, tag: u64, sst_bytes: u64) -> Arc<[u8]> {
    let len = match rng.u8(..100) {
        0..4 => 0,
        4..60 => rng.usize(1..60),
        60..94 => rng.usize(60..700),
        94..98 => rng.usize(3000..6000),
        98 => rng.usize(6000..10_000),
        _ => usize::try_from(sst_bytes).expect("small") + rng.usize(..3000),
    };
    value_of(tag, len)
}

/// A value of `len` bytes that begins with `tag`. Half of the values repeat one byte; the others look like what users store.
pub(crate) fn value_of(tag: u64, len: usize) -> Arc<[u8]> {
    let mut value = tag.to_le_bytes().to_vec();
    let rest = len.saturating_sub(value.len());
    let kinds = 2 * RealBytes::ALL.len() as u64;
    match usize::try_from(tag % kinds).ok().and_then(|kind| RealBytes::ALL.get(kind)) {
        Some(kind) => value.extend(kind.make(tag, rest)),
        None => value.resize(value.len() + rest, u8::try_from(tag % 251).expect("below 251")),
    }
    value.truncate(len);
    value.into()
}
