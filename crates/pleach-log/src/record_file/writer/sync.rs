//! Durability of a record file: fences after failed appends, syncs, and the markers and stamps that follow a sync.

use std::io;

use pleach_env::{Result, Site};

use super::super::claims::Claims;
use super::super::record_header::{EPOCH_MAX, RECORD_HEADER_LEN, RecordHeader, RecordKind, SeqNo};
use super::super::stamp::Stamp;
use super::{Fence, RecordWriter};

/// Zeros that are written at a time: a sync then waits 0.2 ms longer for the device, once in so many bytes.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// Records that are synced together in fewer bytes are synced a few at a time (arbitrary). Zeros are written when less is left
/// of them.
const FILL_MARGIN: u64 = 32 << 10;

impl RecordWriter {
    /// Starts the next epoch, and tries at once to write its fence over the failed append.
    pub(super) fn raise_fence(&mut self) {
        debug_assert!(self.epoch < EPOCH_MAX, "appends stop before the last epoch");
        self.epoch += 1;
        self.position.claims = Claims::default();
        self.fence = Fence::Write;
        // Best effort: the next append or rotation tries again and returns the error.
        let _ = self.write_fence();
    }

    fn write_fence(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.marker(), self.offset())?;
        self.fence = Fence::Sync;
        Ok(())
    }

    /// Makes the fence of a failed append durable, if there is one. Call it before anything else is written to this file or
    /// to one that continues it, and before anything that the failed append would contradict if recovery found it.
    pub fn settle_fence(&mut self) -> Result<()> {
        if self.fence == Fence::None {
            return Ok(());
        }
        if self.fence == Fence::Write {
            self.write_fence().map_err(|e| self.io_error("overwrite a failed append to", e))?;
        }
        self.sync_file("log.fence_sync")?;
        self.fence = Fence::None;
        self.position.offset += RECORD_HEADER_LEN as u64;
        Ok(())
    }

    /// Makes all appended records durable, then writes a marker that says so. Does nothing if all of them are durable.
    pub fn sync(&mut self, site: Site) -> Result<()> {
        self.check_writable()?;
        if !self.needs_sync() {
            return Ok(());
        }
        self.sync_file(site)?;
        self.note_durable_bytes(self.offset());
        self.note_durable_seq(self.next_seq() - 1);
        self.write_marker();
        if let Some(stamp) = self.due_stamp() {
            self.write_stamp(stamp);
        }
        Ok(())
    }

    /// Writes zeros behind the records, if these are synced a few at a time. The first write to reserved space makes a sync
    /// commit a transaction of the file system too, which takes longer than the records, and writes more. Best effort: zeros are
    /// what the space holds.
    pub(crate) fn fill_ahead(&mut self) {
        let offset = self.offset();
        let is_needed = self.filled < offset + FILL_MARGIN && offset < self.durable_len + FILL_MARGIN;
        if !is_needed || !self.is_mapped || self.poisoned || self.fence != Fence::None {
            return;
        }
        let start = self.filled.max(offset);
        let end = self.reserved.min(start + ZEROS.len() as u64);
        let Some(zeros) = end.checked_sub(start).and_then(|len| ZEROS.get(..usize::try_from(len).ok()?))
        else {
            return;
        };
        if self.file.write_all_at(zeros, start).is_ok() {
            self.filled = end;
        }
    }

    /// The stamp to write after a sync that begins now. `None` if the file's stamp says as much.
    pub(crate) fn due_stamp(&self) -> Option<Stamp> {
        (self.reserved > self.stamped_len).then_some(Stamp { durable_len: self.reserved })
    }

    /// Writes the stamp. Best effort: the next sync tries again. Requires: a sync that began after [`RecordWriter::due_stamp`]
    /// has succeeded.
    pub(crate) fn write_stamp(&mut self, stamp: Stamp) {
        if stamp.write(&*self.file, self.id).is_ok() {
            self.stamped_len = stamp.durable_len;
        }
    }

    fn sync_file(&mut self, site: Site) -> Result<()> {
        self.file.sync(site).map_err(|e| {
            self.poisoned = true;
            self.io_error("sync", e)
        })
    }

    /// Writes a marker that tells readers what is durable. Best effort: without it, damage of the newest durable
    /// record looks like a torn tail.
    pub(crate) fn write_marker(&mut self) {
        if self.poisoned || self.fence != Fence::None || self.is_exhausted() {
            return;
        }
        match self.file.write_all_at(&self.marker(), self.offset()) {
            Ok(()) => self.position.offset += RECORD_HEADER_LEN as u64,
            Err(_) => self.raise_fence(),
        }
    }

    fn marker(&self) -> [u8; RECORD_HEADER_LEN] {
        let header = RecordHeader {
            kind: RecordKind::Marker,
            epoch: self.epoch,
            payload_len: 0,
            first_seq: self.next_seq(),
            count: 0,
            durable_lag: RecordHeader::lag(self.next_seq(), self.durable_seq),
        };
        header.encode(self.id, self.offset(), &[])
    }

    /// Whether a sync would make any record durable.
    pub(crate) fn needs_sync(&self) -> bool {
        self.durable_len < self.data_end
    }

    pub(crate) fn note_durable_bytes(&mut self, len: u64) {
        self.durable_len = self.durable_len.max(len);
    }

    pub(crate) fn note_durable_seq(&mut self, seq: SeqNo) {
        self.durable_seq = self.durable_seq.max(seq);
    }

    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }
}
