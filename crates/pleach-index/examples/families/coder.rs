//! SNBC in its two alphabets: the paper's range from the least to the greatest byte at each position, and ranks of the bytes
//! that occur. The library has ranks only; this one is for comparison, and is trained key by key.

/// What the digit of a byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// The distance from the least byte of the position: the paper's.
    MinMax,
    /// The number of lower bytes that occur at the position.
    Ranks,
}

/// Bytes that occur at a position, each plus 1; 0 is the end of a key.
#[derive(Clone, Debug)]
struct Occurring([bool; 257]);

impl Occurring {
    fn symbols(&self) -> impl Iterator<Item = usize> + '_ {
        (0..257).filter(|&symbol| self.0[symbol])
    }

    /// The number of digits, and the digit of each symbol that occurs.
    fn digits(&self, alphabet: Alphabet) -> (u128, [u16; 257]) {
        let mut digits = [0; 257];
        let ends = usize::from(self.0[0]);
        let least = self.symbols().find(|&symbol| symbol > 0).unwrap_or(1);
        let mut radix = 1;
        for (rank, symbol) in self.symbols().enumerate() {
            // The end of a key counts as one byte below the least.
            let distance = if symbol == 0 { 0 } else { symbol - least + ends };
            let digit = if alphabet == Alphabet::Ranks { rank } else { distance };
            digits[symbol] = u16::try_from(digit).expect("at most 257 symbols");
            radix = digit as u128 + 1;
        }
        (radix, digits)
    }

    /// Bytes to store the alphabet: its bounds, or a bit for each symbol.
    fn stored_len(&self, alphabet: Alphabet) -> usize {
        let radix = |alphabet| self.digits(alphabet).0;
        if radix(alphabet) == radix(Alphabet::MinMax) { 2 } else { 33 }
    }
}

/// What the keys so far have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Training {
    first: Vec<u8>,
    shared: usize,
    positions: Vec<Occurring>,
    is_started: bool,
}

impl Training {
    /// Adds a key.
    pub(crate) fn add(&mut self, key: &[u8]) {
        if !self.is_started {
            (self.is_started, self.first, self.shared) = (true, key.to_vec(), key.len());
        }
        self.shared = self.first[..self.shared].iter().zip(key).take_while(|(a, b)| a == b).count();
        while self.positions.len() <= key.len() {
            self.positions.push(Occurring([false; 257]));
        }
        for (position, &byte) in self.positions.iter_mut().zip(key) {
            position.0[usize::from(byte) + 1] = true;
        }
        self.positions[key.len()].0[0] = true;
    }

    /// The encoder whose numbers are below `2^bits`: positions behind are left out.
    pub(crate) fn finish(&self, alphabet: Alphabet, bits: f64) -> Coder {
        let mut coder = Coder { shared: self.shared, digits: Vec::new(), bits: 0.0, stored_len: self.shared };
        for position in &self.positions[self.shared..] {
            let (radix, digits) = position.digits(alphabet);
            coder.bits += (radix as f64).log2();
            if coder.bits <= bits {
                coder.digits.push((radix, digits));
                coder.stored_len += position.stored_len(alphabet);
            }
        }
        coder
    }
}

/// An encoder of the keys that it was trained with.
pub(crate) struct Coder {
    shared: usize,
    digits: Vec<(u128, [u16; 257])>,
    /// Bits that all positions would take.
    pub(crate) bits: f64,
    /// Bytes of the shared prefix and of the alphabets.
    pub(crate) stored_len: usize,
}

impl Coder {
    /// The number of `key`.
    pub(crate) fn encode(&self, key: &[u8]) -> u128 {
        let mut symbols = key[self.shared..].iter().map(|&byte| usize::from(byte) + 1);
        self.digits
            .iter()
            .fold(0, |code, (radix, digits)| code * radix + u128::from(digits[symbols.next().unwrap_or(0)]))
    }
}
