//! The replay of a damaged log: writes the records that were chosen, in the order of their numbers.
//!
//! The replay stops at sequence numbers that the ages of the SSTs give, and continues later. It reads each chain once.

use std::collections::HashMap;
use std::path::Path;

use pleach_env::{Error, FileId, Result};
use pleach_log::{LOG_SEGMENT, Record, SalvageReader, SeqNo, segment_path};
use pleach_table::ValueKind;

use super::Salvage;
use super::log::ChainPart;
use super::report::missing;
use super::sink::Owner;
use crate::damage::DamagedPlace;
use crate::operations::Operations;

/// The replay.
pub(super) struct Replay {
    parts: Vec<ChainPart>,
    /// The last part of each chain.
    last_of_chain: HashMap<(FileId, u64), usize>,
    /// The first part that is not replayed to its end.
    current: usize,
    /// Readers of the chains with parts that are not replayed: one, and one more for each segment whose numbers another
    /// segment interrupts.
    pub(super) readers: HashMap<(FileId, u64), SalvageReader>,
}

impl Replay {
    pub(super) fn new(parts: Vec<ChainPart>) -> Self {
        let last_of_chain =
            parts.iter().enumerate().map(|(i, part)| ((part.segment, part.start.offset), i)).collect();
        Self { parts, last_of_chain, current: 0, readers: HashMap::new() }
    }

    /// Replays the records up to the number `last`.
    pub(super) fn replay(&mut self, last: SeqNo, salvage: &mut Salvage<'_>) -> Result<()> {
        while let Some(&part) = self.parts.get(self.current).filter(|part| part.first_seq <= last) {
            let chain = (part.segment, part.start.offset);
            let path = segment_path(salvage.dir, part.segment);
            let reader = match self.readers.remove(&chain) {
                Some(reader) => Ok(reader),
                None => SalvageReader::open(&**salvage.env, &path, &LOG_SEGMENT, part.segment, part.start),
            };
            match reader {
                Ok(mut reader) => {
                    let is_at_end = salvage.replay_part(&path, part, &mut reader, last)?;
                    if !is_at_end || self.last_of_chain[&chain] > self.current {
                        self.readers.insert(chain, reader);
                    }
                    if !is_at_end {
                        return Ok(());
                    }
                }
                Err(error) => salvage.report.damage(DamagedPlace::of(&path, error)),
            }
            self.current += 1;
        }
        Ok(())
    }
}

impl Salvage<'_> {
    /// Replays the records of a part up to the number `last`; returns whether the part has no further ones.
    fn replay_part(
        &mut self,
        path: &Path,
        part: ChainPart,
        reader: &mut SalvageReader,
        last: SeqNo,
    ) -> Result<bool> {
        let ChainPart { first_seq, end_seq, .. } = part;
        let mut next = first_seq;
        while let Some(record) = reader.record() {
            let record_end = record.first_seq + u64::from(record.count);
            if record.first_seq >= end_seq {
                return Ok(true);
            }
            if record.first_seq > last || self.report.stopped {
                return Ok(false);
            }
            if record.first_seq < first_seq && record_end > first_seq || record_end > end_seq {
                self.skip_cut(path, part, &record);
            } else if record_end > first_seq {
                self.replay_record(path, &record)?;
                self.report.advance(0);
            }
            next = next.max(record_end);
            if record_end > end_seq {
                // The rest of it belongs to a later part of another segment.
                return Ok(true);
            }
            reader.advance();
        }
        if next < end_seq {
            let message = format!("the writes {next} to {} were found once and not again", end_seq - 1);
            let place = missing(path, &message);
            self.report.damage(DamagedPlace { entries: Some(end_seq - next), ..place });
        }
        Ok(true)
    }

    /// Reports a batch of which a newer segment, or an SST, has a part: it cannot be applied as a whole.
    fn skip_cut(&mut self, path: &Path, part: ChainPart, record: &Record<'_>) {
        let record_end = record.first_seq + u64::from(record.count);
        let (from, to) = (record.first_seq.max(part.first_seq), record_end.min(part.end_seq));
        let message = format!(
            "the batch of the writes {} to {} begins or ends inside a batch of a newer segment; its writes {from} to {} were \
             passed over",
            record.first_seq,
            record_end - 1,
            to - 1
        );
        let error = Error::corruption(path, record.offset, message);
        self.report.damage(DamagedPlace { entries: Some(to - from), ..DamagedPlace::of(path, error) });
    }

    /// Writes the operations of a batch: all of them, or none if one is malformed.
    fn replay_record(&mut self, path: &Path, record: &Record<'_>) -> Result<()> {
        self.report.report.log_records += 1;
        let mut count = 0u64;
        let decoded = Operations::decode_raw(record.payload, &mut |_| count += 1);
        let found = decoded.map_err(str::to_owned).and_then(|()| {
            let is_right = count == u64::from(record.count);
            is_right
                .then_some(())
                .ok_or_else(|| format!("it says that it has {} operations, and has {count}", record.count))
        });
        if let Err(message) = found {
            let message =
                format!("the batch has a valid checksum, but {message}; none of its writes was applied");
            let error = Error::corruption(path, record.offset, message);
            let entries = Some(u64::from(record.count));
            self.report.damage(DamagedPlace { entries, ..DamagedPlace::of(path, error) });
            return Ok(());
        }
        let mut result = Ok(());
        let decoded = Operations::decode_raw(record.payload, &mut |op| {
            if result.is_err() {
                return;
            }
            if self.catalog.is_dropped(op.partition) {
                self.report.report.dropped_entries += 1;
                return;
            }
            self.report.report.entries += 1;
            let value = (op.kind != ValueKind::Tombstone).then_some(op.value);
            result = self.sink.write(Owner::Partition(op.partition), op.user_key, value);
        });
        debug_assert!(decoded.is_ok(), "the same bytes were decoded before");
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pleach_env::{Env, SimEnv};
    use pleach_log::{Append, LogWriter, ManifestHint, RecordBuf};

    use super::*;
    use crate::{Options, repair};

    /// Bytes of a batch with a valid checksum that only a bug of a writer makes: a put, and then an unknown kind, or nothing.
    #[test]
    fn of_a_malformed_batch_nothing_is_applied() {
        nothing_is_applied_of(b"\x01\x00\x04\x01halfx\x09");
        nothing_is_applied_of(b"\x01\x00\x04\x01halfx");
    }

    fn nothing_is_applied_of(batch_of_two: &[u8]) {
        let env = SimEnv::new(1);
        let options = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20);
        let db = options().open("/store").unwrap();
        db.default_partition().put("whole", "x").unwrap();
        let last = db.stats().last_sequence_number;
        db.close().unwrap();
        let (dir, segment) = (Path::new("/store"), FileId(1000));
        let mut log = LogWriter::create(
            Arc::<SimEnv>::clone(&env) as Arc<dyn Env>,
            dir,
            segment,
            ManifestHint::NONE,
            1 << 20,
            last,
        )
        .unwrap();
        let mut batch = RecordBuf::new();
        batch.bytes_mut().extend_from_slice(batch_of_two);
        log.append([Append { record: &mut batch, first_seq: last + 1, count: 2 }]).unwrap();
        drop(log);
        let report = repair("/store", "/new", options(), &mut |_, _| true).unwrap();
        let told: Vec<_> =
            report.damage.iter().filter(|place| place.path == segment_path(dir, segment)).collect();
        assert_eq!(told.len(), 1, "{report:?}");
        assert_eq!(told[0].entries, Some(2));
        let db = options().open("/new").unwrap();
        assert_eq!(db.default_partition().get("whole").unwrap().as_deref(), Some(&b"x"[..]));
        assert_eq!(db.default_partition().get("half").unwrap(), None);
    }
}
