//! The note in an SST: its partition, stage and age. Repair reads it when there is no manifest.
//!
//! # On disk
//! Layout: docs/format/sst.md, "Salvage".

use pleach_log::SeqNo;

use crate::keys::PartitionId;

/// Stands for the partition of a file that sections share.
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
    use std::sync::Arc;

    use pleach_env::{Env, SimEnv};
    use pleach_table::SalvageSst;

    use super::*;
    use crate::file_names::sst_path;
    use crate::{Db, Options};

    /// The newest sequence numbers of the default partition's runs, and those in the notes of their SSTs.
    fn newest_seqs(env: &Arc<dyn Env>, db: &Db) -> (Vec<SeqNo>, Vec<SeqNo>) {
        let state = db.inner().version_set.state.load_full();
        let runs = &state.version.tree(db.default_partition().id()).unwrap().runs;
        let files = runs.iter().flat_map(|run| &run.files).map(|file| file.file.id);
        let note_of =
            |id| SalvageSst::open(env, &sst_path(&db.inner().ctx.dir, id), id).unwrap().note().unwrap();
        let notes = files.map(|id| Origin::decode(&note_of(id).unwrap()).unwrap().newest_seq);
        (runs.iter().map(|run| run.newest_seq).collect(), notes.collect())
    }

    #[test]
    fn flushes_and_merges_note_the_newest_write_that_a_run_may_hold() {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = Arc::<SimEnv>::clone(&sim) as _;
        let db = Options::new().env(Arc::clone(&env)).open("store").unwrap();
        let keys = db.default_partition();
        let mut expected = Vec::new();
        for round in 1..=3u8 {
            (0..round).for_each(|key| keys.put([key], [round]).unwrap());
            db.flush().unwrap();
            // Newest first.
            expected.insert(0, db.last_sequence_number());
            assert_eq!(newest_seqs(&env, &db), (expected.clone(), expected.clone()), "round {round}");
        }
        db.compact().unwrap();
        let newest = vec![db.last_sequence_number()];
        assert_eq!(newest_seqs(&env, &db), (newest.clone(), newest));
    }

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
