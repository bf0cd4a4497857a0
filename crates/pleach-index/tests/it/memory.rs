//! What decoding allocates at most.

use pleach_index::Index;

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
