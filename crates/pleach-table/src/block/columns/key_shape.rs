//! Shape of the keys of a columnar block that is being filled: what their length depends on, key by key.

use super::layout::{are_numbers, is_packable};
use super::symbols::{Alphabet, ByteSet, SYMBOLS_MAX};

/// How keys are stored behind the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    /// Of different lengths, with their ends.
    Varying,
    /// Of so many bytes each.
    Fixed(usize),
    /// Of so many symbols each.
    Packed(Alphabet, usize),
}

impl KeyForm {
    /// Bytes that each key takes behind the prefix; 0 if they vary.
    #[inline]
    pub(super) fn width(self) -> usize {
        match self {
            Self::Varying => 0,
            Self::Fixed(len) => len,
            Self::Packed(_, len) => len.div_ceil(2),
        }
    }

    /// Whether keys are searched as numbers, so that they need no tags.
    #[inline]
    pub(super) fn has_numbers(self) -> bool {
        are_numbers(self == Self::Varying, self.width())
    }
}

/// The shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyShape {
    /// Bytes of all keys.
    len: usize,
    first_len: usize,
    /// Of the prefix up to now.
    prefix_len: usize,
    vary: bool,
    /// Bytes behind the prefix. `alphabet` has them, and perhaps others.
    symbols: ByteSet,
    alphabet: Option<Alphabet>,
    /// Whether an alphabet is still possible.
    may_pack: bool,
}

impl KeyShape {
    pub(super) fn new() -> Self {
        Self {
            len: 0,
            first_len: 0,
            prefix_len: 0,
            vary: false,
            symbols: ByteSet::default(),
            alphabet: None,
            may_pack: true,
        }
    }

    /// Adds key `at` of the block; `first` is its first one, and all up to this one share `prefix_len` bytes.
    #[inline]
    pub(super) fn add(&mut self, at: usize, first: &[u8], key: &[u8], prefix_len: usize) {
        if at == 0 {
            (self.first_len, self.prefix_len) = (key.len(), prefix_len);
        }
        self.len += key.len();
        self.vary |= key.len() != self.first_len;
        if self.may_pack {
            let no_longer_shared = &first[prefix_len.min(self.prefix_len)..self.prefix_len.min(first.len())];
            self.add_symbols(no_longer_shared, &key[prefix_len..]);
        }
        self.prefix_len = prefix_len;
    }

    /// All bytes go to the set, those that the alphabet has too: the next alphabet may be without them otherwise.
    #[inline]
    fn add_symbols(&mut self, no_longer_shared: &[u8], suffix: &[u8]) {
        self.may_pack = !self.vary && suffix.len() <= SYMBOLS_MAX;
        if !self.may_pack {
            return;
        }
        no_longer_shared.iter().chain(suffix).for_each(|byte| self.symbols.insert(*byte));
        let has_all = self.alphabet.is_some_and(|alphabet| alphabet.pack(suffix).is_some());
        if !(no_longer_shared.is_empty() && has_all) {
            self.alphabet = Alphabet::of(&self.symbols);
            self.may_pack = self.alphabet.is_some() || suffix.is_empty();
        }
    }

    /// How keys that share `prefix_len` bytes are stored.
    #[inline]
    pub(super) fn form(&self, prefix_len: usize) -> KeyForm {
        let len = self.first_len - prefix_len;
        match self.alphabet {
            _ if self.vary => KeyForm::Varying,
            Some(alphabet) if self.may_pack && is_packable(len) => KeyForm::Packed(alphabet, len),
            _ => KeyForm::Fixed(len),
        }
    }

    /// Bytes of the keys of `entries`, which share `prefix_len` bytes: those of the prefix, tags and ends included.
    #[inline]
    pub(super) fn len_of(&self, entries: usize, prefix_len: usize) -> usize {
        let form = self.form(prefix_len);
        let tags = if form.has_numbers() { 0 } else { entries };
        let keys = match form {
            KeyForm::Varying => 2 * entries + self.len - entries * prefix_len,
            KeyForm::Fixed(_) => entries * form.width(),
            KeyForm::Packed(..) => Alphabet::LEN + entries * form.width(),
        };
        prefix_len + tags + keys
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pleach_coding::common_prefix_len;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    /// Keys of one length whose bytes come from a few ranges.
    fn keys() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
        let bytes = prop_oneof![
            8 => b'0'..=b'9',
            2 => b'a'..=b'f',
            1 => prop_oneof![Just(b'_'), Just(b'A'), Just(b'B'), any::<u8>()],
        ];
        (1usize..8).prop_flat_map(move |len| btree_set(proptest::collection::vec(bytes.clone(), len), 1..60))
    }

    proptest! {
        /// Also after a cut to fewer keys, whose prefix may be longer.
        #[test]
        fn the_alphabet_has_all_bytes_of_all_keys(keys in keys()) {
            let keys: Vec<&Vec<u8>> = keys.iter().collect();
            let mut shape = KeyShape::new();
            let prefix_of = |count: usize| common_prefix_len(keys[0], keys[count - 1]);
            for (at, key) in keys.iter().enumerate() {
                shape.add(at, keys[0], key, prefix_of(at + 1));
                for count in 1..=at + 1 {
                    let prefix_len = prefix_of(count);
                    let KeyForm::Packed(alphabet, len) = shape.form(prefix_len) else { continue };
                    prop_assert!(alphabet.is_possible());
                    for key in &keys[..count] {
                        prop_assert_eq!(key.len() - prefix_len, len);
                        prop_assert!(alphabet.pack(&key[prefix_len..]).is_some(), "{:?} of {:?}", key, keys);
                    }
                }
            }
        }
    }
}
