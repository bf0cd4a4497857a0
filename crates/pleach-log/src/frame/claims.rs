//! Claims of what is durable: which records of a framed file make one.

use super::record::{RecordHeader, RecordKind, SeqNo};

/// Which records say what was durable: the long ones. The others can be short.
///
/// The first record of a file is long, the first after each change of what is durable, and the first after a fence.
/// From there on another one follows at twice the distance each time, from a sector on and at the latest after
/// [`CLAIM_DISTANCE_MAX`] bytes: so damage can take the newest durable record together with all that tells of it only where
/// it is as large as what was written since, or as that distance.
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
