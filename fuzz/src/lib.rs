//! Tools of the fuzz targets: taking decisions from the input, and changing files by it.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, SimEnv};

/// The input, consumed from its start; zeros when it is used up.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes as a number.
    pub fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// Up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Whether it is used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes `bytes` as the rest of the input says: bytes changed, ranges replaced or zeroed, a length cut, garbage.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        while !self.is_empty() {
            let (what, at, len) = (self.byte(), self.number(), usize::from(self.byte()));
            let at = at % (bytes.len() + 1);
            let end = (at + len).min(bytes.len());
            match what % 5 {
                0 if at < bytes.len() => bytes[at] ^= (len as u8).max(1),
                1 => bytes[at..end].fill(0),
                2 => bytes.truncate(at),
                3 => {
                    let with = self.bytes(end - at);
                    bytes[at..at + with.len()].copy_from_slice(with);
                }
                _ => bytes.extend_from_slice(self.bytes(len)),
            }
        }
    }
}

/// A simulated machine, also as what stores take.
pub fn machine() -> (Arc<SimEnv>, Arc<dyn Env>) {
    let env = SimEnv::new(1);
    env.create_dir_all(Path::new(DIR)).expect("the simulator makes directories");
    (Arc::clone(&env), env)
}

/// Where files are put.
pub const DIR: &str = "/store";
