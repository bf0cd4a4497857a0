//! Keys of all kinds, for tests.

use proptest::collection::vec;
use proptest::prelude::*;

/// A key of any kind: random bytes, few bytes, numbers in binary and text, composite keys, paths.
pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 1..12),
        vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 1..20),
        any::<u64>().prop_map(|n| n.swap_bytes().to_le_bytes().to_vec()),
        any::<u64>().prop_map(|n| format!("{:016}", n % 10_000_000_000).into_bytes()),
        any::<u64>().prop_map(|n| format!("user{n}").into_bytes()),
        any::<(u64, u64)>().prop_map(|(a, b)| format!("{a:016x}-{b:016x}").into_bytes()),
        (0u32..10_000, 0u32..20).prop_map(|(a, b)| format!("t{a:05}/o{:07}/{b:03}", a * 7).into_bytes()),
        "[a-c]{1,4}/shared/prefix/[a-d]{0,12}".prop_map(String::into_bytes),
        "[a-zA-Z0-9_-]{4,14}".prop_map(String::into_bytes),
    ]
}
