//! Builder of an SST.
//!
//! Entries come in key order. They are packed into blocks, and blocks are gathered into large writes. `finish` writes the tail
//! and makes the file durable; the store makes its name durable.
//!
//! # Cost
//! Every byte is copied twice and checksummed once; large values are not copied. An entry takes no allocation beyond amortised
//! growth. A key takes 8 bytes of memory for its hash until the filter is built.

mod boundaries;
mod large;
mod tail;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pleach_env::{Env, Error, File, FileId, Result};
use pleach_index::{IndexChoice, Obstacle};

use self::boundaries::Boundaries;
use crate::block::{BlockPacker, Cut, Header, Packing, seal};
use crate::codec::Codec;
use crate::filter::FilterBuilder;
use crate::footer::Columns;
use crate::lz4::{Lz4Packer, packed_len_max};
use crate::properties::Properties;
use crate::sizes::{
    BLOCK_LEN_MAX, HEADER_LEN, INDEX_LEN_FULL, KEY_LEN_MAX, NOTE_LEN_MAX, VALUE_LEN_MAX, may_decompress_to,
};
use crate::summary::SstSummary;
use crate::value_kind::ValueKind;

/// Bytes gathered before they are written: at 1 MiB the fixed cost of the call does not count.
const WRITE_LEN: usize = 1 << 20;

/// How an SST is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SstOptions {
    /// Compression of data blocks.
    pub codec: Codec,
    /// Size of the filter; 0 for none.
    pub filter_bits_per_key: f32,
    /// Length from which on a value is written with a call of its own, as a block of its own, whatever the codec.
    pub large_value_len: usize,
    /// Which kind of index the SST gets. If a model is wanted, blocks may end a little early to make it small
    /// ([`pleach_index::Cuts`]).
    pub index: IndexChoice,
    /// Whether blocks may be columnar, where columns are smaller than rows. An SST that has some is of format version 5 or 6.
    pub columns: bool,
}

impl Default for SstOptions {
    fn default() -> Self {
        Self {
            codec: Codec::None,
            filter_bits_per_key: 10.0,
            large_value_len: usize::MAX,
            index: IndexChoice::Separators,
            columns: true,
        }
    }
}

/// An SST being written.
///
/// Grammar: `create (add)+ finish`, or `abandon` at any time. After an error only `abandon` is left. A builder that is dropped
/// before `finish` leaves its file behind.
pub struct SstBuilder {
    env: Arc<dyn Env>,
    path: PathBuf,
    file: Arc<dyn File>,
    file_id: FileId,
    options: SstOptions,
    packer: BlockPacker,
    boundaries: Boundaries,
    filter: FilterBuilder,
    properties: Properties,
    /// Bytes to be written at offset `written`.
    buffer: Vec<u8>,
    written: u64,
    columns: Columns,
    /// Scratch for the payload of a compressed block.
    payload: Vec<u8>,
    /// Made for the first compressed block.
    lz4: Option<Lz4Packer>,
    failed: Option<Error>,
}

impl SstBuilder {
    /// Creates the file; its name must not be taken.
    pub fn create(env: &Arc<dyn Env>, path: &Path, file_id: FileId, options: SstOptions) -> Result<Self> {
        let packing = match options.codec {
            Codec::None => Packing::Padded,
            Codec::Lz4 => Packing::COMPRESSED,
        };
        let file = env.create_file(path).map_err(|e| Error::io("create the SST", path, e))?;
        Ok(Self {
            env: env.clone(),
            path: path.to_path_buf(),
            file,
            file_id,
            options,
            packer: BlockPacker::new(packing, options.columns),
            boundaries: Boundaries::new(options.index),
            filter: FilterBuilder::new(options.filter_bits_per_key),
            properties: Properties::default(),
            buffer: Vec::with_capacity(WRITE_LEN + BLOCK_LEN_MAX),
            written: 0,
            columns: Columns::None,
            payload: Vec::new(),
            lz4: None,
            failed: None,
        })
    }

    /// Adds an entry; `hash` is its key's [`key_hash`](crate::key_hash).
    ///
    /// Requires: `key` is above all keys added before.
    pub fn add(&mut self, key: &[u8], kind: ValueKind, value: &[u8], hash: u64) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if key.len() > KEY_LEN_MAX {
            return Err(Error::invalid(format!("a key has at most {KEY_LEN_MAX} bytes, not {}", key.len())));
        }
        if value.len() > VALUE_LEN_MAX {
            return Err(Error::invalid(format!(
                "a value has at most {VALUE_LEN_MAX} bytes, not {}",
                value.len()
            )));
        }
        let is_first = self.properties.entries == 0;
        assert!(is_first || self.properties.largest.as_slice() < key, "keys are added in ascending order");
        self.properties.count(key, kind, value.len());
        self.filter.add(hash);
        let result = if self.is_large(value) {
            self.write_large(key, kind, value, hash)
        } else {
            self.packer.push(key, kind, value, hash);
            self.write_full_blocks()
        };
        self.latch(result)
    }

    /// Keeps an error, so that later calls return it too.
    fn latch(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Changes the size of the filter. The last size set before `finish` counts, when the size of the run is known.
    ///
    /// Requires: the options asked for a filter.
    pub fn set_filter_bits_per_key(&mut self, bits: f32) {
        self.filter.set_bits_per_key(bits);
    }

    /// Stores a note of the layer above in the file, to be read by [`Sst::note`](crate::Sst::note). At most [`NOTE_LEN_MAX`]
    /// bytes.
    pub fn set_note(&mut self, note: &[u8]) {
        assert!(note.len() <= NOTE_LEN_MAX, "a note is short");
        self.properties.note = note.to_vec();
    }

    /// Number of entries added.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Approximate length of the file if it were finished now.
    pub fn estimated_len(&self) -> u64 {
        self.position() + (self.packer.waiting_len() + self.tail_len_estimate()) as u64
    }

    /// Whether the file should end because its index is as long as one may be. Long keys that differ late bring it there: an
    /// index holds such a key for each block.
    pub fn is_index_full(&self) -> bool {
        self.boundaries.encoded_len_max() >= INDEX_LEN_FULL
    }

    /// Offset of the next byte of the file.
    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn write_full_blocks(&mut self) -> Result<()> {
        while let Some(cut) = self.packer.next_cut() {
            let is_learning = self.boundaries.index.is_learning();
            let cut = if is_learning { self.packer.advised(cut) } else { cut };
            self.write_block(cut)?;
        }
        Ok(())
    }

    fn write_block(&mut self, cut: Cut) -> Result<()> {
        let offset = self.position();
        let (first, last) = (self.packer.key(0), self.packer.key(cut.entries - 1));
        self.boundaries.begin(offset, first, last).map_err(|_| self.too_long())?;
        let count = u16::try_from(cut.entries).expect("a block of 16 KiB has fewer entries than bytes");
        match self.options.codec {
            Codec::None => self.put_raw_block(cut, count),
            Codec::Lz4 => self.put_compressed_block(cut, count),
        }
        self.packer.drain(cut.entries);
        self.check_len()?;
        if self.buffer.len() >= WRITE_LEN { self.flush() } else { Ok(()) }
    }

    fn put_raw_block(&mut self, cut: Cut, count: u16) {
        let start = self.buffer.len();
        self.buffer.resize(start + HEADER_LEN, 0);
        let block_type = self.packer.encode(cut, &mut self.buffer);
        let raw_len = block_len(self.buffer.len() - start - HEADER_LEN);
        if cut.padded_len > 0 {
            assert!(self.buffer.len() - start <= cut.padded_len, "a block fits where it was cut");
            self.buffer.resize(start + cut.padded_len, 0);
        }
        self.seal_data(start, &Header::uncompressed(block_type, count, raw_len));
    }

    fn put_compressed_block(&mut self, cut: Cut, count: u16) {
        self.payload.clear();
        let block_type = self.packer.encode(cut, &mut self.payload);
        let raw_len = self.payload.len();
        let start = self.buffer.len();
        self.buffer.resize(start + HEADER_LEN + packed_len_max(raw_len), 0);
        let packed =
            self.lz4.get_or_insert_default().pack(&self.payload, &mut self.buffer[start + HEADER_LEN..]);
        let mut header = Header::uncompressed(block_type, count, block_len(raw_len));
        if let Some(packed) = packed.filter(|packed| may_decompress_to(*packed, raw_len)) {
            (header.codec, header.stored_len) = (Codec::Lz4, block_len(packed));
            self.buffer.truncate(start + HEADER_LEN + packed);
        } else {
            self.buffer.truncate(start + HEADER_LEN);
            self.buffer.extend_from_slice(&self.payload);
        }
        self.payload.shrink_to(16 * BLOCK_LEN_MAX);
        self.seal_data(start, &header);
    }

    fn seal_data(&mut self, start: usize, header: &Header) {
        self.columns = self.columns.max(Columns::of(header.block_type));
        self.seal(start, header);
    }

    /// Completes the block that begins at `start` of the buffer and ends with it.
    fn seal(&mut self, start: usize, header: &Header) {
        let offset = self.written + start as u64;
        let block = &mut self.buffer[start..];
        block[..HEADER_LEN].copy_from_slice(&header.encode());
        seal(block, self.file_id, offset);
    }

    /// Writes the gathered bytes.
    fn flush(&mut self) -> Result<()> {
        self.file.write_all_at(&self.buffer, self.written).map_err(|e| write_error(&self.path, e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(2 * WRITE_LEN);
        Ok(())
    }

    /// Writes the rest and makes the file's bytes durable.
    ///
    /// Requires: at least one entry.
    pub fn finish(self) -> Result<SstSummary> {
        self.finish_with_obstacle(|_| true).map(|(summary, _)| summary)
    }

    /// As [`SstBuilder::finish`]. Also says why the index is not learned, if a model was wanted. Tells `is_in_time` how long the
    /// training took, and takes separators if the answer is no.
    pub fn finish_with_obstacle(
        mut self,
        is_in_time: impl FnOnce(Duration) -> bool,
    ) -> Result<(SstSummary, Option<Obstacle>)> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        assert!(self.properties.entries > 0, "an SST has entries");
        if let Some(cut) = self.packer.last_cut() {
            self.write_block(cut)?;
        }
        let finished = self.put_tail(is_in_time)?;
        self.flush()?;
        self.file.sync("sst.sync").map_err(|e| Error::io("sync the SST", &self.path, e))?;
        Ok(finished)
    }

    /// Removes the unfinished file.
    pub fn abandon(self) {
        // Best effort: the store removes unknown files when it is opened.
        let _best_effort = self.env.remove_file(&self.path);
    }
}

fn write_error(path: &Path, error: io::Error) -> Error {
    Error::io("write the SST", path, error)
}

fn block_len(len: usize) -> u32 {
    u32::try_from(len).expect("a block is shorter than its file")
}
