//! Ways to damage a file, one at a time.

use std::fmt;

use fastrand::Rng;

use crate::fixture::{Fixture, StoreFile};

/// The damage to a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The byte at this offset is combined with a mask by exclusive or.
    Flip { at: usize, with: u8 },
    /// The file is cut to this length.
    Cut { len: usize },
    /// The bytes in this range become zero.
    Zero { start: usize, end: usize },
    /// Bytes are appended.
    Extend { with: Vec<u8> },
    /// The file gets the bytes of another file of the store, or its own earlier bytes.
    Replace { by: String, bytes: Vec<u8> },
    /// The file is removed.
    Remove,
}

impl Damage {
    /// The damaged form of `bytes`; `None` if the file is removed.
    pub(crate) fn apply(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        match self {
            Self::Flip { at, with } => bytes[*at] ^= with,
            Self::Cut { len } => bytes.truncate(*len),
            Self::Zero { start, end } => bytes[*start..*end].fill(0),
            Self::Extend { with } => bytes.extend_from_slice(with),
            Self::Replace { bytes: others, .. } => bytes.clone_from(others),
            Self::Remove => return None,
        }
        Some(bytes)
    }
}

impl fmt::Debug for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flip { at, with } => write!(f, "byte {at} ^ {with:#04x}"),
            Self::Cut { len } => write!(f, "cut to {len}"),
            Self::Zero { start, end } => write!(f, "zeros in {start}..{end}"),
            Self::Extend { with } => write!(f, "extended by {} bytes, first {:?}", with.len(), with.first()),
            Self::Replace { by, bytes } => write!(f, "replaced by {by} ({} bytes)", bytes.len()),
            Self::Remove => f.write_str("removed"),
        }
    }
}

/// Bytes at each end of a file that a sample, too, changes one by one.
const EDGE: usize = 40;

/// Unit in which devices lose data, in bytes.
const SECTOR: usize = 512;

/// Changed bytes and shortened files: at the ends of the file, and at up to `samples` other offsets each.
pub(crate) fn of_bytes(file: &StoreFile, samples: usize, rng: &mut Rng) -> Vec<Damage> {
    let mut damages = Vec::new();
    for at in offsets(file.bytes.len(), samples, rng) {
        damages.extend([1, 0x80, 0xff].map(|with| Damage::Flip { at, with }));
    }
    damages.extend(offsets(file.bytes.len(), samples, rng).into_iter().map(|len| Damage::Cut { len }));
    damages
}

/// Ranges of zeros, appended garbage, bytes of other files.
pub(crate) fn of_ranges(file: &StoreFile, fixture: &Fixture, rng: &mut Rng) -> Vec<Damage> {
    let len = file.bytes.len();
    let mut damages = vec![Damage::Remove, Damage::Zero { start: 0, end: len }];
    damages
        .extend((0..len).step_by(SECTOR).map(|start| Damage::Zero { start, end: (start + SECTOR).min(len) }));
    damages.extend((0..len).step_by(SECTOR).map(|start| Damage::Zero { start, end: len }));
    for extra in [1, 7, 64, 4096, 100_000] {
        damages.push(Damage::Extend { with: vec![0; extra] });
        damages.push(Damage::Extend { with: std::iter::repeat_with(|| rng.u8(..)).take(extra).collect() });
    }
    damages.push(Damage::Extend { with: file.bytes.clone() });
    for other in fixture.files.iter().filter(|other| other.name != file.name) {
        damages.push(Damage::Replace { by: other.name.clone(), bytes: other.bytes.clone() });
    }
    for (number, older) in file.older.iter().enumerate() {
        damages.push(Damage::Replace { by: format!("its version {number}"), bytes: older.clone() });
    }
    damages.retain(|damage| damage.apply(&file.bytes).is_none_or(|bytes| bytes != file.bytes));
    damages
}

/// All offsets below `len`, or those at both ends and a random sample of the others.
fn offsets(len: usize, samples: usize, rng: &mut Rng) -> Vec<usize> {
    if len <= samples + 2 * EDGE {
        return (0..len).collect();
    }
    let mut offsets: Vec<_> = (0..EDGE).chain(len - EDGE..len).collect();
    offsets.extend(std::iter::repeat_with(|| rng.usize(EDGE..len - EDGE)).take(samples));
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}
