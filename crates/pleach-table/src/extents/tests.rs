//! Places of blocks: stored and found again, and hostile bytes.

#![expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test")]
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Starts of blocks of these lengths, and where the last one ends.
fn starts_of(lens: &[u32]) -> (Vec<u32>, u32) {
    let mut end = 0;
    let starts = lens.iter().map(|len| {
        end += len;
        end - len
    });
    (starts.collect(), end)
}

/// Checks that the extents of these lengths come back, from memory and from the stored form, and returns them.
fn extents_of(lens: &[u32], codec: Codec) -> Extents {
    let (starts, end) = starts_of(lens);
    let extents = Extents::new(&starts, end, codec);
    let mut bytes = Vec::new();
    extents.encode(&mut bytes);
    assert!(bytes.len() <= HEAD_LEN + 4 * lens.len(), "{} bytes of {} blocks", bytes.len(), lens.len());
    bytes.push(77);
    let (decoded, rest) = Extents::decode(&bytes, end, codec).unwrap();
    assert_eq!((&decoded, rest), (&extents, [77].as_slice()));
    assert_eq!(extents.blocks() as usize, lens.len());
    for ((no, &start), &len) in (0..).zip(&starts).zip(lens) {
        assert_eq!(extents.get(no), (u64::from(start), len), "block {no}");
    }
    extents
}

#[test]
fn the_shortest_kind_is_taken() {
    let pages =
        |pages: &[u32]| extents_of(&pages.iter().map(|len| len * 4096).collect::<Vec<_>>(), Codec::None);
    assert!(matches!(pages(&[1]), Extents::Uniform { .. }));
    assert!(matches!(pages(&[1, 1, 1]), Extents::Uniform { .. }));
    assert!(matches!(pages(&[1, 1, 2]), Extents::Uniform { .. }));
    assert!(matches!(pages(&[2, 1, 1]), Extents::Lines(_)));
    assert!(matches!(extents_of(&[100, 20_000, 300], Codec::Lz4), Extents::Starts(_)));
    let uneven: Vec<_> = (0..10_000).map(|no| 8000 + no * no % 97).collect();
    let lines = extents_of(&uneven, Codec::Lz4);
    assert!(matches!(lines, Extents::Lines(_)));
    assert!(lines.memory() < 10_000 * 3 / 2, "{} bytes", lines.memory());
}

#[test]
fn lines_take_all_numbers_of_blocks_around_whole_groups() {
    for count in (1..20).chain(120..140).chain(250..260).chain([1279, 1280, 1281]) {
        let lens: Vec<_> = (0..count).map(|no| 5000 + no * 7919 % 1013).collect();
        extents_of(&lens, Codec::Lz4);
        let pages: Vec<_> = (0..count).map(|no| 4096 * (1 + no * 7 % 4)).collect();
        extents_of(&pages, Codec::None);
    }
}

#[test]
fn lines_reach_the_limits_of_lengths_and_of_the_file() {
    const SHORTEST: u32 = HEADER_LEN as u32 + 1;
    // A long block among the shortest ones, at each place of a group and around its end; widths go up to 32 bits.
    for bits in 5..32 {
        for at in [0, 1, 126, 127, 128, 129, 298, 299] {
            let mut lens = vec![SHORTEST; 300];
            lens[at] = 1 << bits;
            extents_of(&lens, Codec::Lz4);
        }
    }
    let long = u32::MAX - 299 * SHORTEST;
    for at in [0, 150, 299] {
        let mut lens = vec![SHORTEST; 300];
        lens[at] = long;
        extents_of(&lens, Codec::Lz4);
    }
    // Slopes that 32 bits do not hold, and a file of nearly 4 GiB in pages.
    extents_of(&[1 << 25, 1 << 26, 1 << 24, 1 << 25, (1 << 25) + 1, 1 << 26, 1 << 27], Codec::Lz4);
    let mut lens = vec![2 << 12; 300];
    lens[7] = (u32::MAX - 299 * (2 << 12)) & !0xfff;
    lens[8] = 1 << 12;
    extents_of(&lens, Codec::None);
}

proptest! {
    #[test]
    fn any_lengths_come_back(
        lens in prop_oneof![
            vec(17_u32..20_000, 1..600),
            vec(8000_u32..8100, 1..600),
            vec((0_u32..24).prop_map(|bits| 17 + (1 << bits)), 1..100),
        ],
        pages in vec(prop_oneof![9 => 1_u32..5, 1 => 1_u32..500], 1..600),
    ) {
        extents_of(&lens, Codec::Lz4);
        extents_of(&pages.iter().map(|pages| pages * 4096).collect::<Vec<_>>(), Codec::None);
    }

    /// Whatever is accepted are blocks that fill the file up to its end.
    #[test]
    fn damaged_extents_are_refused_or_gapless(
        count in 4_u32..300,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in 0_usize..3,
        codec in prop_oneof![Just(Codec::None), Just(Codec::Lz4)],
    ) {
        let unit = if codec == Codec::None { 4096 } else { 100 };
        let (starts, end) = starts_of(&(0..count).map(|no| unit * (1 + no * 7 % 4)).collect::<Vec<_>>());
        let mut bytes = Vec::new();
        Extents::new(&starts, end, codec).encode(&mut bytes);
        for (at, change) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= change;
        }
        bytes.truncate(bytes.len() - cut);
        if let Ok((extents, _)) = Extents::decode(&bytes, end, codec) {
            let mut offset = 0;
            for no in 0..extents.blocks() {
                let (start, len) = extents.get(no);
                prop_assert_eq!(start, offset);
                offset += u64::from(len);
            }
            prop_assert_eq!(offset, u64::from(end));
            prop_assert!(extents.memory() < 4 * bytes.len() + 64);
        }
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in vec(any::<u8>(), 0..200), end: u32, blocks in 1_u32..2000) {
        if let Some(head) = bytes.first_chunk_mut::<HEAD_LEN>() {
            let [b0, b1, b2, b3] = blocks.to_le_bytes();
            *head = [LINES, 0, 0, 0, b0, b1, b2, b3];
        }
        for codec in [Codec::None, Codec::Lz4] {
            let _any = Extents::decode(&bytes, end, codec);
        }
    }
}

#[test]
fn every_changed_byte_of_lines_is_refused_or_gives_other_blocks() {
    let (starts, end) = starts_of(&[100, 200, 300, 250, 150, 170, 210]);
    let good = Extents::new(&starts, end, Codec::Lz4);
    let mut bytes = Vec::new();
    good.encode(&mut bytes);
    assert_eq!(bytes[0], LINES);
    for at in 0..bytes.len() {
        for change in 1..=255 {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            match Extents::decode(&bytes, end, Codec::Lz4) {
                Ok((other, rest)) => {
                    assert!(!rest.is_empty() || other != good, "byte {at}");
                }
                Err(error) => assert!(error.offset < bytes.len(), "{error} at {}", error.offset),
            }
        }
    }
}

#[test]
fn impossible_extents_are_rejected() {
    let lines = |blocks: [u8; 4], widths_and_rest: &[u8]| {
        [&[3, 0, 0, 0], &blocks[..], &[0, 0, 0, 0, 0, 0, 1, 0], widths_and_rest].concat()
    };
    // Two blocks of 256 bytes, and what else their one line and residuals could say.
    let bytes = lines([2, 0, 0, 0], &[1, 0]);
    let (extents, rest) = Extents::decode(&bytes, 512, Codec::Lz4).unwrap();
    assert_eq!((extents.get(0), extents.get(1), rest.len()), ((0, 256), (256, 256), 0));
    for (bytes, end) in [
        (vec![], 4096),
        (vec![4, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0], 4096),
        (vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096),
        (vec![1, 0, 0, 0, 2, 0, 0, 0, 0, 0x10, 0, 0], 4096),
        (vec![1, 0, 0, 0, 1, 0, 0, 0, 1, 0x10, 0, 0], 4097),
        (vec![1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x10, 0, 0], 4096),
        (vec![2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x10, 0, 0], 4096),
        (vec![2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 4096),
    ] {
        assert!(Extents::decode(&bytes, end, Codec::None).is_err(), "{bytes:?}");
    }
    for (bytes, end, at) in [
        (lines([2, 0, 0, 0], &[]), 512, 8),
        (lines([2, 0, 0, 0], &[1]), 512, 8),
        (lines([2, 0, 0, 0], &[0, 0]), 512, 16),
        (lines([2, 0, 0, 0], &[33, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 512, 16),
        (lines([2, 0, 0, 0], &[1, 4]), 512, 17),
        (lines([2, 0, 0, 0], &[1, 1]), 512, 8),
        (lines([2, 0, 0, 0], &[1, 0]), 256 + 16, 8),
        (lines([2, 0, 0, 0], &[1, 0]), 200, 8),
        (lines([0xff, 0xff, 0xff, 0xff], &[1, 0]), 512, 8),
    ] {
        let error = Extents::decode(&bytes, end, Codec::Lz4).unwrap_err();
        assert_eq!(error.offset, at, "{bytes:?}: {error}");
    }
}

#[test]
fn extents_report_the_memory_that_they_hold() {
    let far = vec![0, 100, 900_000];
    let regular: Vec<u32> = (0..1000).map(|no| no * 4000 + no * no % 997).collect();
    for (starts, are_lines) in [(far, false), (regular, true)] {
        let extents = Extents::new(&starts, 5_000_000, Codec::Lz4);
        assert_eq!(extents.are_lines(), are_lines);
        let mut stored = Vec::new();
        extents.encode(&mut stored);
        // Lines have more in memory than in the file, starts have one more.
        assert!(extents.memory() + HEAD_LEN >= stored.len(), "{} {}", extents.memory(), stored.len());
        assert!(extents.memory() < stored.len() + 64, "{} {}", extents.memory(), stored.len());
    }
}
