//! The note in an SST: its partition, stage and age. Repair reads it if there is no manifest.
//!
//! # On disk
//! Layout: docs/format/sst.md, "Salvage".

use pleach_log::SeqNo;

use crate::keys::PartitionId;

/// Stands in the place of a partition in a file that sections share.
const SHARED: u32 = u32::MAX;

/// Partition, stage and age of an SST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// `None` for a file that sections share: its keys begin with their partitions.
    pub(crate) partition: Option<PartitionId>,
    /// The stage it was written for.
    pub(crate) stage: u8,
    /// The largest sequence number whose write may be in it.
    pub(crate) newest_seq: SeqNo,
}

impl Origin {
    pub(crate) fn encode(self) -> [u8; 13] {
        let mut note = [0; 13];
        note[..4].copy_from_slice(&self.partition.map_or(SHARED, PartitionId::get).to_le_bytes());
        note[4] = self.stage;
        note[5..].copy_from_slice(&self.newest_seq.to_le_bytes());
        note
    }

    /// Decodes a note; `None` when it was not written by [`Origin::encode`].
    pub(crate) fn decode(note: &[u8]) -> Option<Self> {
        let (partition, rest) = note.split_first_chunk::<4>()?;
        let (stage, seq) = rest.split_first()?;
        let newest_seq = u64::from_le_bytes(seq.try_into().ok()?);
        let partition = match u32::from_le_bytes(*partition) {
            SHARED => None,
            number => Some(PartitionId(number)),
        };
        Some(Self { partition, stage: *stage, newest_seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back() {
        for partition in [None, Some(PartitionId(0)), Some(PartitionId(77))] {
            let origin = Origin { partition, stage: 3, newest_seq: 1 << 50 };
            assert_eq!(Origin::decode(&origin.encode()), Some(origin));
        }
        assert_eq!(Origin::decode(&[0; 12]), None);
        assert_eq!(Origin::decode(&[0; 14]), None);
    }
}
