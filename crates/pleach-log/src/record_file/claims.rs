//! Claims: the records of a record file that state which records are durable.

use super::record_header::{RecordHeader, RecordKind, SeqNo};

/// Decides which records state the durable sequence number: the long ones. The others can be short.
///
/// A record is long if it is the first of the file, the first after a fence, or the first after the durable number changed.
/// After it the distance to the next long record doubles, from [`CLAIM_DISTANCE_MIN`] to [`CLAIM_DISTANCE_MAX`] bytes. So
/// damage hides the newest durable record only if it covers all that was written since, or that distance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    /// The statement of the last long record, and the place of the first one with the same statement.
    stated: Option<(SeqNo, u64)>,
    /// Where the last long record is.
    last_at: u64,
}

/// Bytes between long records, at least: a sector.
const CLAIM_DISTANCE_MIN: u64 = 512;

/// And at most.
const CLAIM_DISTANCE_MAX: u64 = 16 << 10;

impl Claims {
    /// Makes the record at `offset` a short one if it can be; the state after it.
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
