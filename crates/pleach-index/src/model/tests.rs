//! Tests of the model: exact at every gap, monotone, small where it should be.
#![expect(clippy::indexing_slicing, reason = "a test")]

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use pleach_coding::{Decoder, Malformed, put_varint};

use super::*;

/// Codes of keys, and how many of them a block takes.
fn gaps_of<C: Code>(codes: &[C], per_block: usize) -> Vec<Gap<C>> {
    codes.windows(2).skip(per_block - 1).step_by(per_block).map(|pair| (pair[0], pair[1])).collect()
}

fn check<C: Code>(gaps: &[Gap<C>]) -> Option<Model<C>> {
    let model = Model::build(gaps)?;
    assert!(model.is_exact(gaps));
    let mut previous = 0;
    for gap in gaps {
        for code in [gap.0, gap.1] {
            let found = model.find(code);
            assert!(
                found >= previous && found < model.blocks(),
                "{code:?} {found} {previous} {model:?} {gaps:?}"
            );
            previous = found;
        }
    }
    Some(model)
}

fn residual_bytes(gaps: &[Gap<u64>]) -> usize {
    check(gaps).expect("a model").memory()
}

proptest! {
    #[test]
    fn every_gap_is_exact(codes in btree_set(any::<u64>(), 3..200), per_block in 1usize..20, shift in 0u32..60) {
        let mut codes: Vec<u64> = codes.into_iter().map(|code| code >> shift).collect();
        codes.dedup();
        if codes.len() > per_block {
            check(&gaps_of(&codes, per_block));
        }
    }

    #[test]
    fn clusters_are_exact(steps in vec((0u32..64, 1u64..8), 3..1000), per_block in 1usize..6) {
        let mut code = 0u64;
        let codes: Vec<u64> = steps.iter().map_while(|(shift, n)| {
            code = code.checked_add(n << (shift % 50))?;
            Some(code)
        }).collect();
        if codes.len() > per_block {
            check(&gaps_of(&codes, per_block));
            let wide: Vec<u128> = codes.iter().map(|&code| u128::from(code) << 60 | 1).collect();
            check(&gaps_of(&wide, per_block));
        }
    }
}

/// Gaps of which some are one code wide and others, at multiples of 8, much wider.
fn gaps_of_composite_codes(random: &[u64], per_block: usize) -> Vec<Gap<u64>> {
    let mut at = 0;
    let codes = random.iter().flat_map(|step| {
        at += 1 + step % 10_000;
        (0..8).map(move |line| at * 8 + line)
    });
    gaps_of(&codes.collect::<Vec<_>>(), per_block)
}

proptest! {
    #[test]
    fn wide_gaps_between_narrow_ones_are_exact(steps in vec(any::<u64>(), 20..3000), per_block in 3usize..36) {
        let gaps = gaps_of_composite_codes(&steps, per_block);
        check(&gaps);
        if let Some(model) = Model::uneven(&gaps, 1) {
            assert!(model.is_exact(&gaps));
            let mut bytes = Vec::new();
            model.store(&mut bytes);
            prop_assert_eq!(Model::load(Decoder(&bytes), model.blocks(), |_| 0).unwrap(), model);
        }
    }
}

#[test]
fn wide_gaps_take_few_bits() {
    let mut rng = fastrand::Rng::with_seed(2);
    let steps: Vec<u64> = std::iter::repeat_with(|| rng.u64(..)).take(40_000).collect();
    let bits = |per_block| {
        let gaps = gaps_of_composite_codes(&steps, per_block);
        let model = Model::uneven(&gaps, 1).unwrap();
        assert!(model.is_exact(&gaps));
        (model.layout.fine_bits(), model.memory() * 8 / gaps.len())
    };
    // One of 4 boundaries is in a wide gap, then none is.
    let ((some, few), (none, many)) = (bits(34), bits(33));
    assert!(some > 5 && none == 0 && few < many, "{some} {few} {none} {many}");
}

#[test]
fn a_line_needs_no_residuals() {
    let codes: Vec<u64> = (0..600_000).map(|n| 1_000_000 + n).collect();
    let gaps = gaps_of(&codes, 36);
    let model = check(&gaps).unwrap();
    assert_eq!(model.segments(), 1);
    assert!(residual_bytes(&gaps) < 300, "{}", residual_bytes(&gaps));
}

#[test]
fn random_codes_take_few_bytes() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut codes: Vec<u64> = std::iter::repeat_with(|| rng.u64(..)).take(200_000).collect();
    codes.sort_unstable();
    codes.dedup();
    let gaps = gaps_of(&codes, 36);
    let bytes = residual_bytes(&gaps);
    assert!(bytes < 2 * gaps.len(), "{bytes} of {}", gaps.len());
}

#[test]
fn the_ends_of_the_range_are_codes_too() {
    check(&[(0, 1), (1, 2), (u64::MAX - 1, u64::MAX)]);
    check(&[(0, u64::MAX)]).unwrap();
    check(&[(0, 1_u128), (u128::from(u64::MAX), 1 << 64)]);
}

#[test]
fn a_shift_by_all_bits_of_a_code_is_refused() {
    let codes: Vec<u64> = (0..4000).map(|n| (n << 20) | (n * n % 1_000_003)).collect();
    let model = check(&gaps_of(&codes, 4)).unwrap();
    assert!(matches!(model.layout, Layout::Even { .. }), "{:?}", model.layout);
    let mut bytes = Vec::new();
    model.store(&mut bytes);
    let load = |bytes: &[u8]| Model::<u64>::load(Decoder(bytes), model.blocks(), |_| 0);
    assert_eq!(load(&bytes).unwrap(), model);
    let mut segments = Vec::new();
    put_varint(&mut segments, model.segments().into());
    let shift_at = segments.len() + 16 + 1;
    for shift in [0, 64, 255] {
        bytes[shift_at] = shift;
        assert!(load(&bytes).is_err(), "{shift}");
    }
}

/// Stores `model`, and passes its bytes to `change` before loading them.
fn load_changed(model: &Model<u64>, change: impl FnOnce(&mut Vec<u8>)) -> Result<Model<u64>, Malformed> {
    let mut bytes = Vec::new();
    model.store(&mut bytes);
    change(&mut bytes);
    Model::load(Decoder(&bytes), model.blocks(), |_| 0)
}

#[test]
fn bits_behind_the_last_residual_are_zero() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut codes: Vec<u64> = std::iter::repeat_with(|| rng.u64(..)).take(500).collect();
    codes.sort_unstable();
    let mut changed = 0;
    for count in 1..9 {
        let model = Model::even(&gaps_of(&codes[..400 + 4 * count], 4)).unwrap();
        let used = model
            .records
            .windows(2)
            .map(|pair| u64::from(pair[1].block() - pair[0].block()) * u64::from(pair[0].shape().width));
        let used = used.sum::<u64>() % 8;
        assert!(load_changed(&model, |_| ()).is_ok());
        if used != 0 {
            changed += 1;
            let refused = load_changed(&model, |bytes| *bytes.last_mut().unwrap() |= 1 << used);
            assert_eq!(refused.unwrap_err().expected, "zero bits behind the last residual");
        }
    }
    assert!(changed > 0, "residuals fill whole bytes");
}

#[test]
fn marks_and_lower_bits_end_in_zero_bits() {
    let mut rng = fastrand::Rng::with_seed(2);
    let steps: Vec<u64> = std::iter::repeat_with(|| rng.u64(..)).take(8000).collect();
    let mut changed = [0; 2];
    for per_block in [34, 35, 38, 42] {
        let model = Model::uneven(&gaps_of_composite_codes(&steps, per_block), 1).unwrap();
        let Layout::Uneven(_, Some(fine)) = &model.layout else { continue };
        let mut stored = Vec::new();
        fine.store(model.blocks(), &mut stored);
        let load = |at: usize, bit: u32| {
            let mut stored = stored.clone();
            stored[at] |= 1 << bit;
            Fine::load(fine.bits, model.blocks(), &stored)
        };
        let marks_len = model.blocks().div_ceil(8) as usize;
        let marks = stored[..marks_len].iter().map(|byte| byte.count_ones()).sum::<u32>();
        // With a mark more, the number of lower bits may still be right.
        assert!(Fine::load(fine.bits, model.blocks(), &stored).is_some());
        assert!(load(0, 0).is_none(), "no boundary is before the first block");
        for (changed, (last, used)) in changed
            .iter_mut()
            .zip([(marks_len - 1, model.blocks() % 8), (stored.len() - 1, marks * fine.bits % 8)])
        {
            if used != 0 {
                *changed += 1;
                assert!(load(last, used).is_none(), "{last} {used}");
            }
        }
    }
    assert!(changed.iter().all(|count| *count > 0), "{changed:?}");
}

#[test]
fn segments_that_span_equally_many_codes_have_no_starts() {
    let codes: Vec<u64> = (0..4000).map(|n| (n << 20) | (n * n % 1_000_003)).collect();
    let model = Model::even(&gaps_of(&codes, 4)).unwrap();
    let mut segments = Vec::new();
    put_varint(&mut segments, model.segments().into());
    let start_least_at = segments.len() + 16 + 2;
    let refused = load_changed(&model, |bytes| bytes[start_least_at] = 2);
    assert_eq!(refused.unwrap_err().expected, "starts of 0 where segments span equally many codes");
}
