//! An index of any bytes, or a good one that is damaged: refused, or every answer is a block of the SST.
#![no_main]

use std::sync::LazyLock;

use pleach_fuzz::Input;
use pleach_index::{Index, IndexBuilder, IndexChoice};

/// Keys of one set and the number of blocks, with a learned index of them.
static GOOD: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let decimal = |n: u64| format!("{n:016}").into_bytes();
    let text = |n: u64| format!("user/{:x}", n * n * n % 999_983 + n * 1_000_003).into_bytes();
    let wide = |n: u64| [(n / 7 * 7).swap_bytes().to_le_bytes(), n.swap_bytes().to_le_bytes()].concat();
    let kinds: [&dyn Fn(u64) -> Vec<u8>; 3] = [&decimal, &text, &wide];
    kinds.map(|key| {
        let mut keys: Vec<_> = (1..400).map(key).collect();
        keys.sort();
        let mut builder = IndexBuilder::learning();
        for pair in keys.windows(2).step_by(3) {
            builder.boundary(&pair[0], &pair[1]);
        }
        let mut bytes = Vec::new();
        builder.finish_as(IndexChoice::Learned).0.encode(&mut bytes);
        bytes
    })
});

/// Most blocks that an index is decoded for: one more than a model can have.
const BLOCKS_MAX: u32 = 1 << 22;

/// Bytes of memory for each byte of an index, for each block, and besides: of the 255 positions of an encoder, and of what
/// is empty.
const MEMORY_MAX: [usize; 3] = [24, 16, 16 << 10];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let blocks = match input.byte() {
        0 => 134,
        255 => {
            u32::try_from(input.number() << 8 | usize::from(input.byte())).expect("24 bits")
                % (BLOCKS_MAX + 1)
        }
        other => u32::from(other),
    };
    let mut index = match input.byte() % 4 {
        3 => input.bytes(usize::MAX).to_vec(),
        good => GOOD[usize::from(good)].clone(),
    };
    let key = input.bytes(20);
    input.damage(&mut index);
    let factors = [index.len(), blocks as usize, 1];
    if let Ok(index) = Index::decode(&index, blocks) {
        let memory_max: usize = MEMORY_MAX.iter().zip(factors).map(|(bytes, factor)| bytes * factor).sum();
        assert!(index.memory() <= memory_max, "{} bytes of at most {memory_max}", index.memory());
        for probe in [key, b"", b"user/1234", b"0000000000000123", &[0xff; 40]] {
            assert!(index.find(probe) < blocks);
        }
    }
});
