//! Appends to a record file, one write call per group.

use std::io;

use pleach_env::{Error, ErrorKind, Result, SMALL_WRITES_STEP, failpoint};

use super::super::buffer::Append;
use super::super::record_header::{EPOCH_MAX, RECORD_HEADER_LEN, RecordHeader, SeqNo};
use super::{Position, RecordWriter};

/// Memory kept for the next group: 1 MiB, the limit of a commit group. A larger group frees the excess.
const GROUP_KEPT: usize = 1 << 20;

impl RecordWriter {
    /// Appends the records in one write call, or a single record with regions in several. Readers find all of them or none.
    ///
    /// After an error the position is unchanged and the caller may try again. If the machine crashes before the next append
    /// succeeds, recovery may or may not find the failed records.
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = Append<'a>>) -> Result<()> {
        self.check_writable()?;
        let mut records = records.into_iter();
        let Some(first) = records.next() else { return Ok(()) };
        self.make_ready()?;
        match records.next() {
            None if first.record.is_contiguous() => self.append_one(first),
            None => self.append_pieces(first),
            Some(second) => self.append_group([first, second].into_iter().chain(records)),
        }
    }

    /// Appends one record whose payload is in memory of the caller's: a small one with one call, a large one with one call
    /// for the header and one for the payload. A crash between the two leaves a torn record. Errors are those of
    /// [`RecordWriter::append`]. Returns where the payload begins in the file.
    pub(crate) fn append_payload(
        &mut self,
        payload: &[u8],
        numbers: (SeqNo, u32),
        large_len: usize,
    ) -> Result<u64> {
        self.check_writable()?;
        self.make_ready()?;
        let mut end = self.position;
        let header = self.next_header(&mut end, payload.len(), numbers)?;
        let payload_offset = self.offset() + header.len() as u64;
        let encoded = header.encode(self.id, self.offset(), payload);
        let encoded = &encoded[RECORD_HEADER_LEN - header.len()..];
        self.reserve(end)?;
        let written = if payload.len() >= large_len.min(GROUP_KEPT + 1) {
            self.write_pieces([encoded, payload])
        } else {
            self.group.extend_from_slice(encoded);
            self.group.extend_from_slice(payload);
            let written = self.file.write_all_at(&self.group, self.offset());
            self.group.clear();
            written
        };
        self.finish_append(written, end).map(|()| payload_offset)
    }

    /// Settles the fence of a failed append; an error when there were too many.
    fn make_ready(&mut self) -> Result<()> {
        self.settle_fence()?;
        if self.is_exhausted() {
            let message =
                format!("{EPOCH_MAX} appends to {} {} failed; it takes no more", self.name, self.id);
            return Err(Error::new(ErrorKind::Io, message).at_path(&self.path));
        }
        Ok(())
    }

    /// Makes the header of the record that goes to `end`, and moves `end` behind that record.
    fn next_header(
        &self,
        end: &mut Position,
        payload_len: usize,
        numbers: (SeqNo, u32),
    ) -> Result<RecordHeader> {
        let mut header = RecordHeader::of(payload_len, numbers, end.next_seq, self.durable_seq, self.epoch)?;
        end.claims = end.claims.choose(&mut header, end.offset, self.durable_seq);
        end.offset += header.record_len();
        end.next_seq = header.next_seq();
        Ok(header)
    }

    fn append_one(&mut self, Append { record, first_seq, count }: Append<'_>) -> Result<()> {
        let mut end = self.position;
        let header = self.next_header(&mut end, record.payload_len(), (first_seq, count))?;
        let bytes = record.seal(&header, self.id, self.offset());
        self.reserve(end)?;
        let written = self.file.write_all_at(bytes, self.offset());
        self.finish_append(written, end)
    }

    /// Appends a record with one call per piece. If a call fails, the file ends in a torn record.
    #[cold]
    fn append_pieces(&mut self, Append { record, first_seq, count }: Append<'_>) -> Result<()> {
        let mut end = self.position;
        let header = self.next_header(&mut end, record.payload_len(), (first_seq, count))?;
        self.reserve(end)?;
        failpoint::report("log.pieces", header.record_len());
        let written = self.write_pieces(record.seal_pieces(&header, self.id, self.offset()));
        self.finish_append(written, end)
    }

    /// Writes the pieces one after the other, from the position on.
    fn write_pieces<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut at = self.offset();
        for piece in pieces {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn append_group<'a>(&mut self, records: impl Iterator<Item = Append<'a>>) -> Result<()> {
        let mut group = std::mem::take(&mut self.group);
        let result = self.build_group(&mut group, records).and_then(|end| {
            self.reserve(end)?;
            let written = self.file.write_all_at(&group, self.offset());
            self.finish_append(written, end)
        });
        group.clear();
        group.shrink_to(GROUP_KEPT);
        self.group = group;
        result
    }

    fn build_group<'a>(
        &self,
        group: &mut Vec<u8>,
        records: impl Iterator<Item = Append<'a>>,
    ) -> Result<Position> {
        let mut end = self.position;
        for Append { record, first_seq, count } in records {
            let offset = end.offset;
            let header = self.next_header(&mut end, record.payload_len(), (first_seq, count))?;
            if record.is_contiguous() {
                group.extend_from_slice(record.seal(&header, self.id, offset));
            } else {
                record.seal_pieces(&header, self.id, offset).for_each(|p| group.extend_from_slice(p));
            }
        }
        Ok(end)
    }

    /// Reserves the next step of space if records up to `end` exceed what is reserved. After an error nothing was written,
    /// so no fence is needed.
    #[inline]
    fn reserve(&mut self, end: Position) -> Result<()> {
        let Some(step) = self.preallocate else { return Ok(()) };
        if end.offset > self.reserved {
            let next = end.offset.max(self.reserved + step);
            self.file.allocate(next).map_err(|e| self.io_error("reserve space for", e))?;
            self.is_mapped = self.file.expect_small_writes(self.reserved..next);
            self.reserved = next;
        }
        Ok(())
    }

    fn finish_append(&mut self, written: io::Result<()>, end: Position) -> Result<()> {
        match written {
            Ok(()) => {
                let step = |offset: u64| offset / SMALL_WRITES_STEP;
                self.is_step_due |= self.is_mapped && step(self.offset()) != step(end.offset);
                self.position = end;
                self.data_end = end.offset;
                Ok(())
            }
            Err(e) => {
                self.raise_fence();
                Err(self.io_error("append to", e))
            }
        }
    }
}
