//! What indexes have allocated, and what decoding allocates at most.

use pleach_index::{Encoders, Index, IndexBuilder, IndexChoice, IndexKind};

use crate::alloc::measure;

/// A learned index of `1 + segments` blocks whose records take no bytes: even layout, segments of one boundary, no residuals.
fn without_records(segments: u32) -> Vec<u8> {
    let encoder = [2, 0, 1, 0, 1, 1, 0, 255];
    let mut bytes = encoder.to_vec();
    let mut rest = segments;
    while rest >= 128 {
        bytes.push((rest & 127) as u8 | 128);
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).expect("seven bits"));
    bytes.extend([0; 16]);
    bytes.extend([1, 1]);
    bytes.extend([[0, 0], [2, 0], [0, 0], [0, 0], [0, 0]].concat());
    bytes
}

#[test]
fn fields_of_no_bytes_take_16_bytes_a_block() {
    for blocks in [2_u32, 100, (1 << 22) - 1] {
        let bytes = without_records(blocks - 1);
        let (index, _, peak) = measure(|| Index::decode(&bytes, blocks).unwrap());
        assert_eq!((index.blocks(), index.segments()), (blocks, blocks - 1));
        assert!(peak <= 16 * blocks as usize + 24 * bytes.len() + 1024, "{peak} bytes, {blocks} blocks");
    }
}

#[test]
fn an_index_counts_what_it_has_allocated() {
    let key = |n: u32| format!("{n:08}");
    for blocks in [2, 30, 3000] {
        let (mut learning, mut separating) = (IndexBuilder::learning(), IndexBuilder::new());
        for block in 1..blocks {
            let n = block * 10 + block * block % 7;
            learning.boundary(key(n - 1).as_bytes(), key(n).as_bytes());
            separating.boundary(key(n - 1).as_bytes(), key(n).as_bytes());
        }
        let separators = separating.finish();
        let learned = learning.finish_as(IndexChoice::Learned).0;
        let mut stored = [Vec::new(), Vec::new()];
        learned.encode(&mut stored[0]);
        separators.encode(&mut stored[1]);
        let decode = |stored: &[u8]| Index::decode(stored, blocks).unwrap();
        let from_separators = measure(|| separators.learn_from_separators(IndexChoice::Learned).unwrap());
        for (index, live, _) in
            [measure(|| decode(&stored[0])), measure(|| decode(&stored[1])), from_separators]
        {
            // Counts of a shared encoder.
            let counts = 2 * size_of::<usize>();
            assert!(
                (index.memory()..=index.memory() + counts).contains(&live),
                "{:?} of {blocks} blocks: {live} bytes, counted {}",
                index.kind(),
                index.memory()
            );
        }
    }
}

/// Most bytes that a report may differ from the truth: counters of references.
const SLACK: usize = 64;

/// Sets of keys by name. Together they need every part of an index.
fn sets() -> Vec<(&'static str, Vec<String>)> {
    let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let letters = |n: u64| {
        let alphabet = b"ACEGIKMOQSUWYacegikmoqsuwy".iter().cycle();
        (0..6).map(move |i| {
            alphabet
                .clone()
                .nth(usize::from((mixed(n) >> (9 * i)).to_le_bytes()[0] % 26))
                .copied()
                .unwrap_or(b'A')
        })
    };
    vec![
        ("even segments", (0..20_000).map(|n| format!("{:016}", mixed(n) >> 11)).collect()),
        ("uneven segments", (0..20_000).map(|n| format!("{:010}", n + n / 100 * 1777)).collect()),
        (
            "lower bits apart",
            (0..20_000)
                .map(|n| format!("t{:05}/o{:07}/{:03}", n / 900, mixed(n / 3) % 1_200_000, n % 3))
                .collect(),
        ),
        ("five words", (0..4000).map(|n| format!("{:036b}", (mixed(n / 2) >> 28) ^ (n % 2))).collect()),
        ("six words", (0..4000).map(|n| format!("{:022}{:022}", n / 64, n)).collect()),
        ("sets of bytes", (0..4000).map(|n| letters(n).map(char::from).collect()).collect()),
    ]
}

fn builder_of(keys: &[String], per_block: usize) -> IndexBuilder {
    let mut builder = IndexBuilder::learning();
    for first in (per_block..keys.len()).step_by(per_block) {
        builder.boundary(keys[first - 1].as_bytes(), keys[first].as_bytes());
    }
    builder
}

#[track_caller]
fn assert_reported(reported: usize, held: usize, what: &str) {
    assert!(held <= reported + SLACK, "{what}: {held} bytes are held, {reported} reported");
    assert!(reported <= held + SLACK, "{what}: {held} bytes are held, {reported} reported");
}

#[test]
fn an_index_reports_the_memory_that_it_holds() {
    let mut from_separators = 0;
    for (set, mut keys) in sets() {
        keys.sort();
        keys.dedup();
        for choice in [IndexChoice::Separators, IndexChoice::Learned] {
            let (index, held, _) = measure(|| builder_of(&keys, 3).finish_as(choice).0);
            assert_eq!(index.kind() == IndexKind::Learned, choice == IndexChoice::Learned, "{set}");
            assert_reported(index.memory(), held, set);
            let mut bytes = Vec::new();
            index.encode(&mut bytes);
            let (decoded, held, _) = measure(|| Index::decode(&bytes, index.blocks()).unwrap());
            assert_reported(decoded.memory(), held, set);
            let (learned, held, _) = measure(|| index.learn_from_separators(IndexChoice::Learned));
            if let Ok(learned) = learned {
                assert_reported(learned.memory(), held, set);
                from_separators += 1;
            }
        }
        let builder = builder_of(&keys, 3);
        let (model, held, _) = measure(|| Box::new(builder.greedy_plr(2).unwrap()));
        assert_reported(model.memory(), held, set);
    }
    assert!(from_separators >= 3, "{from_separators}");
}

#[test]
fn separators_that_are_kept_whole_are_reported() {
    let common = (0..4000_u64).map(|n| format!("{:07}", n * 37));
    let far = (0..40_u64).map(|n| format!("{:07}{:030}", n / 2 * 37 * 190, n % 2 + 1));
    let mut keys: Vec<_> = common.chain(far).collect();
    keys.sort();
    let index = builder_of(&keys, 1).finish_as(IndexChoice::Separators).0;
    let (learned, held, _) = measure(|| index.learn_from_separators(IndexChoice::Smallest).unwrap());
    assert_reported(learned.memory(), held, "long separators");
}

#[test]
fn encoders_that_nobody_uses_any_more_are_forgotten() {
    let encoders = Encoders::new();
    let ((), held, _) = measure(|| {
        for prefix in 0..2000 {
            let keys: Vec<_> = (0..100).map(|n| format!("{prefix:04}/{n:08}")).collect();
            builder_of(&keys, 2).finish_as(IndexChoice::Learned).0.share(&encoders);
        }
    });
    assert!(held < 16 << 10, "{held} bytes for encoders that are gone");
}
