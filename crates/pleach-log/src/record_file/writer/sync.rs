//! Durability of a record file: fences after failed appends, syncs, and the markers and stamps that follow a sync.

use std::io;

use pleach_env::{Result, Site, failpoint};

use super::super::claims::Claims;
use super::super::record_header::{EPOCH_MAX, RECORD_HEADER_LEN, RecordHeader, RecordKind, SeqNo};
use super::super::stamp::Stamp;
use super::{Fence, RecordWriter};

/// Zeros that are written at a time: a sync then waits 0.2 ms longer for the device, once in so many bytes.
const FILL_LEN: u64 = 256 << 10;

/// Syncs of fewer bytes are small (arbitrary). Zeros are written when less is left of them, and never fewer.
const SMALL_SYNC: u64 = 32 << 10;

/// Zeros are written from this small sync of a file on (arbitrary). An open and a close make one each.
const FILLED_FROM: u32 = 5;

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

    /// Makes sure that recovery does not find the failed append, if there is one. The fence cannot be written on a full disk that
    /// does not overwrite in place. It is not needed then if the file shows that not even the first header was written.
    ///
    /// After an error recovery may find records of a failed group: those in front of the place where its write broke off.
    pub(crate) fn rule_out_failed_append(&mut self) -> Result<()> {
        match self.settle_fence() {
            Err(e) if e.is_shortage() && !self.poisoned && self.ends_at_position() => Ok(()),
            settled => settled,
        }
    }

    /// Whether the file has zeros at the position, which end every chain of records.
    fn ends_at_position(&self) -> bool {
        let mut header = [0xff; RECORD_HEADER_LEN];
        self.file.read_exact_at(&mut header, self.offset()).is_ok() && header == [0; RECORD_HEADER_LEN]
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

    /// Writes zeros behind the records, if these are synced a few at a time. Call it in front of a sync. The first write to
    /// reserved space makes a sync commit a transaction of the file system too, which takes longer than the records.
    ///
    /// Best effort. The space holds zeros, or behind a fence, which is durable, what is left of a failed append.
    pub(crate) fn fill_ahead(&mut self) {
        let offset = self.offset();
        if offset >= self.durable_len + SMALL_SYNC {
            self.small_syncs = 0;
            return;
        }
        self.small_syncs = self.small_syncs.saturating_add(1);
        let start = self.filled.max(offset);
        let end = self.reserved.min(start + FILL_LEN);
        let is_due =
            self.small_syncs >= FILLED_FROM && self.filled < offset + SMALL_SYNC && start + SMALL_SYNC <= end;
        if !is_due || !self.is_mapped || self.poisoned || self.fence != Fence::None {
            return;
        }
        let zeros = vec![0; usize::try_from(end - start).expect("at most FILL_LEN")];
        if self.file.write_all_at(&zeros, start).is_ok() {
            failpoint::report("log.filled", end - start);
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
