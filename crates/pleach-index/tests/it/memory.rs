//! What indexes have allocated, and what decoding allocates at most.

use pleach_index::{Index, IndexBuilder, IndexChoice};

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
