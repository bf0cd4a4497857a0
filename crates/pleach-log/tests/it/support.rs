//! Tools of the tests: a machine, files as bytes, and logs of known content.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, FileId, Result, SimEnv};
use pleach_log::{Append, LogWriter, ManifestHint, RecordBuf, Recovery, SeqNo, recover, segment_path};

/// A simulated machine with an empty directory.
pub(crate) struct Machine {
    pub(crate) sim: Arc<SimEnv>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: PathBuf,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::seeded(1)
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        let sim = SimEnv::new(seed);
        let dir = PathBuf::from("/db");
        sim.create_dir_all(&dir).unwrap();
        Self { env: Arc::clone(&sim) as Arc<dyn Env>, sim, dir }
    }

    pub(crate) fn log(&self, id: u64, segment_len: u64, durable_seq: SeqNo) -> LogWriter {
        LogWriter::create(Arc::clone(&self.env), &self.dir, FileId(id), HINT, segment_len, durable_seq)
            .unwrap()
    }

    pub(crate) fn read(&self, id: u64) -> Vec<u8> {
        self.sim.read_file(&segment_path(&self.dir, FileId(id))).unwrap()
    }

    pub(crate) fn write(&self, id: u64, bytes: &[u8]) {
        self.sim.write_file(&segment_path(&self.dir, FileId(id)), bytes);
    }

    /// Recovers from the segments, and returns what was visited besides the result.
    pub(crate) fn recover(&self, segments: &[u64], next_seq: SeqNo) -> (Result<Recovery>, Vec<Logged>) {
        let ids: Vec<_> = segments.iter().map(|&id| FileId(id)).collect();
        recover_logged(&self.env, &self.dir, &ids, next_seq)
    }
}

/// A hint that is easy to see in bytes.
pub(crate) const HINT: ManifestHint = ManifestHint { file: FileId(2), len: 4096 };

/// A record as it was appended or visited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) first_seq: SeqNo,
    pub(crate) count: u32,
    pub(crate) payload: Vec<u8>,
}

impl Logged {
    pub(crate) fn next_seq(&self) -> SeqNo {
        self.first_seq + u64::from(self.count)
    }
}

pub(crate) fn recover_logged(
    env: &Arc<dyn Env>,
    dir: &Path,
    segments: &[FileId],
    next_seq: SeqNo,
) -> (Result<Recovery>, Vec<Logged>) {
    let mut visited = Vec::new();
    let result = recover(env, dir, segments, next_seq, &mut |record| {
        visited.push(Logged {
            first_seq: record.first_seq,
            count: record.count,
            payload: record.payload.to_vec(),
        });
        Ok(())
    });
    (result, visited)
}

pub(crate) fn record_of(payload: &[u8]) -> RecordBuf {
    let mut record = RecordBuf::new();
    record.bytes_mut().extend_from_slice(payload);
    record
}

/// A record of `count` operations whose payload depends on its number.
pub(crate) fn logged(first_seq: SeqNo, count: u32, payload_len: usize) -> Logged {
    let payload = (0..payload_len as u64).map(|i| (first_seq * 31 + i * 7 + 1).to_le_bytes()[0]).collect();
    Logged { first_seq, count, payload }
}

/// Appends the records as one group.
pub(crate) fn append(log: &mut LogWriter, group: &[Logged]) -> Result<()> {
    let mut buffers: Vec<_> = group.iter().map(|logged| record_of(&logged.payload)).collect();
    let appends = buffers.iter_mut().zip(group).map(|(record, logged)| Append {
        record,
        first_seq: logged.first_seq,
        count: logged.count,
    });
    log.append(appends)
}

pub(crate) fn rotate(log: &mut LogWriter) {
    log.rotate(FileId(log.segment_id().0 + 1), HINT).unwrap();
}
