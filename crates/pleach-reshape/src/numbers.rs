//! Records of numbers: what the layer keeps about itself, in the store's named values and beside the map.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md. This module owns the bytes.

use pleach::{Error, ErrorKind, Result};
use pleach_coding::{Decoder, put_varint, u32_at};

use crate::map::Key;

/// Begins every record, and says its format.
const MAGIC: &[u8; 8] = b"PLCHRSH1";
const CHECKSUM_LEN: usize = 4;

/// The record of some numbers. `name` is part of what the checksum covers.
pub(crate) fn encode(name: &str, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in numbers {
        put_varint(&mut bytes, *number);
    }
    bytes.extend_from_slice(&checksum(name, &bytes).to_le_bytes());
    bytes
}

/// The numbers of a record.
pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Vec<u64>> {
    let damaged =
        |what: &str| Error::new(ErrorKind::Corruption, format!("the value `{name}` is damaged: {what}"));
    let end = bytes.len().checked_sub(CHECKSUM_LEN).ok_or_else(|| damaged("it is too short"))?;
    if u32_at(bytes, end) != checksum(name, &bytes[..end]) {
        return Err(damaged("its checksum is wrong"));
    }
    let Some(numbers) = bytes[..end].strip_prefix(MAGIC) else {
        let message = format!("the value `{name}` has another format than this version knows");
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let mut decoder = Decoder(numbers);
    let mut decoded = Vec::new();
    while !decoder.is_empty() {
        decoded.push(decoder.varint().ok_or_else(|| damaged("a number does not end"))?);
    }
    Ok(decoded)
}

/// The key whose bytes are these numbers.
pub(crate) fn key_of(name: &str, numbers: &[u64]) -> Result<Key> {
    let byte = |number: &u64| u8::try_from(*number).map_err(|_| malformed(name));
    numbers.iter().map(byte).collect()
}

/// The error of a record with a right checksum and wrong numbers.
pub(crate) fn malformed(name: &str) -> Error {
    Error::new(ErrorKind::Corruption, format!("the value `{name}` has numbers that are not possible"))
}

fn checksum(name: &str, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_format_page() {
        let bytes = encode("reshape.generation", &[2, 1]);
        assert_eq!(bytes, *b"PLCHRSH1\x02\x01\xa8\x0d\x31\xe5");
        assert_eq!(decode("reshape.generation", &bytes).unwrap(), [2, 1]);
    }

    #[test]
    fn other_names_changes_and_cuts_are_refused() {
        let bytes = encode("a", &[1, u64::MAX, 0]);
        assert!(decode("b", &bytes).is_err());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(decode("a", &changed).unwrap_err().kind(), ErrorKind::Corruption);
            assert!(decode("a", &bytes[..at]).is_err());
        }
    }
}
