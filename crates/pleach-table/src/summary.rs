//! The summary of an SST that the store's manifest keeps.

use std::fmt;

/// The summary of an SST. It suffices to open the file by one read, to recognize a swapped or stale file, and to plan
/// compactions without opening it.
#[derive(Clone, PartialEq, Eq)]
pub struct SstSummary {
    /// Length of the file.
    pub file_len: u64,
    /// Length of the tail: index, filter, properties and footer.
    pub tail_len: u32,
    /// Checksum of the footer.
    pub footer_crc: u32,
    /// Number of data blocks.
    pub data_blocks: u32,
    /// Number of entries, tombstones and value pointers included.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Number of value pointers.
    pub value_pointers: u64,
    /// Bytes of all keys and values, uncompressed.
    pub raw_bytes: u64,
    /// Bits of the filter; 0 if there is none.
    pub filter_bits: u64,
    /// Smallest key.
    pub smallest: Vec<u8>,
    /// Largest key.
    pub largest: Vec<u8>,
}

impl fmt::Debug for SstSummary {
    /// Leaves out the keys, which are user data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SstSummary")
            .field("file_len", &self.file_len)
            .field("tail_len", &self.tail_len)
            .field("footer_crc", &self.footer_crc)
            .field("data_blocks", &self.data_blocks)
            .field("entries", &self.entries)
            .field("tombstones", &self.tombstones)
            .field("value_pointers", &self.value_pointers)
            .field("raw_bytes", &self.raw_bytes)
            .field("filter_bits", &self.filter_bits)
            .finish_non_exhaustive()
    }
}
