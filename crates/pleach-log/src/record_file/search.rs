//! The search for records behind the end of a chain.
//!
//! Recovery asks two questions. Does a later record claim that records beyond the chain were durable? Then the file is
//! damaged. Otherwise, how many whole records are lost?
//!
//! # Cost
//! Linear in the file's length for any bytes. Each offset costs one comparison with the tag that a long header would have
//! there. A match costs a checksum of 44 bytes; by chance a tag matches once in 4 GiB. Each payload is checksummed once. If a
//! payload is wrong, the payloads of headers inside it are not checksummed. The same holds for short records.

use pleach_env::Result;

use super::reader::RecordReader;
use super::record_header::{
    ChainStart, RECORD_HEADER_LEN, RecordHeader, RecordKind, SHORT_HEADER_LEN, TAG_STEP, tag,
};

/// A record found behind the end of the chain. Its header is proven; its payload may be damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaterRecord {
    pub(crate) header: RecordHeader,
    pub(crate) offset: u64,
    /// Whether the record is whole and not stale. `false` also if it lies inside a payload with a wrong checksum, where it is
    /// not checked.
    pub(crate) is_whole: bool,
}

/// One step of the search for a tag.
pub(super) struct TagStep {
    /// Whether a tag follows the bytes passed over.
    pub(super) is_found: bool,
    /// Bytes passed over.
    pub(super) passed: u64,
    /// How many of them precede the end of the last one that is not zero; `None` if all are zero.
    pub(super) used: Option<u64>,
}

/// The state of a search.
struct Search {
    offset: u64,
    /// The short record that is due at `offset`, or further on: behind a payload with a wrong checksum.
    due: Option<ChainStart>,
    /// The highest epoch seen: a record with a lower one is left from a failed append.
    epoch: u8,
    /// End of the last payload with a wrong checksum. Payloads of headers inside it are not checksummed.
    long_checked: u64,
    /// The same for short records.
    short_checked: u64,
    /// End of the last record, or of the last other byte that is not zero.
    end: u64,
}

impl RecordReader {
    /// Shows `visit` every long record from `start` on, and the short ones that follow whole ones or ones with a wrong payload.
    /// Returns the end of the last record, or of the last other byte that is not zero; at least `start`.
    pub(crate) fn search(&mut self, start: u64, visit: &mut dyn FnMut(LaterRecord)) -> Result<u64> {
        let offset = start.min(self.len);
        let epoch = self.epoch;
        let mut search = Search { offset, due: None, epoch, long_checked: 0, short_checked: 0, end: offset };
        while search.offset < self.len {
            if let Some(later) = self.short_record(&mut search)? {
                visit(later);
            } else if self.next_tag(&mut search)?
                && let Some(later) = self.long_record(&mut search)?
            {
                visit(later);
            }
        }
        Ok(search.end)
    }

    /// The short record that is due at the search's offset, if it is there.
    fn short_record(&mut self, search: &mut Search) -> Result<Option<LaterRecord>> {
        let (offset, left) = (search.offset, self.len - search.offset);
        let Some(due) = search.due.take_if(|due| due.offset <= offset) else { return Ok(None) };
        if due.offset < offset || offset < search.short_checked || left < SHORT_HEADER_LEN as u64 {
            return Ok(None);
        }
        let due = (due.first_seq, due.epoch);
        let head = self.bytes(offset, SHORT_HEADER_LEN)?;
        let claimed = match RecordHeader::decode(head, Some(due)) {
            Ok(header) if header.kind == RecordKind::Short => offset + header.record_len(),
            _ => return Ok(None),
        };
        let Ok(header) = self.check_record(offset, Some(due))? else {
            search.short_checked = claimed;
            return Ok(None);
        };
        search.offset = claimed;
        search.due = Some(header.due_behind(offset));
        search.end = search.end.max(claimed);
        Ok(Some(LaterRecord { header, offset, is_whole: true }))
    }

    /// Moves the search to the next offset that holds the tag of a long header, to the end of the window, or to the offset at
    /// which a short record is due. Returns whether it found a tag.
    fn next_tag(&mut self, search: &mut Search) -> Result<bool> {
        let step = self.find_tag(search.offset)?;
        if let Some(used) = step.used {
            search.end = search.end.max(search.offset + used);
        }
        let reached = search.offset + step.passed;
        if let Some(due) = search.due.as_ref().filter(|due| due.offset <= reached) {
            search.offset = due.offset;
            return Ok(false);
        }
        search.offset = reached;
        Ok(step.is_found)
    }

    /// Looks for the tag of a long header between `offset` and the end of the window.
    pub(super) fn find_tag(&mut self, offset: u64) -> Result<TagStep> {
        let (file_len, id) = (self.len, self.id);
        let bytes = self.rest_of_window(offset)?;
        let places = bytes.len().saturating_sub(RECORD_HEADER_LEN - 1);
        let found = first_tag(&bytes[..(places + 3).min(bytes.len())], tag(id, offset));
        // A header may begin in the last bytes of this window and end in the next.
        let is_last = offset + bytes.len() as u64 == file_len;
        let passed = found.unwrap_or(if is_last { bytes.len() } else { places });
        let used = last_nonzero(&bytes[..passed]).map(|last| last as u64 + 1);
        self.examined += passed as u64;
        Ok(TagStep { is_found: found.is_some(), passed: passed as u64, used })
    }

    /// The long record at the search's offset, if its header proves itself. Moves the search behind the record, or behind
    /// its header if the payload is wrong.
    fn long_record(&mut self, search: &mut Search) -> Result<Option<LaterRecord>> {
        let offset = search.offset;
        let mut head = [0; RECORD_HEADER_LEN];
        head.copy_from_slice(self.bytes(offset, RECORD_HEADER_LEN)?);
        self.examined += RECORD_HEADER_LEN as u64;
        let header = RecordHeader::decode(&head, None).ok().filter(|h| h.is_proven(&head, self.id, offset));
        let Some(header) = header else {
            search.offset += 1;
            search.end = search.end.max(offset + 1);
            return Ok(None);
        };
        let (start, end) = (offset + RECORD_HEADER_LEN as u64, offset + header.record_len());
        let is_known = offset < search.long_checked || end > self.len;
        let is_intact =
            !is_known && self.payload_crc(start, end - start, 0)? == header.stored_payload_crc(&head);
        let is_stale = header.epoch < search.epoch;
        search.epoch = search.epoch.max(header.epoch);
        search.offset = if is_intact { end } else { start };
        search.end = search.end.max(search.offset);
        if !is_known && !is_stale {
            search.due = Some(header.due_behind(offset));
        }
        if !is_intact {
            search.long_checked = search.long_checked.max(end);
        }
        Ok(Some(LaterRecord { header, offset, is_whole: is_intact && !is_stale }))
    }
}

/// Offsets compared with their tags before the result is tested: enough for wide instructions (arbitrary).
const BLOCK: usize = 64;

/// The first offset in `bytes` that holds the tag of its place; `tag` is that of the first byte.
fn first_tag(bytes: &[u8], mut tag: u32) -> Option<usize> {
    let mut at = 0;
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<{ BLOCK + 3 }>()) {
        if holds_tag(block, tag) {
            break;
        }
        at += BLOCK;
        tag = tag.wrapping_add(TAG_STEP.wrapping_mul(64));
    }
    let words = bytes[at..].windows(4).map(word);
    let mut tags = std::iter::successors(Some(tag), |tag| Some(tag.wrapping_add(TAG_STEP)));
    words.zip(&mut tags).position(|(word, tag)| word == tag).map(|found| at + found)
}

/// Whether any of the first [`BLOCK`] offsets holds its tag. Each of four passes compares words that do not overlap, which
/// the compiler turns into wide instructions. The time does not depend on the bytes.
fn holds_tag(block: &[u8; BLOCK + 3], tag: u32) -> bool {
    let mut found = false;
    let mut first = tag;
    for phase in 0..4 {
        let mut due = first;
        for bytes in block[phase..phase + BLOCK].chunks_exact(4) {
            found |= word(bytes) == due;
            due = due.wrapping_add(TAG_STEP.wrapping_mul(4));
        }
        first = first.wrapping_add(TAG_STEP);
    }
    found
}

/// The index of the last byte that is not zero.
fn last_nonzero(bytes: &[u8]) -> Option<usize> {
    let is_blank = |chunk: &[u8]| chunk.iter().fold(0, |all, byte| all | byte) == 0;
    let mut end = bytes.len();
    for chunk in bytes.rchunks(4 << 10).take_while(|chunk| is_blank(chunk)) {
        end -= chunk.len();
    }
    bytes[..end].iter().rposition(|&byte| byte != 0)
}

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests;
