//! Generated URLs and file paths: hierarchical text with shared prefixes of uneven popularity, which no linear model fits.
//! Each contains its index in scattered form, so it is unique.

use super::random::mix64;

const WORDS: [&str; 48] = [
    "about", "account", "album", "archive", "article", "autumn", "basket", "blog", "bridge", "catalog",
    "city", "cloud", "coffee", "contact", "data", "design", "download", "east", "event", "forum", "garden",
    "guide", "help", "image", "index", "island", "item", "journal", "library", "list", "map", "market",
    "music", "news", "north", "order", "paper", "photo", "press", "product", "report", "river", "school",
    "search", "shop", "story", "travel", "user",
];
const DOMAINS: [&str; 6] = ["com", "org", "net", "de", "io", "co.uk"];
const EXTENSIONS: [&str; 8] = ["rs", "md", "txt", "jpg", "png", "json", "log", "toml"];
/// Hosts of URLs and owners of files: a Zipf-like few have most of them.
const OWNERS: u64 = 5000;

/// Random bits, taken piece by piece.
struct Bits(u64);

impl Bits {
    fn take(&mut self, bound: u64) -> u64 {
        self.0 = mix64(self.0);
        self.0 % bound
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.take(WORDS.len() as u64) as usize]
    }

    /// Small numbers far more often than large ones, below [`OWNERS`].
    fn owner(&mut self) -> u64 {
        let bound = self.take(OWNERS) + 1;
        self.take(bound)
    }
}

pub(super) fn url(index: u64, key: &mut Vec<u8>) {
    let mut bits = Bits(index ^ 0x75_726c);
    let mut host = Bits(mix64(bits.owner()));
    key.extend_from_slice(b"https://");
    if host.take(2) == 0 {
        key.extend_from_slice(b"www.");
    }
    for _ in 0..=host.take(2) {
        key.extend_from_slice(host.word().as_bytes());
    }
    key.push(b'.');
    key.extend_from_slice(DOMAINS[host.take(DOMAINS.len() as u64) as usize].as_bytes());
    for _ in 0..bits.take(4) {
        key.push(b'/');
        key.extend_from_slice(bits.word().as_bytes());
    }
    key.push(b'/');
    for _ in 0..bits.take(3) {
        key.extend_from_slice(bits.word().as_bytes());
        key.push(b'-');
    }
    base36(index, key);
    if bits.take(2) == 0 {
        key.extend_from_slice(b".html");
    }
}

pub(super) fn path(index: u64, key: &mut Vec<u8>) {
    let mut bits = Bits(index ^ 0x7061_7468);
    let owner = bits.owner();
    key.extend_from_slice(b"/srv/data/");
    let mut name = Bits(mix64(owner));
    key.extend_from_slice(name.word().as_bytes());
    base36(owner, key);
    for _ in 0..=bits.take(5) {
        key.push(b'/');
        key.extend_from_slice(bits.word().as_bytes());
    }
    key.push(b'/');
    key.extend_from_slice(bits.word().as_bytes());
    key.push(b'_');
    base36(index, key);
    key.push(b'.');
    key.extend_from_slice(EXTENSIONS[bits.take(EXTENSIONS.len() as u64) as usize].as_bytes());
}

/// The index, scattered over 40 bits so that neighbours do not sort together, in digits and letters. The scattering is
/// a bijection of 40 bits; the bits above them follow in plain.
fn base36(index: u64, key: &mut Vec<u8>) {
    const MASK: u64 = (1 << 40) - 1;
    let scattered = (index & MASK).wrapping_mul(0x9e37_79b9_7f4a_7c15) & MASK;
    digits((scattered ^ (scattered >> 20)) & MASK, key);
    if index > MASK {
        key.push(b'.');
        digits(index >> 40, key);
    }
}

fn digits(mut number: u64, key: &mut Vec<u8>) {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    loop {
        key.push(DIGITS[(number % 36) as usize]);
        number /= 36;
        if number == 0 {
            return;
        }
    }
}
