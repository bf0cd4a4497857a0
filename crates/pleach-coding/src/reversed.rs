//! Keys in the reverse order of bytes: a form of a key whose order of bytes is the reverse of the key's own.
//!
//! With this form, an engine that sorts by bytes keeps entries in the reverse order. An interface that offers the reverse order
//! encodes each key before it calls the engine, and decodes each key that it returns.
//!
//! # Invariants
//! 1. *Order*: `encode(a) < encode(b)` if and only if `a > b`. So a key comes after all longer keys that begin with it.
//! 2. *Unambiguous*: each key has one form, and [`decode_reversed`] accepts no other bytes. No form is a prefix of another.
//!
//! # On disk
//! Layout: docs/format/reversed-keys.md. This module owns the bytes.
//!
//! # Cost
//! Two bytes a key. A run of zeros takes two bytes, and one more for each 127 zeros: so a single zero costs one byte, and longer
//! runs cost none. In the worst case, every second byte is a zero, and the form is half of the key and two bytes longer.
//!
//! The usual alternative, groups of eight bytes with a length behind each, adds an eighth and up to eight bytes of padding. That
//! is more for most keys: texts have no zeros, and numbers have several in a row.

use crate::Malformed;

/// The complement of a zero. A code follows, which tells how many zeros there are, and whether the key ends behind them.
const MARK: u8 = 0xff;

/// Code for this many zeros, behind which another code follows. Smaller codes are the number of zeros before another byte.
const RUN: u8 = 127;

/// The code of an end without zeros. One that follows zeros is smaller by their number.
const END: u8 = 0xff;

/// Bytes that a form adds to a key without zeros.
pub const REVERSED_EXTRA_LEN: usize = 2;

/// Appends to `to` the form of `key` that compares in reverse.
///
/// ```
/// use pleach_coding::{decode_reversed, encode_reversed};
///
/// let reversed = |key: &[u8]| {
///     let mut form = Vec::new();
///     encode_reversed(key, &mut form);
///     form
/// };
/// assert!(reversed(b"b") < reversed(b"a"));
/// assert!(reversed(b"ab") < reversed(b"a"));
/// assert_eq!(reversed(b"a\0\0b"), [!b'a', 0xff, 2, !b'b', 0xff, 0xff]);
///
/// let mut key = Vec::new();
/// decode_reversed(&reversed(b"ab"), 1024, &mut key)?;
/// assert_eq!(key, b"ab");
/// # Ok::<(), pleach_coding::Malformed>(())
/// ```
pub fn encode_reversed(key: &[u8], to: &mut Vec<u8>) {
    to.reserve(key.len() + REVERSED_EXTRA_LEN);
    // Fast path: most keys have no zeros, and one loop without branches complements them.
    let mut rest = key;
    while !rest.is_empty() && rest.contains(&0) {
        let (plain, behind) = split_at_first(rest, |byte| byte == 0);
        to.extend(plain.iter().map(|byte| !byte));
        let (zeros, behind) = split_at_first(behind, |byte| byte != 0);
        to.push(MARK);
        push_zeros(to, zeros.len(), behind.is_empty());
        if behind.is_empty() {
            return;
        }
        rest = behind;
    }
    to.extend(rest.iter().map(|byte| !byte));
    to.extend([MARK, END]);
}

/// Appends to `to` the key whose form is `form`.
///
/// # Errors
/// `Malformed` if it is the form of no key, or of one that is longer than `len_max`. Then `to` holds a part of the key, of at
/// most `len_max` bytes.
pub fn decode_reversed(form: &[u8], len_max: usize, to: &mut Vec<u8>) -> Result<(), Malformed> {
    let limit = to.len().saturating_add(len_max);
    let mut at = 0;
    loop {
        let (plain, behind) = split_at_first(form.get(at..).unwrap_or_default(), |byte| byte == MARK);
        if plain.is_empty() && at > 0 {
            return Err(Malformed::new(at, "a byte of the key behind a run of zeros"));
        }
        if behind.is_empty() {
            return Err(Malformed::new(form.len(), "the end of a reversed key"));
        }
        at += plain.len() + 1;
        let too_long = Malformed::new(at, "no more bytes of a reversed key");
        if plain.len() > limit - to.len() {
            return Err(too_long);
        }
        to.extend(plain.iter().map(|byte| !byte));
        let (zeros, ends) = take_zeros(form, &mut at)?;
        if zeros > limit - to.len() {
            return Err(too_long);
        }
        to.resize(to.len() + zeros, 0);
        if ends {
            return if at == form.len() {
                Ok(())
            } else {
                Err(Malformed::new(at, "no bytes behind the end of a key"))
            };
        }
    }
}

/// The bytes before the first one that `is_wanted`, and those from it on.
fn split_at_first(bytes: &[u8], is_wanted: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|&byte| is_wanted(byte)).unwrap_or(bytes.len()))
}

/// Appends the codes of a run of `zeros`. `ends` says whether the key ends behind the run or has another byte.
///
/// A key with fewer zeros before another byte is larger than one with more, and one that ends with fewer is smaller. So the
/// codes of zeros before a byte ascend, those before the end descend and stand above them.
fn push_zeros(to: &mut Vec<u8>, mut zeros: usize, ends: bool) {
    while zeros >= usize::from(RUN) {
        to.push(RUN);
        zeros -= usize::from(RUN);
    }
    let zeros = u8::try_from(zeros).unwrap_or(0);
    to.push(if ends { END - zeros } else { zeros });
}

/// Takes the codes of zeros at `at`: how many there are, and whether the key ends.
fn take_zeros(form: &[u8], at: &mut usize) -> Result<(usize, bool), Malformed> {
    let start = *at;
    let mut zeros = 0;
    loop {
        let code = *form.get(*at).ok_or_else(|| Malformed::new(*at, "a code of zeros"))?;
        *at += 1;
        match code {
            RUN => zeros += usize::from(RUN),
            0 if zeros == 0 => return Err(Malformed::new(start, "a code of some zeros").found(code)),
            0..RUN => return Ok((zeros + usize::from(code), false)),
            128 => return Err(Malformed::new(*at - 1, "a code of zeros").found(code)),
            _ => return Ok((zeros + usize::from(END - code), true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn encode(key: &[u8]) -> Vec<u8> {
        let mut form = Vec::new();
        encode_reversed(key, &mut form);
        form
    }

    fn decode(form: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut key = Vec::new();
        decode_reversed(form, 1 << 20, &mut key)?;
        Ok(key)
    }

    #[test]
    fn forms_are_those_of_the_document() {
        for (key, form) in [
            (&b""[..], &[0xff, 0xff][..]),
            (b"a", &[0x9e, 0xff, 0xff]),
            (b"ab", &[0x9e, 0x9d, 0xff, 0xff]),
            (b"a\0b", &[0x9e, 0xff, 0x01, 0x9d, 0xff, 0xff]),
            (b"a\0", &[0x9e, 0xff, 0xfe]),
            (b"\xff", &[0x00, 0xff, 0xff]),
            (&[0; 127], &[0xff, 0x7f, 0xff]),
            (&[&[0; 130][..], b"b"].concat(), &[0xff, 0x7f, 0x03, 0x9d, 0xff, 0xff]),
        ] {
            assert_eq!(encode(key), form);
            assert_eq!(decode(form).as_deref(), Ok(key));
        }
    }

    /// Every key of up to five bytes of the edges, and runs of zeros around the lengths at which their codes change.
    #[test]
    fn order_is_reversed_for_all_pairs_of_neighbours() {
        let mut keys = vec![vec![]];
        let mut longest = keys.clone();
        for _ in 0..5 {
            longest = longest
                .iter()
                .flat_map(|key| [0, 1, 0xfe, 0xff].map(|byte| [&key[..], &[byte]].concat()))
                .collect();
            keys.extend(longest.iter().cloned());
        }
        for zeros in (0..8).chain(124..131).chain(250..258).chain(380..384) {
            for (head, tail) in [("", ""), ("", "\x01"), ("", "\x7f"), ("k", ""), ("k", "\x01"), ("k", "k\0")]
            {
                keys.push([head.as_bytes(), &vec![0; zeros], tail.as_bytes()].concat());
            }
        }
        keys.sort();
        keys.dedup();
        // The order of all pairs follows from that of neighbours.
        assert!(keys.windows(2).all(|pair| encode(&pair[0]) > encode(&pair[1])));
        for (n, key) in keys.iter().enumerate() {
            let form = encode(key);
            assert_eq!(decode(&form).as_ref(), Ok(key));
            assert!((0..form.len()).all(|len| decode(&form[..len]).is_err()), "key {n} is cut");
        }
    }

    #[test]
    fn other_bytes_are_malformed() {
        for (form, offset, expected) in [
            (&[][..], 0, "the end"),
            (&[0x9e], 1, "the end"),
            (&[0xff], 1, "a code of zeros"),
            (&[0xff, 0x00, 0x9e, 0xff, 0xff], 1, "a code of some zeros"),
            (&[0xff, 0x80], 1, "a code of zeros"),
            (&[0xff, 0x7f], 2, "a code of zeros"),
            (&[0xff, 0x01, 0xff, 0xff], 2, "a byte of the key"),
            (&[0xff, 0x01], 2, "a byte of the key"),
            (&[0xff, 0xff, 0x00], 2, "no bytes behind"),
        ] {
            let malformed = decode(form).unwrap_err();
            assert_eq!(malformed.offset, offset, "{form:?}");
            assert!(malformed.expected.starts_with(expected), "{form:?}: {malformed}");
        }
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        let form = [&[0xff][..], &[RUN; 1000], &[END]].concat();
        let mut key = Vec::new();
        assert!(decode_reversed(&form, 1000, &mut key).is_err() && key.len() <= 1000);
        assert!(decode_reversed(&encode(&[7; 11]), 10, &mut Vec::new()).is_err());
        assert!(decode_reversed(&encode(&[7; 10]), 10, &mut Vec::new()).is_ok());
        assert!(decode_reversed(&encode(&[0; 10]), 9, &mut Vec::new()).is_err());
    }

    /// Texts, numbers, and runs of bytes at the edges.
    fn a_key() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            vec(any::<u8>(), 0..20),
            vec(0..2_u8, 0..8),
            (prop_oneof![Just(0_u8), Just(1), Just(0xfe), Just(0xff)], 0..300_usize)
                .prop_map(|(byte, n)| vec![byte; n]),
        ];
        vec(piece, 0..4).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn keys_come_back_and_their_order_is_reversed(a in a_key(), b in a_key(), shared in a_key()) {
            let (a, b) = ([&shared[..], &a].concat(), [&shared[..], &b].concat());
            prop_assert_eq!(decode(&encode(&a)), Ok(a.clone()));
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), b.cmp(&a));
            prop_assert_eq!(encode(&shared).cmp(&encode(&a)), a.cmp(&shared));
            prop_assert!(encode(&a).len() <= a.len() + a.len() / 2 + REVERSED_EXTRA_LEN + 1);
        }

        #[test]
        fn what_is_decoded_has_one_form(form in vec(prop_oneof![any::<u8>(), Just(0xff), Just(0x7f), Just(0)], 0..12)) {
            if let Ok(key) = decode(&form) {
                prop_assert_eq!(encode(&key), form);
            }
        }
    }
}
