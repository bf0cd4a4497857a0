//! Symbols: bytes of keys that take half a byte each, as decimal and hexadecimal digits do.
//!
//! Keys that consist of few different bytes behind the block's prefix are packed: a symbol is stored as its rank among them. The
//! order of packed keys is that of the keys.

use std::cmp::Ordering;

use super::key_line::{NUMBER_LEN_MAX, big_endian};

/// Most symbols of a packed key: those of a number of 64 bits.
pub(super) const SYMBOLS_MAX: usize = 2 * NUMBER_LEN_MAX;
/// An alphabet has so many symbols. Not all need to be in use.
const RANKS: u8 = 16;

/// Some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    #[inline]
    pub(super) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|byte| self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1)
    }
}

/// The symbols, in order: `split` bytes from `low` on, then the rest of 16 from `second` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Alphabet {
    low: u8,
    split: u8,
    /// 0 if `split` is 16.
    second: u8,
}

impl Alphabet {
    /// Its bytes in a block.
    pub(super) const LEN: usize = 4;

    /// One that has these bytes, if there is one.
    pub(super) fn of(set: &ByteSet) -> Option<Self> {
        let mut bytes = set.iter();
        let low = bytes.next()?;
        let (mut last, mut widest) = (low, (low, low));
        for byte in bytes {
            if byte - last > widest.1 - widest.0 {
                widest = (last, byte);
            }
            last = byte;
        }
        if last - low < RANKS {
            return Some(Self { low: low.min(u8::MAX - (RANKS - 1)), split: RANKS, second: 0 });
        }
        let split = widest.0 - low + 1;
        let are_few = u16::from(split) + u16::from(last - widest.1) < u16::from(RANKS);
        are_few.then(|| Self { low, split, second: widest.1.min(u8::MAX - (RANKS - 1 - split)) })
    }

    pub(super) fn encode(self) -> [u8; Self::LEN] {
        [self.low, self.split, self.second, 0]
    }

    /// The last byte is reserved; [`super::validate()`] checks it.
    #[inline]
    pub(super) fn decode([low, split, second, _]: [u8; Self::LEN]) -> Self {
        Self { low, split, second }
    }

    /// Whether its symbols are 16 bytes that ascend.
    pub(super) fn is_possible(self) -> bool {
        let end = u16::from(self.low) + u16::from(self.split);
        match RANKS.checked_sub(self.split) {
            None => false,
            Some(0) => end <= 0x100 && self.second == 0,
            Some(rest) => {
                self.split > 0
                    && u16::from(self.second) >= end
                    && u16::from(self.second) + u16::from(rest) <= 0x100
            }
        }
    }

    /// The number of these symbols; `None` if one of them is no symbol. Requires: at most [`SYMBOLS_MAX`].
    #[inline]
    pub(super) fn pack(self, symbols: &[u8]) -> Option<u64> {
        self.pack_upper(symbols).map(|number| shifted(number, symbols.len()))
    }

    /// As [`Alphabet::pack`], in the upper bits.
    #[inline]
    fn pack_upper(self, symbols: &[u8]) -> Option<u64> {
        let mut bytes = [self.low; SYMBOLS_MAX];
        bytes[..symbols.len()].copy_from_slice(symbols);
        let mut are_symbols = true;
        for byte in &mut bytes {
            let (first, second) = (byte.wrapping_sub(self.low), byte.wrapping_sub(self.second));
            let (is_first, is_second) = (first < self.split, second < RANKS.wrapping_sub(self.split));
            are_symbols &= is_first | is_second;
            *byte = if is_first { first } else { second.wrapping_add(self.split) };
        }
        are_symbols.then(|| joined(bytes))
    }

    /// The symbols of a number of `len` of them, at most [`SYMBOLS_MAX`]; what is behind them has no meaning.
    #[inline]
    pub(super) fn unpack(self, number: u64, len: usize) -> [u8; SYMBOLS_MAX] {
        let mut ranks = parted(if len == 0 { 0 } else { number << (4 * (SYMBOLS_MAX - len)) });
        for rank in &mut ranks {
            let base = if *rank < self.split { self.low } else { self.second.wrapping_sub(self.split) };
            *rank = base.wrapping_add(*rank);
        }
        ranks
    }

    /// Where `suffix` lies among keys of `len` symbols. Requires: at most [`SYMBOLS_MAX`].
    #[inline]
    pub(super) fn seek(self, suffix: &[u8], len: usize) -> Sought {
        let given = &suffix[..suffix.len().min(len)];
        match self.pack_upper(given) {
            Some(number) => Sought { number: shifted(number, len), of_equal: len.cmp(&suffix.len()) },
            None => self.seek_between(given, len),
        }
    }

    /// As [`Alphabet::seek`], where a byte is no symbol: behind the keys that have a lower symbol there.
    #[cold]
    fn seek_between(self, given: &[u8], len: usize) -> Sought {
        let at = given.iter().position(|byte| self.pack(&[*byte]).is_none()).unwrap_or_default();
        let head = self.pack(&given[..at]).unwrap_or_default();
        let byte = u16::from(given[at]);
        let rank = match () {
            () if byte < u16::from(self.low) => 0,
            () if self.split < RANKS && byte < u16::from(self.second) => self.split,
            () => RANKS,
        };
        let number = ((u128::from(head) << 4) + u128::from(rank)) << (4 * (len - at - 1));
        match u64::try_from(number) {
            Ok(number) => Sought { number, of_equal: Ordering::Greater },
            Err(_) => Sought { number: u64::MAX, of_equal: Ordering::Less },
        }
    }
}

/// Where a key lies among numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sought {
    pub(super) number: u64,
    /// The order of an entry with this number and the key.
    pub(super) of_equal: Ordering,
}

/// The lower `4 * len` bits instead of the upper ones.
#[inline]
fn shifted(number: u64, len: usize) -> u64 {
    if len == 0 { 0 } else { number >> (4 * (SYMBOLS_MAX - len)) }
}

/// The lower halves of the bytes, together.
#[inline]
fn joined(ranks: [u8; SYMBOLS_MAX]) -> u64 {
    let half = |at: usize| {
        let mut word = big_endian(*ranks[at..].first_chunk().expect("eight bytes of sixteen"));
        word = (word | word >> 4) & 0x00ff_00ff_00ff_00ff;
        word = (word | word >> 8) & 0x0000_ffff_0000_ffff;
        (word | word >> 16) & 0xffff_ffff
    };
    half(0) << 32 | half(NUMBER_LEN_MAX)
}

/// The reverse of [`joined`].
#[inline]
fn parted(number: u64) -> [u8; SYMBOLS_MAX] {
    let half = |half: u64| {
        let mut word = (half | half << 16) & 0x0000_ffff_0000_ffff;
        word = (word | word << 8) & 0x00ff_00ff_00ff_00ff;
        word = (word | word << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        word.swap_bytes().to_le_bytes()
    };
    let mut ranks = [0; SYMBOLS_MAX];
    ranks[..NUMBER_LEN_MAX].copy_from_slice(&half(number >> 32));
    ranks[NUMBER_LEN_MAX..].copy_from_slice(&half(number & 0xffff_ffff));
    ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alphabet(bytes: &[u8]) -> Option<Alphabet> {
        let mut set = ByteSet::default();
        for byte in bytes {
            set.insert(*byte);
        }
        Alphabet::of(&set)
    }

    #[test]
    fn digits_have_alphabets_and_letters_do_not() {
        for bytes in [
            &b"0123456789"[..],
            b"0123456789abcdef",
            b"0189AF",
            b"-0123456789",
            b"az",
            b"\0\xff",
            b"\xf5\xff",
            b"x",
        ] {
            let alphabet = alphabet(bytes).unwrap();
            assert!(alphabet.is_possible(), "{alphabet:?} of {bytes:?}");
            assert_eq!(Alphabet::decode(alphabet.encode()), alphabet);
            assert!(bytes.iter().all(|byte| alphabet.pack(&[*byte]).is_some()), "{alphabet:?} of {bytes:?}");
        }
        for bytes in [&b""[..], b"-09af", b"abcdefghijklmnopq", b"0\x80\xff"] {
            assert_eq!(alphabet(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn impossible_alphabets_are_known() {
        let is_possible = |low, split, second| Alphabet { low, split, second }.is_possible();
        assert!(
            is_possible(b'0', 10, b'a')
                && is_possible(240, 16, 0)
                && is_possible(0, 1, 1)
                && is_possible(0, 1, 241)
        );
        for (low, split, second) in
            [(0, 0, 1), (0, 17, 0), (241, 16, 0), (0, 16, 1), (10, 5, 14), (0, 1, 242)]
        {
            assert!(!is_possible(low, split, second), "{low} {split} {second}");
        }
    }

    proptest! {
        #[test]
        fn any_alphabet_is_possible_and_has_its_bytes(bytes in proptest::collection::vec(any::<u8>(), 1..4)) {
            if let Some(alphabet) = alphabet(&bytes) {
                prop_assert!(alphabet.is_possible());
                prop_assert_eq!(alphabet.unpack(alphabet.pack(&bytes).unwrap(), bytes.len())[..bytes.len()].to_vec(), bytes);
            }
        }

        /// Among keys of hexadecimal digits, any other key has the place that the order of bytes gives it.
        #[test]
        fn the_order_of_numbers_is_that_of_keys(
            keys in "[0-9a-f]{1,16}".prop_flat_map(|key| {
                let len = key.len();
                proptest::collection::btree_set(
                    proptest::string::string_regex(&format!("[0-9a-f]{{{len}}}")).unwrap(), 1..50,
                )
            }),
            others in proptest::collection::vec("[/-:0-9`a-g]{0,20}", 50),
        ) {
            let alphabet = alphabet(b"0123456789abcdef").unwrap();
            let len = keys.first().unwrap().len();
            for key in &keys {
                let number = alphabet.pack(key.as_bytes()).unwrap();
                prop_assert_eq!(&alphabet.unpack(number, len)[..len], key.as_bytes());
                for other in others.iter().chain(&keys) {
                    let sought = alphabet.seek(other.as_bytes(), len);
                    prop_assert_eq!(number.cmp(&sought.number).then(sought.of_equal), key.cmp(other));
                }
            }
        }
    }
}
