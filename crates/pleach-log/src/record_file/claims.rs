//! Claims: which records of a record file state the durable sequence number.

use super::record_header::{RecordHeader, RecordKind, SeqNo};

/// Decides which records are long, and so state the durable sequence number.
///
/// A record is long if it is the first of the file, the first after a fence, or the first after the durable number changed.
/// From there on the distance to the next long record grows with the bytes written since, between [`CLAIM_DISTANCE_MIN`] and
/// [`CLAIM_DISTANCE_MAX`]. So damage hides the newest durable record only if it covers everything written after it, or that
/// distance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    /// The durable number in the last long record, and the offset of the first record that states the same number.
    stated: Option<(SeqNo, u64)>,
    /// Offset of the last long record.
    last_at: u64,
}

/// Bytes between long records, at least: a sector.
const CLAIM_DISTANCE_MIN: u64 = 512;

/// Bytes between long records, at most: arbitrary.
const CLAIM_DISTANCE_MAX: u64 = 16 << 10;

impl Claims {
    /// Makes the record at `offset` a short one if it can be. Returns the state after it.
    pub(super) fn choose(self, header: &mut RecordHeader, offset: u64, durable_seq: SeqNo) -> Self {
        let (is_stated, since_change) = match self.stated {
            Some((seq, at)) if seq == durable_seq => (true, offset - at),
            _ => (false, 0),
        };
        let distance = (since_change / 2).clamp(CLAIM_DISTANCE_MIN, CLAIM_DISTANCE_MAX);
        if is_stated && header.can_be_short() && offset - self.last_at < distance {
            header.kind = RecordKind::Short;
            return self;
        }
        Self { stated: Some((durable_seq, offset - since_change)), last_at: offset }
    }
}
