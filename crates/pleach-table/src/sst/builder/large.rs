//! Large entries: each gets a block of its own, and its value is written from the caller's memory.
//!
//! Other entries are copied twice: into the packer and into the write buffer. For a value of hundreds of mebibytes the
//! system may not have that memory.

use pleach_env::Result;

use super::{SstBuilder, WRITE_LEN, block_len, write_error};
use crate::block::{BlockType, Header, encode_alone, seal_parts};
use crate::codec::Codec;
use crate::sizes::{HEADER_LEN, PAGE, RAW_LEN_MAX};
use crate::value_kind::ValueKind;

const ZEROS: [u8; PAGE] = [0; PAGE];

impl SstBuilder {
    /// Whether [`SstBuilder::write_large`] writes an entry with this value. From [`WRITE_LEN`] on, the cost of its own write
    /// calls does not count. A value that may be compressed is packed.
    pub(super) fn is_large(&self, value: &[u8]) -> bool {
        let len_min = match self.options.codec {
            Codec::None => WRITE_LEN,
            Codec::Lz4 => RAW_LEN_MAX + 1,
        };
        value.len() >= len_min.min(self.options.large_value_len)
    }

    /// Writes the waiting entries as a block, and the large entry as the next block.
    pub(super) fn write_large(&mut self, key: &[u8], kind: ValueKind, value: &[u8], hash: u64) -> Result<()> {
        if let Some(cut) = self.packer.last_cut() {
            self.write_block(cut)?;
        }
        let offset = self.position();
        self.boundaries.begin(offset, key, key).map_err(|_| self.too_long())?;
        let start = self.buffer.len();
        self.buffer.resize(start + HEADER_LEN, 0);
        encode_alone(key, kind, value.len(), hash, &mut self.buffer);
        let unpadded_len = self.buffer.len() - start + value.len();
        let padding = match self.options.codec {
            Codec::None => &ZEROS[..unpadded_len.next_multiple_of(PAGE) - unpadded_len],
            Codec::Lz4 => &[],
        };
        let header = Header::uncompressed(BlockType::Data, 1, block_len(unpadded_len - HEADER_LEN));
        let head = &mut self.buffer[start..];
        head[..HEADER_LEN].copy_from_slice(&header.encode());
        seal_parts(head, &[value, padding], self.file_id, offset);
        self.flush()?;
        self.file.write_all_at(value, self.written).map_err(|e| write_error(&self.path, e))?;
        self.written += value.len() as u64;
        self.buffer.extend_from_slice(padding);
        self.check_len()
    }
}
