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
    /// Bytes behind the prefix, while they are few and `alphabet` has them.
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

    #[inline]
    fn add_symbols(&mut self, no_longer_shared: &[u8], suffix: &[u8]) {
        self.may_pack = !self.vary && suffix.len() <= SYMBOLS_MAX;
        let has = |symbols| self.alphabet.is_some_and(|alphabet| alphabet.pack(symbols).is_some());
        if self.may_pack && !(no_longer_shared.is_empty() && has(suffix)) {
            self.add_new_symbols(no_longer_shared, suffix);
        }
    }

    fn add_new_symbols(&mut self, no_longer_shared: &[u8], suffix: &[u8]) {
        no_longer_shared.iter().chain(suffix).for_each(|byte| self.symbols.insert(*byte));
        self.alphabet = Alphabet::of(&self.symbols);
        self.may_pack = self.alphabet.is_some() || suffix.is_empty();
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
