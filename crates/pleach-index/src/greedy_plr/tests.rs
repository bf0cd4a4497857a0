//! Tests of Greedy-PLR+: every key within the bound, monotone, and the promise for absent keys.
#![expect(clippy::indexing_slicing, reason = "a test")]

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::IndexBuilder;
use crate::test_keys::{builder_of, key, sets};

const BOUNDS: [u32; 7] = [0, 1, 2, 4, 8, 16, u32::MAX];

/// Builds a model for each bound and checks it with all keys and probes. Returns whether models could be made.
fn check(mut keys: Vec<Vec<u8>>, per_block: usize, probes: &[Vec<u8>]) -> bool {
    keys.sort();
    keys.dedup();
    let blocks: Vec<&[Vec<u8>]> = keys.chunks(per_block).collect();
    let builder = builder_of(&blocks);
    let models: Vec<GreedyPlr> = BOUNDS.iter().filter_map(|&bound| builder.greedy_plr(bound)).collect();
    for model in &models {
        check_model(model, &blocks, probes);
    }
    assert!(models.is_empty() || models.len() == BOUNDS.len());
    !models.is_empty()
}

fn check_model(model: &GreedyPlr, blocks: &[&[Vec<u8>]], probes: &[Vec<u8>]) {
    assert_eq!(model.blocks() as usize, blocks.len());
    let mut predictions = Vec::new();
    for (block, key) in (0..).zip(blocks).flat_map(|(block, keys)| keys.iter().map(move |key| (block, key))) {
        let predicted = model.predict(key);
        assert!(predicted.abs_diff(block) <= model.error_max(), "{key:?} of {block} in {model:?}");
        assert!(model.search_range(key).contains(&block));
        predictions.push((key, predicted));
    }
    for probe in probes {
        predictions.push((probe, model.predict(probe)));
        let is_promised = |block: u32| {
            let block = block as usize;
            (block == 0 || blocks[block - 1].last().unwrap() < probe)
                && blocks.get(block + 1).is_none_or(|next| *probe < next[0])
        };
        assert!(model.search_range(probe).any(is_promised), "{probe:?} in {model:?}");
    }
    predictions.sort();
    assert!(predictions.is_sorted_by_key(|(_, predicted)| *predicted), "not monotone: {model:?}");
    assert!(predictions.iter().all(|(_, predicted)| *predicted < model.blocks()));
}

proptest! {
    #[test]
    fn keys_are_predicted_within_the_bound(
        keys in sets(), per_block in 1usize..9, probes in vec(key(), 0..60),
    ) {
        check(keys, per_block, &probes);
    }

    #[test]
    fn keys_that_extend_each_other_are_predicted_within_the_bound(
        lens in btree_set(1usize..200, 2..60), byte in any::<u8>(), per_block in 1usize..5,
    ) {
        let probes: Vec<_> = (1..210).map(|len| vec![byte; len]).collect();
        check(lens.into_iter().map(|len| vec![byte; len]).collect(), per_block, &probes);
    }

    #[test]
    fn keys_that_tie_are_refused_or_predicted_within_the_bound(
        keys in btree_set((vec(any::<u8>(), 0..3), 0usize..60, vec(any::<u8>(), 1..3)), 2..100),
        per_block in 1usize..5, probes in vec(key(), 0..60),
    ) {
        let long = |(head, shared, tail): (Vec<u8>, usize, Vec<u8>)| [head, vec![b'x'; shared], tail].concat();
        check(keys.into_iter().map(long).collect(), per_block, &probes);
    }

    #[test]
    fn any_gaps_are_refused_or_fitted(
        gaps in vec((any::<u64>(), any::<u64>()), 0..40), codes in vec(any::<u64>(), 0..40), shift in 0u32..64,
    ) {
        let mut gaps: Vec<_> = gaps.into_iter().map(|(a, b)| (a >> shift, b >> shift)).collect();
        let _ = Lines::fit(&gaps, 3);
        gaps.sort_unstable();
        let ascending: Vec<_> = gaps.windows(2).step_by(2).map(|pair| (pair[0].0, pair[1].0)).collect();
        for error_max in BOUNDS {
            let Some(lines) = Lines::fit(&ascending, error_max) else { continue };
            for code in codes.iter().copied().chain([0, u64::MAX]) {
                prop_assert!(lines.predict(code) < lines.blocks);
            }
        }
    }
}

#[test]
fn keys_of_one_byte_are_predicted_within_the_bound() {
    let probes: Vec<_> = (0..=255).flat_map(|byte| [vec![byte], vec![byte, 0], vec![byte, 255]]).collect();
    for per_block in 1..5 {
        assert!(check((0..=255).map(|byte| vec![byte]).collect(), per_block, &probes));
    }
}

#[test]
fn keys_that_tie_in_128_bits_are_refused() {
    // All bytes occur at each of 24 positions, and the keys at a boundary differ behind them.
    let pair = |n: u8| {
        let head: Vec<u8> = (0..24_u8).map(|position| n.wrapping_mul(2 * position + 1)).collect();
        [[&head[..], &[0]].concat(), [&head[..], &[1]].concat()]
    };
    assert!(!check((0..=255).flat_map(pair).collect(), 1, &[]));
}

#[test]
fn the_longest_keys_are_predicted_within_the_bound() {
    let long = |n: u8| [vec![n / 16], vec![b'x'; 65_000], vec![n]].concat();
    check((0..64).map(long).collect(), 1, &[]);
    assert!(check((0..64).map(|n| [vec![b'x'; 65_000], vec![n]].concat()).collect(), 1, &[]));
}

#[test]
fn dense_keys_take_one_segment_within_any_bound() {
    let mut builder = IndexBuilder::learning();
    for block in 1..5000 {
        let key = |n: u32| format!("{n:08}");
        builder.boundary(key(block * 36 - 1).as_bytes(), key(block * 36).as_bytes());
    }
    for bound in BOUNDS {
        assert_eq!(builder.greedy_plr(bound).unwrap().segments(), 1);
    }
}

#[test]
fn a_higher_bound_takes_fewer_segments() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut codes: Vec<u64> = std::iter::repeat_with(|| rng.u64(..)).take(100_000).collect();
    codes.sort_unstable();
    codes.dedup();
    let gaps: Vec<_> = codes.windows(2).skip(35).step_by(36).map(|pair| (pair[0], pair[1])).collect();
    let segments = |bound: u32| Lines::fit(&gaps, bound).unwrap().firsts.len();
    let counts = [0, 1, 4, 16].map(segments);
    assert!(counts.is_sorted_by(|few, fewer| fewer < few), "{counts:?}");
    assert!(counts[0] > gaps.len() / 4 && counts[3] < gaps.len() / 16, "{counts:?}");
}

#[test]
fn gaps_out_of_order_are_refused() {
    for gaps in [vec![], vec![(5, 5)], vec![(6, 5_u64)], vec![(1, 5), (4, 9)], vec![(1, 2), (0, 1)]] {
        assert_eq!(Lines::fit(&gaps, 1), None, "{gaps:?}");
    }
    assert!(Lines::fit(&[(0, u64::MAX)], 0).is_some());
    assert!(Lines::fit(&[(0, 1), (1, 2), (u128::MAX - 1, u128::MAX)], u32::MAX).is_some());
}
