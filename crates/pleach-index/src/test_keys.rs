//! Keys of all kinds, for tests.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::IndexBuilder;

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

/// Keys of one kind or of all.
pub(crate) fn sets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let kinds: Vec<BoxedStrategy<Vec<Vec<u8>>>> = vec![
        vec(vec(any::<u8>(), 1..12), 2..300).boxed(),
        vec(vec(0u8..3, 1..12), 2..300).boxed(),
        vec(any::<u64>().prop_map(|n| n.swap_bytes().to_le_bytes().to_vec()), 2..900).boxed(),
        vec(any::<u64>().prop_map(|n| format!("user{n}").into_bytes()), 2..900).boxed(),
        vec(any::<u128>().prop_map(|n| format!("{n:032x}").into_bytes()), 2..900).boxed(),
        vec((0u64..1000, 0u64..8).prop_map(|(a, b)| format!("{:08}/{b:03}", a * a).into_bytes()), 2..900)
            .boxed(),
        btree_set(key(), 2..300).prop_map(|set| set.into_iter().collect()).boxed(),
    ];
    proptest::strategy::Union::new(kinds)
}

/// A builder that got the boundaries between `blocks`, which are keys in order.
pub(crate) fn builder_of(blocks: &[&[Vec<u8>]]) -> IndexBuilder {
    let mut builder = IndexBuilder::learning();
    for pair in blocks.windows(2) {
        builder.boundary(pair[0].last().unwrap(), &pair[1][0]);
    }
    builder
}
