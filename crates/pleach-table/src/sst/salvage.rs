//! Salvage: reads every entry of a damaged SST that can still be read.
//!
//! For repair and for checks that go on behind damage. If the index is whole, it gives the places of the blocks. Otherwise
//! the file is searched: a block proves itself by its checksum, which covers the file's number and the block's offset. A
//! damaged block is reported and skipped.
//!
//! # Invariants
//! 1. *Nothing unproven*: an entry is shown only from a block whose checksum is right and whose lengths fit.
//! 2. *Bounded*: no memory is taken for a length before the bytes of that length have matched their checksum. A search
//!    spends at most [`WORK_FACTOR`] times the file's length on checksums that turn out wrong.
//!
//! # Cost
//! One pass over the file in reads of 1 MiB. The search looks at every offset behind a damaged block.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, File, FileId, OpenOptions, Result};

use super::load::unfold;
use super::open::{TAIL_CRC, Tail, read_tail};
use crate::block::{BlockType, DataBlock, Header, check, validate};
use crate::codec::Codec;
use crate::crc::address_crc;
use crate::extents::Extents;
use crate::kind::ValueKind;
use crate::limits::{BLOCK_LEN_MAX, FILE_LEN_MAX, HEADER_LEN, PAGE, unfolding_allowed};
use crate::properties::Properties;
use crate::summary::SstSummary;

/// Bytes read at once.
const WINDOW_LEN: usize = 1 << 20;

/// Bytes whose checksum may turn out wrong in a search, as a multiple of the file's length. Arbitrary: ordinary bytes look
/// like the header of a block once in many GiB, so only forged files reach this.
const WORK_FACTOR: u64 = 64;

/// A finding of the salvage of an SST. Findings come in the order of the file.
#[derive(Debug)]
pub enum Salvaged<'a> {
    /// An entry of a whole block.
    Entry {
        /// Its key as it is stored.
        key: &'a [u8],
        /// The kind.
        kind: ValueKind,
        /// Its value.
        value: &'a [u8],
    },
    /// Bytes that are no whole block.
    Damage(SstDamage),
    /// This many bytes of the file are done.
    Progress(u64),
}

/// Damaged bytes of an SST.
#[derive(Clone, Debug)]
pub struct SstDamage {
    /// Where they begin.
    pub offset: u64,
    /// How many there are.
    pub len: u64,
    /// The last key before them, if there is one that can be read.
    pub after: Option<Vec<u8>>,
    /// The first key behind them, if there is one that can be read.
    pub before: Option<Vec<u8>>,
    /// The error.
    pub error: Error,
}

/// An SST to be salvaged.
pub struct SalvageSst {
    path: PathBuf,
    file: Arc<dyn File>,
    file_id: FileId,
    len: u64,
    /// The decoded tail, or the error of reading it.
    tail: Result<Tail>,
}

impl SalvageSst {
    /// Opens the file `path`, which should be the SST `file_id`.
    ///
    /// # Errors
    /// `Io` when the file cannot be opened at all.
    pub fn open(env: &Arc<dyn Env>, path: &Path, file_id: FileId) -> Result<Self> {
        let failed = |e| Error::io("open the SST", path, e);
        let file = env.open_file(path, OpenOptions::default()).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let tail = read_tail(&*file, path, file_id);
        Ok(Self { path: path.to_path_buf(), file, file_id, len, tail })
    }

    /// Length of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first error in index, filter, properties or footer; `None` if all are whole.
    pub fn tail_error(&self) -> Option<&Error> {
        self.tail.as_ref().err()
    }

    /// The file in brief, where its tail is whole.
    pub fn summary(&self) -> Option<&SstSummary> {
        self.tail.as_ref().ok().map(|tail| &tail.summary)
    }

    /// Its writer's note, where that can be read.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn note(&self) -> Result<Option<Vec<u8>>> {
        if let Ok(tail) = &self.tail {
            return Ok(Some(tail.note.to_vec()));
        }
        let mut found = None;
        // The properties are near the end; a search from the beginning would read all.
        let mut walk = Walk::new(self);
        walk.offset = self.len.saturating_sub(crate::limits::TAIL_LEN_MAX as u64);
        walk.search(&mut |what| {
            if let Found::Properties(properties) = what {
                found = Some(properties.note);
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Shows `visit` every entry that can be read, and all damage between; it returns whether to go on.
    ///
    /// # Errors
    /// Those of `visit`. What cannot be read is damage.
    pub fn read(&self, visit: &mut dyn FnMut(Salvaged<'_>) -> Result<bool>) -> Result<()> {
        let mut walk = Walk::new(self);
        let mut reporter = Reporter { visit, last_key: None, pending: None };
        let mut each = |found: Found<'_>| reporter.take(found);
        let go_on = match &self.tail {
            Ok(tail) => walk.follow(&tail.extents, tail.codec, &mut each)?,
            Err(_) => walk.search(&mut each)?,
        };
        if go_on {
            reporter.finish()?;
        }
        Ok(())
    }
}

/// A finding of a walk.
enum Found<'a> {
    /// A data block, unfolded and validated, and where it ends.
    Block(&'a [u8], u64),
    /// An offset and a number of bytes that are no block.
    Damage(u64, u64, Error),
    /// The properties, where they were searched for.
    Properties(Properties),
}

/// Turns blocks into entries, and gives damage the keys around it.
struct Reporter<'v> {
    visit: &'v mut dyn FnMut(Salvaged<'_>) -> Result<bool>,
    last_key: Option<Vec<u8>>,
    /// Damage that still waits for the key behind it.
    pending: Option<SstDamage>,
}

impl Reporter<'_> {
    fn take(&mut self, found: Found<'_>) -> Result<bool> {
        match found {
            Found::Damage(offset, len, error) => self.note_damage(offset, len, error),
            Found::Properties(_) => Ok(true),
            Found::Block(bytes, end) => Ok(self.show(bytes)? && (self.visit)(Salvaged::Progress(end))?),
        }
    }

    fn note_damage(&mut self, offset: u64, len: u64, error: Error) -> Result<bool> {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.offset + pending.len == offset)
        {
            pending.len += len;
            return Ok(true);
        }
        let go_on = self.finish()?;
        self.pending = Some(SstDamage { offset, len, after: self.last_key.clone(), before: None, error });
        Ok(go_on)
    }

    fn show(&mut self, bytes: &[u8]) -> Result<bool> {
        let block = DataBlock::new(bytes);
        let mut key = block.prefix().to_vec();
        let prefix_len = key.len();
        for i in 0..block.count() {
            let entry = block.entry(i);
            key.truncate(prefix_len);
            key.extend_from_slice(&bytes[entry.suffix]);
            if let Some(mut damage) = self.pending.take() {
                damage.before = Some(key.clone());
                if !(self.visit)(Salvaged::Damage(damage))? {
                    return Ok(false);
                }
            }
            let found = Salvaged::Entry { key: &key, kind: entry.kind, value: &bytes[entry.value] };
            if !(self.visit)(found)? {
                return Ok(false);
            }
        }
        self.last_key = Some(key);
        Ok(true)
    }

    fn finish(&mut self) -> Result<bool> {
        match self.pending.take() {
            Some(damage) => (self.visit)(Salvaged::Damage(damage)),
            None => Ok(true),
        }
    }
}

/// A walk over the file.
struct Walk<'s> {
    sst: &'s SalvageSst,
    offset: u64,
    window: Vec<u8>,
    window_start: u64,
    unfolded: Vec<u8>,
    work_left: u64,
}

/// A block that has proved itself: its type, and its length in the file.
struct Proven {
    block_type: BlockType,
    len: u64,
}

/// Called for what a walk finds; returns whether to go on.
type Each<'e> = dyn FnMut(Found<'_>) -> Result<bool> + 'e;

impl<'s> Walk<'s> {
    fn new(sst: &'s SalvageSst) -> Self {
        let work_left = sst.len.saturating_mul(WORK_FACTOR);
        Self { sst, offset: 0, window: Vec::new(), window_start: 0, unfolded: Vec::new(), work_left }
    }

    /// Goes from block to block as the index has them.
    fn follow(&mut self, extents: &Extents, codec: Codec, each: &mut Each<'_>) -> Result<bool> {
        for number in 0..extents.blocks() {
            let (offset, len) = extents.get(number);
            let found = match self.block(offset, len as usize, codec) {
                Ok(()) => Found::Block(&self.unfolded, offset + u64::from(len)),
                Err(error) => Found::Damage(offset, u64::from(len), error),
            };
            if !each(found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Brings the block at `offset` into `unfolded`.
    fn block(&mut self, offset: u64, len: usize, codec: Codec) -> Result<()> {
        let (path, id) = (self.sst.path.clone(), self.sst.file_id);
        let damaged = |malformed| Error::malformed(&path, offset, malformed);
        if offset + len as u64 > self.sst.len {
            return Err(Error::corruption(&path, offset, "the file ends before this block does"));
        }
        if len > WINDOW_LEN && !self.is_intact(offset, len as u64)? {
            return Err(Error::corruption(&path, offset, "expected bytes that match the block's checksum"));
        }
        self.cover(offset, len)?;
        let at = self.index(offset);
        let stored = &self.window[at..at + len];
        let (header, payload) =
            check(stored, id, offset, BlockType::Data, super::load::BLOCK_CRC).map_err(damaged)?;
        if codec == Codec::None && header.codec != Codec::None {
            return Err(Error::corruption(
                &path,
                offset + 4,
                "expected no compression in an uncompressed SST",
            ));
        }
        self.unfolded.clear();
        self.unfolded.resize(HEADER_LEN + header.raw_len as usize, 0);
        unfold(&header, payload, &mut self.unfolded).map_err(damaged)?;
        validate(&self.unfolded, &Header::unfolded(header.count, header.raw_len)).map_err(damaged)
    }

    /// Whether the checksum of a long block is right, before memory is taken for it.
    fn is_intact(&mut self, offset: u64, len: u64) -> Result<bool> {
        self.cover(offset, HEADER_LEN)?;
        let at = self.index(offset);
        let stored = self.window[at..].first_chunk::<4>().map_or(0, |crc| u32::from_le_bytes(*crc));
        let crc = address_crc(self.sst.file_id, offset, &[]);
        Ok(self.crc_over(crc, offset + 4, len - 4)? == stored)
    }

    /// Looks for blocks from the current offset to the end of the file.
    fn search(&mut self, each: &mut Each<'_>) -> Result<bool> {
        let end = self.sst.len.min(FILE_LEN_MAX);
        let mut lost_from = self.offset;
        let mut broken = None;
        while self.offset + HEADER_LEN as u64 <= end {
            let offset = self.offset;
            let proven = match self.prove(offset) {
                Ok(proven) => proven,
                Err(error) => {
                    // What cannot be read, or is no longer to be searched, is lost up to the next page.
                    broken.get_or_insert(error);
                    self.offset = (offset / PAGE as u64 + 1) * PAGE as u64;
                    continue;
                }
            };
            let Some(Proven { block_type, len }) = proven else {
                self.offset = self.next_candidate(offset + 1, end);
                continue;
            };
            if lost_from < offset && !self.lost(lost_from, offset, broken.take(), each)? {
                return Ok(false);
            }
            if !self.show(offset, len, block_type, each)? {
                return Ok(false);
            }
            self.offset = offset + len;
            lost_from = self.offset;
        }
        // The footer is no block: bytes behind the last block of the tail are not lost.
        if lost_from + (crate::limits::FOOTER_LEN as u64) < end && !self.lost(lost_from, end, broken, each)? {
            return Ok(false);
        }
        Ok(true)
    }

    fn lost(&self, from: u64, to: u64, broken: Option<Error>, each: &mut Each<'_>) -> Result<bool> {
        let error = broken.unwrap_or_else(|| {
            Error::corruption(&self.sst.path, from, "expected a block, found other bytes")
        });
        each(Found::Damage(from, to - from, error))
    }

    /// Shows a block that was found at `offset`.
    fn show(&mut self, offset: u64, len: u64, block_type: BlockType, each: &mut Each<'_>) -> Result<bool> {
        let len = usize::try_from(len).expect("a file is shorter than 4 GiB");
        match block_type {
            BlockType::Data => match self.block(offset, len, Codec::Lz4) {
                Ok(()) => each(Found::Block(&self.unfolded, offset + len as u64)),
                Err(error) => each(Found::Damage(offset, len as u64, error)),
            },
            BlockType::Properties => {
                self.cover(offset, len)?;
                let at = self.index(offset);
                let stored = &self.window[at..at + len];
                let payload = check(stored, self.sst.file_id, offset, block_type, TAIL_CRC);
                let properties = payload.ok().and_then(|(_, payload)| Properties::decode(payload).ok());
                properties.map_or(Ok(true), |properties| each(Found::Properties(properties)))
            }
            BlockType::Index | BlockType::Filter => Ok(true),
        }
    }

    /// The next offset from `from` on at which a block may begin, by the type in its header.
    fn next_candidate(&mut self, from: u64, end: u64) -> u64 {
        let at =
            from.checked_sub(self.window_start).and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
        let Some(rest) = self.window.get(at.saturating_add(4)..) else { return from };
        let place = rest.windows(2).position(|pair| pair[0] <= 1 && (1..=4).contains(&pair[1]));
        let skipped = place.unwrap_or(rest.len().saturating_sub(2)) as u64;
        (from + skipped).min(end).max(from)
    }

    /// The block that begins at `offset`, if its checksum says so.
    fn prove(&mut self, offset: u64) -> Result<Option<Proven>> {
        self.cover(offset, HEADER_LEN)?;
        let at = self.index(offset);
        let mut head = [0; HEADER_LEN];
        head.copy_from_slice(&self.window[at..at + HEADER_LEN]);
        let Some((block_type, header)) = Header::guess(&head) else { return Ok(None) };
        if !is_plausible(block_type, &header) {
            return Ok(None);
        }
        let packed = HEADER_LEN as u64 + u64::from(header.stored_len);
        let padded = packed.next_multiple_of(PAGE as u64);
        let left = self.sst.len.min(FILE_LEN_MAX) - offset;
        if packed > left {
            return Ok(None);
        }
        let stored_crc = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let mut crc = address_crc(self.sst.file_id, offset, &[]);
        crc = self.crc_over(crc, offset + 4, packed - 4)?;
        if crc == stored_crc {
            return Ok(Some(Proven { block_type, len: packed }));
        }
        let may_be_padded = offset.is_multiple_of(PAGE as u64) && header.codec == Codec::None;
        if may_be_padded && block_type == BlockType::Data && padded <= left {
            crc = self.crc_over(crc, offset + packed, padded - packed)?;
            if crc == stored_crc {
                return Ok(Some(Proven { block_type, len: padded }));
            }
        }
        self.work_left = self.work_left.checked_sub(padded).ok_or_else(|| {
            let message = "found too many bytes that look like blocks and are none";
            Error::corruption(&self.sst.path, offset, message)
        })?;
        Ok(None)
    }

    /// `crc` continued over bytes of the file. Nothing is kept of them.
    fn crc_over(&mut self, mut crc: u32, mut offset: u64, len: u64) -> Result<u32> {
        let end = offset + len;
        while offset < end {
            let chunk = usize::try_from(end - offset).unwrap_or(usize::MAX).min(WINDOW_LEN / 2);
            self.cover(offset, chunk)?;
            let at = self.index(offset);
            crc = crc32c::crc32c_append(crc, &self.window[at..at + chunk]);
            offset += chunk as u64;
        }
        Ok(crc)
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset - self.window_start).expect("the window covers the offset")
    }

    /// Makes the window cover `len` bytes at `offset`, which the file has.
    fn cover(&mut self, offset: u64, len: usize) -> Result<()> {
        let end = offset + len as u64;
        if offset >= self.window_start && end <= self.window_start + self.window.len() as u64 {
            return Ok(());
        }
        let left = usize::try_from(self.sst.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        self.window.clear();
        self.window.shrink_to(WINDOW_LEN);
        self.window_start = offset;
        let mut want = left.min(len.max(WINDOW_LEN));
        loop {
            self.window.resize(want, 0);
            match self.sst.file.read_exact_at(&mut self.window, offset) {
                Ok(()) => return Ok(()),
                // A bad sector further on must not lose the bytes before it.
                Err(_) if want > len => want = len,
                Err(error) => {
                    self.window.clear();
                    return Err(self.read_error(offset, error));
                }
            }
        }
    }

    fn read_error(&self, offset: u64, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Error::corruption(
                &self.sst.path,
                offset,
                "the file ends before a part of it that should be here",
            );
        }
        Error::io("read the SST", &self.sst.path, error)
    }
}

/// Whether a block can have such a header.
fn is_plausible(block_type: BlockType, header: &Header) -> bool {
    let lengths = match header.codec {
        Codec::None => header.raw_len == header.stored_len,
        Codec::Lz4 => unfolding_allowed(header.stored_len as usize, header.raw_len as usize),
    };
    let entries = match (block_type, header.count) {
        (BlockType::Data, 0) => false,
        (BlockType::Data, 1) => true,
        (BlockType::Data, _) => HEADER_LEN + header.raw_len as usize <= BLOCK_LEN_MAX,
        (_, count) => count == 0 && header.codec == Codec::None,
    };
    lengths && entries && header.stored_len > 0
}
