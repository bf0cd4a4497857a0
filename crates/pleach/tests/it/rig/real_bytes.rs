//! Bytes as users store them: arrays of numbers, times, paths, and files of other stores.
//!
//! Constant and random bytes never look like bytes that the engine writes. These do: small numbers look like kinds and lengths,
//! and a copied log has records that are whole but in the wrong place.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use fastrand::Rng;
use pleach::Options;
use pleach::env::SimEnv;

/// The material of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RealBytes {
    /// One `u32` repeated, little-endian.
    Number(u32),
    /// A column of ids: `u32`s that count up.
    Ids,
    /// Milliseconds since 1970, eight bytes each, some 17 ms apart.
    Times,
    /// A sorted list of files.
    Paths,
    /// A segment of another store's log.
    Log,
    /// An SST of another store.
    Sst,
    /// Any bytes.
    Random,
}

impl RealBytes {
    /// All of them.
    pub(crate) const ALL: [RealBytes; 8] = [
        RealBytes::Number(1001),
        RealBytes::Number(257),
        RealBytes::Ids,
        RealBytes::Times,
        RealBytes::Paths,
        RealBytes::Log,
        RealBytes::Sst,
        RealBytes::Random,
    ];

    /// `len` bytes of this kind. The same `number` gives the same bytes.
    pub(crate) fn make(self, number: u64, len: usize) -> Vec<u8> {
        let (seed, number) = (number, number % (1 << 20));
        let repeated = |bytes: &[u8]| bytes.iter().copied().cycle().take(len).collect();
        match self {
            RealBytes::Number(value) => repeated(&value.to_le_bytes()),
            RealBytes::Ids => {
                (number << 8..).flat_map(|id| id.to_le_bytes().into_iter().take(4)).take(len).collect()
            }
            RealBytes::Times => {
                let start = 1_700_000_000_000 + number * 1000;
                (0..).flat_map(|i: u64| (start + 17 * i).to_le_bytes()).take(len).collect()
            }
            RealBytes::Paths => {
                let line = |i| format!("/srv/data/{:04}/{:02}/report-{i:08}.csv\n", number % 3000, i % 100);
                (0_u64..).flat_map(|i| line(number * 100 + i).into_bytes()).take(len).collect()
            }
            RealBytes::Log => part_of(&other_store().0, number, len),
            RealBytes::Sst => part_of(&other_store().1, number, len),
            RealBytes::Random => {
                let mut bytes = vec![0; len];
                Rng::with_seed(seed).fill(&mut bytes);
                bytes
            }
        }
    }
}

/// `len` bytes of `file` from an offset that `number` chooses; after its end they continue at its beginning.
fn part_of(file: &[u8], number: u64, len: usize) -> Vec<u8> {
    let start =
        usize::try_from(number.wrapping_mul(0x9e37_79b9) % file.len() as u64).expect("shorter than a file");
    // Sometimes from the beginning: the first records then have the offsets that they have in a store's own file.
    let start = if number.is_multiple_of(4) { 0 } else { start };
    file.iter().copied().cycle().skip(start).take(len).collect()
}

/// A log segment and an SST that a store has written, both without the zeros at the end.
fn other_store() -> &'static (Vec<u8>, Vec<u8>) {
    static FILES: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    FILES.get_or_init(|| {
        let env = SimEnv::new(1);
        let dir = Path::new("/other");
        let db = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(8 << 20).open(dir).unwrap();
        let put = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                let value = vec![u8::try_from(number % 256).unwrap(); 100];
                db.default_partition().put(format!("key {number:08}"), value).unwrap();
            }
        };
        put(0..1000);
        db.flush().unwrap();
        put(1000..2000);
        db.sync().unwrap();
        put(2000..2500);
        let longest = |ending: &str| {
            let files = env.file_names(dir).into_iter().filter(|name| name.ends_with(ending));
            let mut bytes =
                files.map(|name| env.read_file(&dir.join(name)).unwrap()).max_by_key(Vec::len).unwrap();
            bytes.truncate(bytes.iter().rposition(|&b| b != 0).unwrap() + 1);
            bytes
        };
        (longest(".log"), longest(".sst"))
    })
}
