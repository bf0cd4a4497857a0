//! Tests of the encoder: monotone for any bytes, both ways alike, exact at boundaries.
#![expect(clippy::indexing_slicing, reason = "a test")]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::test_keys::key;

/// Keys at boundaries, every key both the last and the first of a block.
fn keys_of(sorted: &[Vec<u8>]) -> Option<Keys> {
    let mut keys = Keys::default();
    for pair in sorted.windows(2) {
        let differ = pleach_coding::common_prefix_len(&pair[0], &pair[1]);
        if !keys.push(&pair[0], &pair[1], differ) {
            return None;
        }
    }
    (keys.len() > 0).then_some(keys)
}

fn trained(sorted: &[Vec<u8>]) -> Vec<Snbc> {
    let Some(keys) = keys_of(sorted) else { return Vec::new() };
    [false, true].into_iter().filter_map(|wide| train(&keys, wide)).collect()
}

fn code(snbc: &Snbc, key: &[u8]) -> u128 {
    let (upper, lower) = snbc.encode_slowly(key);
    if snbc.is_wide() {
        let slow = snbc.joined(upper, lower);
        assert_eq!(snbc.encode_wide(key), slow, "{key:?}");
        return slow;
    }
    let slow = snbc.narrow((upper, lower));
    assert_eq!(snbc.encode(key), slow, "{key:?}");
    assert_eq!(snbc.narrow(snbc.parts(key)), slow, "{key:?}");
    slow.into()
}

fn check(mut sorted: Vec<Vec<u8>>, mut probes: Vec<Vec<u8>>) {
    sorted.sort();
    sorted.dedup();
    probes.extend(sorted.iter().cloned());
    for key in &sorted {
        // Neighbours of present keys.
        for at in 0..key.len().min(24) {
            for byte in [0, key[at].wrapping_sub(1), key[at].wrapping_add(1), 0xff] {
                let mut changed = key.clone();
                changed[at] = byte;
                probes.push(changed);
            }
            probes.push(key[..at].to_vec());
        }
        probes.push([key.as_slice(), &[0]].concat());
    }
    probes.sort();
    for snbc in trained(&sorted) {
        let in_registers = snbc.clone().in_registers();
        for key in &probes {
            assert_eq!(code(&snbc, key), code(&in_registers, key), "{key:?} {snbc:?}");
        }
        for pair in probes.windows(2) {
            assert!(code(&snbc, &pair[0]) <= code(&snbc, &pair[1]), "{pair:?} {snbc:?}");
        }
        let mut bytes = Vec::new();
        snbc.store(&mut bytes);
        let len = bytes.len();
        let mut input = Decoder(&bytes);
        assert_eq!(Snbc::load(&mut input, |rest| len - rest.0.len()).unwrap(), snbc);
        assert!(input.is_empty());
    }
}

/// Keys of one kind, and probes of all kinds.
fn sets() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<Vec<u8>>)> {
    let kinds: Vec<BoxedStrategy<Vec<Vec<u8>>>> = vec![
        vec(vec(any::<u8>(), 1..12), 2..200).boxed(),
        vec(vec(0u8..3, 1..40), 2..100).boxed(),
        vec(any::<u64>().prop_map(|n| n.swap_bytes().to_le_bytes().to_vec()), 2..600).boxed(),
        vec(any::<u64>().prop_map(|n| format!("user{n}").into_bytes()), 2..300).boxed(),
        vec(any::<u64>().prop_map(|n| format!("prefix/longer {n:016x}-").into_bytes()), 2..300).boxed(),
        vec((0u32..300, 30u32..130), 2..300)
            .prop_map(|keys| keys.into_iter().map(composite).collect())
            .boxed(),
        vec("[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-9]{2}:[0-5][0-9]".prop_map(String::into_bytes), 2..400).boxed(),
        vec("[0-9a-f]{5}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{8}".prop_map(String::into_bytes), 2..400).boxed(),
        vec("[^a]{1,3}[0-9]{6,12}".prop_map(String::into_bytes), 2..300).boxed(),
        vec("[a-zA-Z0-9_-]{4,14}".prop_map(String::into_bytes), 2..200).boxed(),
        vec(key(), 2..50).boxed(),
    ];
    (proptest::strategy::Union::new(kinds), vec(key(), 0..60))
}

proptest! {
    #[test]
    fn codes_ascend_with_keys_for_any_bytes((keys, probes) in sets()) {
        check(keys, probes);
    }

    #[test]
    fn hostile_bytes_are_refused_or_encode_in_order(bytes in vec(any::<u8>(), 0..80), mut probes in vec(key(), 2..20)) {
        let len = bytes.len();
        if let Ok(snbc) = Snbc::load(&mut Decoder(&bytes), |rest| len - rest.0.len()) {
            probes.sort();
            for pair in probes.windows(2) {
                prop_assert!(code(&snbc, &pair[0]) <= code(&snbc, &pair[1]));
            }
        }
    }
}

#[test]
fn neighbours_in_extreme_sets_have_ordered_codes() {
    let prefixes: Vec<Vec<u8>> = (1..120).map(|n| vec![b'x'; n]).collect();
    check(prefixes, vec![b"xy".to_vec(), b"w".to_vec()]);
    let zeros: Vec<Vec<u8>> = (0..40).map(|n| [b"ab".as_slice(), &vec![0; n]].concat()).collect();
    check(zeros, vec![b"a".to_vec(), b"ab\x01".to_vec()]);
    let bytes: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).collect();
    check(bytes, vec![vec![], vec![0, 0], vec![255, 0]]);
    let long: Vec<Vec<u8>> = (0..50u8).map(|n| [vec![7; 65_000].as_slice(), &[n]].concat()).collect();
    check(long, vec![vec![7; 64_999], vec![8], vec![6]]);
}

#[test]
fn words_of_many_ranks_and_of_letters_before_hexadecimal_digits_have_ordered_codes() {
    let random = |n: u64, i: u32| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(8 * i) & 0xff;
    // Digits end a word with one of the prefixes.
    for prefix in (0..8).map(|len| "75318642".get(..len).unwrap()) {
        for ranks in [127, 128, 200] {
            let byte = |n, i| u8::try_from(random(n, i) % ranks).unwrap();
            let key = |n| prefix.bytes().chain((0..8).map(|i| byte(n, i))).collect();
            check((0..1000).map(key).collect(), vec![vec![0xff], vec![]]);
        }
        let letter = |n| char::from(b'G' + u8::try_from(random(n, 0) % 50).unwrap());
        let key = |n| format!("{prefix}{}{:07x}", letter(n), (random(n, 3) << 20) | (n * 97)).into_bytes();
        check((0..1000).map(key).collect(), vec![]);
    }
}

#[test]
fn overflow_at_every_position_leaves_the_rest_out() {
    for free in 1..16 {
        let mut keys = Vec::new();
        for n in 0..600_u64 {
            let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let tail = mixed.wrapping_mul(mixed | 1).to_le_bytes();
            keys.push([vec![b'0'; free].as_slice(), &mixed.swap_bytes().to_le_bytes(), &tail].concat());
            keys.push([vec![b'1'; free].as_slice(), &mixed.swap_bytes().to_le_bytes(), &tail].concat());
        }
        check(keys, vec![vec![b'0'; free + 1]]);
    }
}

fn composite((tenant, order): (u32, u32)) -> Vec<u8> {
    format!("t{tenant:04}/o{order:05}").into_bytes()
}

#[test]
fn tails_of_a_narrow_range_leave_no_holes() {
    // Of 200 numbers that the last digits can make, keys have the 100 from 30 on.
    let sorted: Vec<_> = (0..3000).map(|n| composite((n / 100, n % 100 + 30))).collect();
    let snbc = train(&keys_of(&sorted).unwrap(), false).unwrap();
    for (n, key) in (0..).zip(&sorted) {
        assert_eq!(snbc.encode(key), n);
    }
    let between = [(b"t0007/o00029", 700), (b"t0007/o00199", 799), (b"t0007/o0003.", 700)];
    for (key, code) in between {
        assert_eq!(snbc.encode(key), code, "{}", key.escape_ascii());
    }
}

#[test]
fn digits_become_their_number() {
    let sorted: Vec<_> = (0..3000u32).map(|n| format!("key{:07}", n * 37).into_bytes()).collect();
    let snbc = &trained(&sorted)[0];
    let difference = snbc.encode(&sorted[1001]) - snbc.encode(&sorted[1000]);
    assert_eq!(difference, 37);
}

#[test]
fn a_key_above_the_prefix_has_the_largest_code() {
    // The prefix has a whole word, and tails of a narrow range that does not begin at 0 follow.
    let key = |n: u32| format!("warehouse/{:05}/{:02}", n / 34, 38 + n % 34).into_bytes();
    let keys: Vec<_> = (0..8000).map(key).collect();
    let snbc = train(&keys_of(&keys).unwrap(), false).unwrap();
    assert!(matches!(snbc.split(), Split::Tail { least: 1.., .. }), "{snbc:?}");
    let largest = code(&snbc, b"warehouse/99999/99");
    for above in ["warehousf", "x", "warehouse0"] {
        assert_eq!(code(&snbc, above.as_bytes()), largest, "{above}");
    }
    assert!(largest >= code(&snbc, keys.last().unwrap()));
}

/// Decodes an encoder of a stored form without a prefix: how often the only class repeats, the class, and what is behind.
fn load(positions: u8, second_from: u8, class: &[u8], split: &[u8]) -> Result<Snbc, Malformed> {
    let bytes = [&[0, positions, second_from, positions], class, split].concat();
    Snbc::load(&mut Decoder(&bytes), |rest| bytes.len() - rest.0.len())
}

#[test]
fn encoders_that_no_training_makes_are_refused() {
    const DIGITS: [u8; 3] = [1, b'0', b'9'];
    const ANY: [u8; 3] = [1, 0, 0xff];
    assert!(load(4, 0, &DIGITS, &[]).is_ok());
    assert!(load(4, 0, &[1, b'9', b'0'], &[]).is_err(), "a range from its end");
    assert!(load(1, 0, &[[3].as_slice(), &[0; 32]].concat(), &[]).is_err(), "a set of no bytes");
    assert!(load(1, 0, &[[3].as_slice(), &[1; 32]].concat(), &[]).is_ok());
    assert!(load(8, 0, &ANY, &[]).is_ok());
    assert!(load(64, 0, &[1, 0, 1], &[]).is_ok());
    assert!(load(65, 0, &[1, 0, 1], &[]).is_err(), "more than 64 bits");
    assert!(load(16, 8, &ANY, &[0]).is_ok());
    assert!(load(16, 7, &ANY, &[0]).is_err(), "a lower half of more than 64 bits");
    assert!(load(2, 1, &DIGITS, &[1, 5, 4]).is_ok());
    assert!(load(2, 1, &DIGITS, &[1, 5, 5]).is_err(), "tails above the numbers of their positions");
    assert!(load(2, 3, &DIGITS, &[0]).is_err(), "a second part behind the last position");
    let bytes = [0, 3, 0, 4, 1, b'0', b'9'];
    let loaded = Snbc::load(&mut Decoder(&bytes), |rest| bytes.len() - rest.0.len());
    assert!(loaded.is_err(), "more positions than there are");
}

#[test]
fn a_key_that_is_cut_off_stands_for_all_that_begin_so() {
    // Most boundaries differ early and go on far behind what is kept. One differs late, so codes reach far.
    let early = |n: u32| format!("k{n:03}{:030}", u64::from(n % 7) << 40).into_bytes();
    let mut sorted: Vec<_> = (100..300).map(early).collect();
    sorted.extend([format!("k150{:020}1", 7).into_bytes(), format!("k150{:020}2", 7).into_bytes()]);
    sorted.sort();
    let keys = keys_of(&sorted).unwrap();
    let snbc = train(&keys, true).unwrap();
    let gaps = keys.gaps(|key| code(&snbc, key)).unwrap();
    let mut is_wider = false;
    for (pair, gap) in sorted.windows(2).zip(gaps) {
        assert!(code(&snbc, &pair[0]) <= gap.0, "{:?} is above the end of its block", pair[0]);
        assert!(code(&snbc, &pair[1]) >= gap.1, "{:?} is below the start of its block", pair[1]);
        is_wider |= code(&snbc, &pair[0]) < gap.0;
    }
    assert!(is_wider, "no key was cut off");
}
