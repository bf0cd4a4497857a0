//! The tail of an SST being written: index, filter, properties and footer.

use std::time::Duration;

use pleach_env::{Error, Result};
use pleach_index::Obstacle;

use super::{SstBuilder, block_len};
use crate::block::{BlockType, Header};
use crate::extents::Extents;
use crate::filter::FilterBuilder;
use crate::footer::{Footer, Version};
use crate::sizes::{FILE_LEN_MAX, FOOTER_LEN, HEADER_LEN, NOTE_LEN_MAX, TAIL_LEN_MAX};
use crate::summary::SstSummary;

impl SstBuilder {
    /// At most the length of the tail, with one more block for the entries that wait.
    pub(super) fn tail_len_estimate(&self) -> usize {
        let keys = self.properties.smallest.len() + self.properties.largest.len();
        let properties = 128 + keys + NOTE_LEN_MAX;
        self.boundaries.encoded_len_max()
            + self.filter.encoded_len()
            + properties
            + 4 * HEADER_LEN
            + FOOTER_LEN
    }

    pub(super) fn check_len(&self) -> Result<()> {
        let len = self.position() + self.tail_len_estimate() as u64;
        if len > FILE_LEN_MAX { Err(self.too_long()) } else { Ok(()) }
    }

    pub(super) fn too_long(&self) -> Error {
        Error::invalid("an SST is shorter than 4 GiB and its tail than 64 MiB").at_path(&self.path)
    }

    pub(super) fn put_tail(
        &mut self,
        is_in_time: impl FnOnce(Duration) -> bool,
    ) -> Result<(SstSummary, Option<Obstacle>)> {
        let data_len = self.position();
        let end = u32::try_from(data_len).map_err(|_| self.too_long())?;
        let extents = Extents::new(&self.boundaries.starts, end, self.options.codec);
        let index = std::mem::take(&mut self.boundaries.index);
        let started = self.env.now();
        let is_in_time = || is_in_time(self.env.now().saturating_sub(started));
        let (index, obstacle) = index.finish_in_time(self.options.index, is_in_time);
        let index_len = self.put_block(BlockType::Index, |out| {
            extents.encode(out);
            index.encode(out);
        });
        let filter = std::mem::replace(&mut self.filter, FilterBuilder::new(0.0));
        let filter_len = if filter.encoded_len() == 0 {
            0
        } else {
            let mut bits = 0;
            let len = self.put_block(BlockType::Filter, |out| bits = filter.encode(out));
            self.properties.filter_bits = bits;
            len
        };
        let properties = std::mem::take(&mut self.properties);
        let properties_len = self.put_block(BlockType::Properties, |out| properties.encode(out));
        let file_len = self.position() + FOOTER_LEN as u64;
        let tail_len = file_len - data_len;
        if file_len > FILE_LEN_MAX || tail_len > TAIL_LEN_MAX as u64 {
            return Err(self.too_long());
        }
        let footer = Footer {
            version: Version::of(&extents, index.kind(), self.columns),
            codec: self.options.codec,
            file_id: self.file_id,
            index_len,
            filter_len,
            properties_len,
            file_len: u32::try_from(file_len).expect("checked above"),
        };
        let (bytes, footer_crc) = footer.encode();
        self.buffer.extend_from_slice(&bytes);
        let tail_len = u32::try_from(tail_len).expect("checked above");
        Ok((properties.into_summary(file_len, tail_len, footer_crc, extents.blocks()), obstacle))
    }

    /// Appends a block of the tail and returns its length.
    fn put_block(&mut self, block_type: BlockType, payload: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let start = self.buffer.len();
        self.buffer.resize(start + HEADER_LEN, 0);
        payload(&mut self.buffer);
        let raw_len = block_len(self.buffer.len() - start - HEADER_LEN);
        self.seal(start, &Header::uncompressed(block_type, 0, raw_len));
        block_len(self.buffer.len() - start)
    }
}
