//! Opening an SST: reads its tail by one call and checks every part of it.

use std::path::Path;
use std::sync::Arc;

use pleach_coding::Malformed;
use pleach_env::{Env, Error, File, FileId, Result, Site};
use pleach_index::Index;

use super::load::read;
use super::reader::{CachedFrames, Sst};
use crate::block::{BlockType, check};
use crate::codec::Codec;
use crate::extents::Extents;
use crate::filter::Filter;
use crate::footer::{Footer, FooterError, Version};
use crate::frame::{FrameCache, FrameWords};
use crate::properties::Properties;
use crate::sizes::{FOOTER_LEN, TAIL_LEN_MAX};
use crate::summary::SstSummary;

/// Failpoint of the checksums of the tail's blocks.
pub(super) const TAIL_CRC: Site = "sst.tail.crc";

impl Sst {
    /// Opens the file `path`, which must be the SST `file_id`.
    ///
    /// With a `summary`, the tail takes one read, and a file that differs from the summary is an error. Without one, the footer
    /// is read first. With `direct`, reads bypass the page cache if the file system supports it.
    pub fn open(
        env: &Arc<dyn Env>,
        path: &Path,
        file_id: FileId,
        summary: Option<&SstSummary>,
        cache: Arc<FrameCache>,
        direct: bool,
    ) -> Result<Self> {
        let file = env.open_stable_file(path, direct).map_err(|e| Error::io("open the SST", path, e))?;
        let opening = Opening { file: &*file, path, file_id, direct };
        let (file_len, tail_len) = match summary {
            Some(summary) => opening.lengths_from(summary)?,
            None => opening.lengths()?,
        };
        let parts = opening.read_tail(file_len, tail_len)?;
        file.expect_random_reads();
        if let Some(expected) = summary
            && parts.summary != *expected
        {
            let message = "expected the file that the manifest describes, found another";
            return Err(Error::corruption(path, file_len - FOOTER_LEN as u64, message));
        }
        let words = FrameWords::new(file_id, parts.extents.blocks());
        let Parts { footer, extents, index, filter, filter_extent, summary, note } = parts;
        let path = path.to_path_buf();
        let frames = Arc::new(CachedFrames { cache: Arc::clone(&cache), words: Arc::clone(&words) });
        Ok(Self {
            path,
            file,
            file_id,
            direct,
            codec: footer.codec,
            data_types: footer.version.data_types(),
            extents,
            index,
            filter,
            filter_extent,
            summary,
            note,
            cache,
            words,
            frames,
        })
    }
}

/// The parts of a tail that salvage needs.
pub(super) struct Tail {
    pub(super) codec: Codec,
    pub(super) data_types: &'static [BlockType],
    pub(super) extents: Extents,
    pub(super) summary: SstSummary,
    pub(super) note: Box<[u8]>,
}

/// Reads and checks the tail of a file without a summary.
pub(super) fn read_tail(file: &dyn File, path: &Path, file_id: FileId) -> Result<Tail> {
    let opening = Opening { file, path, file_id, direct: false };
    let (file_len, tail_len) = opening.lengths()?;
    let Parts { footer, extents, summary, note, .. } = opening.read_tail(file_len, tail_len)?;
    Ok(Tail { codec: footer.codec, data_types: footer.version.data_types(), extents, summary, note })
}

/// The decoded tail.
struct Parts {
    footer: Footer,
    extents: Extents,
    index: Index,
    filter: Option<Filter>,
    filter_extent: (u64, u32),
    summary: SstSummary,
    note: Box<[u8]>,
}

struct Opening<'a> {
    file: &'a dyn File,
    path: &'a Path,
    file_id: FileId,
    direct: bool,
}

impl Opening<'_> {
    /// Lengths of file and tail as in the manifest.
    fn lengths_from(&self, summary: &SstSummary) -> Result<(u64, usize)> {
        let tail_len = summary.tail_len as usize;
        let possible = (FOOTER_LEN..=TAIL_LEN_MAX).contains(&tail_len) && tail_len as u64 <= summary.file_len;
        if !possible {
            return Err(Error::corruption(self.path, 0, "expected a tail no longer than the file"));
        }
        Ok((summary.file_len, tail_len))
    }

    /// Lengths of file and tail as in the file's footer.
    fn lengths(&self) -> Result<(u64, usize)> {
        let file_len = self.file.len().map_err(|e| Error::io("get the length of the SST", self.path, e))?;
        let Some(footer_at) = file_len.checked_sub(FOOTER_LEN as u64) else {
            return Err(Error::corruption(self.path, 0, format!("expected an SST, found {file_len} bytes")));
        };
        let bytes = read(self.file, self.path, footer_at, FOOTER_LEN, self.direct)?;
        let (footer, _) = self.footer(&bytes, file_len)?;
        Ok((file_len, usize::try_from(footer.tail_len()).expect("at most TAIL_LEN_MAX")))
    }

    /// The footer at the end of `tail`, and its checksum.
    fn footer(&self, tail: &[u8], file_len: u64) -> Result<(Footer, u32)> {
        let bytes = tail.last_chunk::<FOOTER_LEN>().expect("the tail has a footer");
        Footer::decode(bytes, self.file_id, file_len).map_err(|error| match error {
            FooterError::Malformed(m) => Error::malformed(self.path, file_len - FOOTER_LEN as u64, m),
            FooterError::Version(version) => {
                let [oldest, newest] = Version::BOUNDS;
                let than = if version > newest { "newer" } else { "older" };
                let message = format!(
                    "the SST has format version {version}, which is {than} than this build reads ({oldest} to {newest})"
                );
                Error::unsupported(self.path, message)
            }
        })
    }

    fn read_tail(&self, file_len: u64, tail_len: usize) -> Result<Parts> {
        let tail_at = file_len - tail_len as u64;
        let tail = read(self.file, self.path, tail_at, tail_len, self.direct)?;
        let (footer, footer_crc) = self.footer(&tail, file_len)?;
        if footer.tail_len() != tail_len as u64 {
            let message = format!("expected a tail of {tail_len} bytes, found {}", footer.tail_len());
            return Err(Error::corruption(self.path, file_len - FOOTER_LEN as u64, message));
        }
        let mut blocks = TailBlocks { opening: self, rest: &tail, offset: tail_at };
        let data_end = u32::try_from(tail_at).expect("the footer's file length has 32 bits");
        let (extents, index) = blocks.take(BlockType::Index, footer.index_len, |payload| {
            let (extents, rest) = Extents::decode(payload, data_end, footer.codec)?;
            let index = Index::decode(rest, extents.blocks())
                .map_err(|m| Malformed::new(payload.len() - rest.len() + m.offset, m.expected))?;
            if Version::of(&extents, index.kind(), footer.version.columns()) == footer.version {
                Ok((extents, index))
            } else {
                Err(Malformed::new(0, "extents and an index of the kinds of the footer's format version"))
            }
        })?;
        let filter = match footer.filter_len {
            0 => None,
            len => Some(blocks.take(BlockType::Filter, len, Filter::decode)?),
        };
        let filter_extent = (tail_at + u64::from(footer.index_len), footer.filter_len);
        let mut properties = blocks.take(BlockType::Properties, footer.properties_len, Properties::decode)?;
        let note = std::mem::take(&mut properties.note).into_boxed_slice();
        let tail_len = u32::try_from(tail_len).expect("at most TAIL_LEN_MAX");
        let summary = properties.into_summary(file_len, tail_len, footer_crc, extents.blocks());
        Ok(Parts { footer, extents, index, filter, filter_extent, summary, note })
    }
}

/// The blocks of the tail, taken one after the other.
struct TailBlocks<'a> {
    opening: &'a Opening<'a>,
    rest: &'a [u8],
    offset: u64,
}

impl TailBlocks<'_> {
    /// The next block's payload, decoded by `decode`.
    fn take<T>(
        &mut self,
        block_type: BlockType,
        len: u32,
        decode: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T> {
        let (path, offset) = (self.opening.path, self.offset);
        let (block, rest) =
            self.rest.split_at_checked(len as usize).expect("the footer's lengths fill the tail");
        (self.rest, self.offset) = (rest, offset + u64::from(len));
        let (_, payload) = check(block, self.opening.file_id, offset, &[block_type], TAIL_CRC)
            .map_err(|m| Error::malformed(path, offset, m))?;
        let payload_at = offset + (block.len() - payload.len()) as u64;
        decode(payload).map_err(|m| Error::malformed(path, payload_at, m))
    }
}
