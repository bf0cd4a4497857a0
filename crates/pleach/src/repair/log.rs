//! The log of a damaged store: which records there are, and in what order they are applied.
//!
//! A segment may repeat records of earlier ones, and one that recovery has left behind may hold numbers that were given
//! again later. So the log is read twice: first for its chains of records, of which the newest segment that has a number
//! wins, and then in the order of the numbers. The second pass stops and goes on as the SSTs demand, and reads each chain
//! once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, FileId, Result};
use pleach_log::{LOG_SEGMENT, Record, SalvageReader, Salvaged, SeqNo, salvage_records, segment_path};
use pleach_table::ValueKind;

use super::manifest::{Files, Known};
use super::report::{Reporter, missing};
use super::sink::{Owner, Sink};
use crate::damage::DamagedPlace;
use crate::operations::Operations;

/// A chain of records without a gap in their numbers, and the part of the numbers that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    segment: FileId,
    /// Where the chain begins.
    offset: u64,
    first_seq: SeqNo,
    /// The number behind the last one.
    end_seq: SeqNo,
}

/// Reads the segments that matter and returns the stretches in the order of their numbers.
pub(super) fn index(
    env: &Arc<dyn Env>,
    dir: &Path,
    files: &Files,
    known: &Known,
    report: &mut Reporter<'_>,
) -> Vec<Stretch> {
    let floor = if known.is_exact { known.version.log_floor } else { FileId(0) };
    if floor != FileId(0) && !files.segments.contains_key(&floor) {
        report.damage(missing(
            &segment_path(dir, floor),
            "the manifest names this log segment, but it is missing",
        ));
    }
    let mut chains = Vec::new();
    for (&id, &len) in &files.segments {
        let path = segment_path(dir, id);
        if id < floor {
            report.report.ignored.push(path);
        } else if let Err(error) = read_segment(env, &path, id, &mut chains, report) {
            report.damage(DamagedPlace::of(&path, error));
        }
        if !report.end_file(len) {
            return Vec::new();
        }
    }
    let due = if known.is_exact { known.version.flushed_seq + 1 } else { 0 };
    let stretches = choose(chains, due);
    tell_gaps(dir, &stretches, due, known, report);
    stretches
}

/// Adds the chains of a segment.
fn read_segment(
    env: &Arc<dyn Env>,
    path: &Path,
    id: FileId,
    chains: &mut Vec<Stretch>,
    report: &mut Reporter<'_>,
) -> Result<()> {
    let first = chains.len();
    salvage_records(env, path, &LOG_SEGMENT, id, &mut |found| match found {
        Salvaged::Record(Record { first_seq, count, offset, .. }) => {
            let end_seq = first_seq + u64::from(count);
            match chains[first..].last_mut() {
                Some(chain) if chain.end_seq == first_seq => chain.end_seq = end_seq,
                _ => chains.push(Stretch { segment: id, offset, first_seq, end_seq }),
            }
            Ok(report.advance(offset))
        }
        Salvaged::Damage { offset, len, error } => {
            let place = DamagedPlace::of(path, error);
            report.damage(DamagedPlace { offset: Some(offset), len: (len > 0).then_some(len), ..place });
            Ok(true)
        }
    })
    .map(|_| ())
}

/// The parts of `chains` from `due` on that count, in the order of their numbers: of each number the one in the newest
/// segment.
fn choose(mut chains: Vec<Stretch>, due: SeqNo) -> Vec<Stretch> {
    chains.sort_by_key(|chain| (std::cmp::Reverse(chain.segment), chain.first_seq));
    // By first number; they do not overlap.
    let mut chosen: BTreeMap<SeqNo, Stretch> = BTreeMap::new();
    for chain in chains {
        let mut from = chain.first_seq.max(due);
        if let Some((_, before)) = chosen.range(..=from).next_back() {
            from = from.max(before.end_seq);
        }
        let mut free = Vec::new();
        if from < chain.end_seq {
            for taken in chosen.range(from..chain.end_seq).map(|(_, taken)| taken) {
                free.push((from, taken.first_seq));
                from = taken.end_seq;
            }
            free.push((from, chain.end_seq));
        }
        free.retain(|(from, to)| from < to);
        let free = free.into_iter().map(|(first_seq, end_seq)| Stretch { first_seq, end_seq, ..chain });
        chosen.extend(free.map(|stretch| (stretch.first_seq, stretch)));
    }
    chosen.into_values().collect()
}

fn tell_gaps(dir: &Path, stretches: &[Stretch], due: SeqNo, known: &Known, report: &mut Reporter<'_>) {
    let mut next = if known.is_exact { due } else { stretches.first().map_or(0, |s| s.first_seq) };
    let mut gap = |path: &Path, from: SeqNo, to: SeqNo| {
        let message = format!("the writes {from} to {} are missing", to - 1);
        let error = Error::new(ErrorKind::Corruption, message).at_path(path);
        report.damage(DamagedPlace { entries: Some(to - from), ..DamagedPlace::of(path, error) });
    };
    for stretch in stretches {
        if stretch.first_seq > next {
            gap(&segment_path(dir, stretch.segment), next, stretch.first_seq);
        }
        next = stretch.end_seq;
    }
    if let Some(closed) = known.closed_seq.filter(|closed| *closed >= next && (known.is_exact || next > 0)) {
        let last = stretches.last().map_or_else(|| dir.to_path_buf(), |s| segment_path(dir, s.segment));
        gap(&last, next, closed + 1);
    }
}

/// The log being applied.
pub(super) struct Replay<'e> {
    env: &'e Arc<dyn Env>,
    dir: &'e Path,
    stretches: Vec<Stretch>,
    /// The last stretch of each chain that was split into several.
    last_of_chain: HashMap<(FileId, u64), usize>,
    /// The first stretch that is not applied to its end.
    current: usize,
    /// Readers of the chains with stretches that are not applied: one, and one more for each segment whose numbers another
    /// segment interrupts.
    readers: HashMap<(FileId, u64), SalvageReader>,
}

impl<'e> Replay<'e> {
    pub(super) fn new(env: &'e Arc<dyn Env>, dir: &'e Path, stretches: Vec<Stretch>) -> Self {
        let last_of_chain = stretches.iter().enumerate().map(|(i, s)| ((s.segment, s.offset), i)).collect();
        Self { env, dir, stretches, last_of_chain, current: 0, readers: HashMap::new() }
    }

    /// Applies the records up to the number `last`.
    pub(super) fn replay(
        &mut self,
        last: SeqNo,
        known: &Known,
        sink: &mut Sink<'_>,
        report: &mut Reporter<'_>,
    ) -> Result<()> {
        while let Some(&stretch) = self.stretches.get(self.current).filter(|s| s.first_seq <= last) {
            let chain = (stretch.segment, stretch.offset);
            let path = segment_path(self.dir, stretch.segment);
            let reader = match self.readers.remove(&chain) {
                Some(reader) => Ok(reader),
                None => {
                    SalvageReader::open(&**self.env, &path, &LOG_SEGMENT, stretch.segment, stretch.offset)
                }
            };
            let is_at_end = match reader {
                Ok(mut reader) => {
                    let mut part = Part { path: &path, stretch, known, sink, report };
                    let is_at_end = part.apply(&mut reader, last)?;
                    if !is_at_end || self.last_of_chain[&chain] > self.current {
                        self.readers.insert(chain, reader);
                    }
                    is_at_end
                }
                Err(error) => {
                    report.damage(DamagedPlace::of(&path, error));
                    true
                }
            };
            if !is_at_end {
                return Ok(());
            }
            self.current += 1;
        }
        Ok(())
    }
}

/// A stretch being applied.
struct Part<'a, 'd, 'p> {
    path: &'a Path,
    stretch: Stretch,
    known: &'a Known,
    sink: &'a mut Sink<'d>,
    report: &'a mut Reporter<'p>,
}

impl Part<'_, '_, '_> {
    /// Applies the records up to the number `last`; returns whether the stretch has no further ones.
    fn apply(&mut self, reader: &mut SalvageReader, last: SeqNo) -> Result<bool> {
        let Stretch { first_seq, end_seq, .. } = self.stretch;
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
                self.skip_cut(&record);
            } else if record_end > first_seq {
                apply(self.path, &record, self.known, self.sink, self.report)?;
                self.report.advance(0);
            }
            next = next.max(record_end);
            if record_end > end_seq {
                // The rest of it belongs to a later stretch of another segment.
                return Ok(true);
            }
            reader.advance();
        }
        if next < end_seq {
            let message = format!("the writes {next} to {} were found once and not again", end_seq - 1);
            let place = missing(self.path, &message);
            self.report.damage(DamagedPlace { entries: Some(end_seq - next), ..place });
        }
        Ok(true)
    }

    /// Reports a batch of which a newer segment, or an SST, has a part: it cannot be applied as a whole.
    fn skip_cut(&mut self, record: &Record<'_>) {
        let record_end = record.first_seq + u64::from(record.count);
        let (from, to) = (record.first_seq.max(self.stretch.first_seq), record_end.min(self.stretch.end_seq));
        let message = format!(
            "the batch of the writes {} to {} begins or ends inside a batch of a newer segment; its writes {from} to {} were \
             passed over",
            record.first_seq,
            record_end - 1,
            to - 1
        );
        let error = Error::corruption(self.path, record.offset, message);
        self.report.damage(DamagedPlace { entries: Some(to - from), ..DamagedPlace::of(self.path, error) });
    }
}

/// Writes the operations of a batch.
fn apply(
    path: &Path,
    record: &Record<'_>,
    known: &Known,
    sink: &mut Sink<'_>,
    report: &mut Reporter<'_>,
) -> Result<()> {
    report.report.log_records += 1;
    let mut result = Ok(());
    let decoded = Operations::decode(record.payload, &mut |op| {
        if result.is_err() {
            return;
        }
        if known.is_dropped(op.partition) {
            report.report.dropped_entries += 1;
            return;
        }
        report.report.entries += 1;
        let value = (op.kind == ValueKind::Put).then_some(op.value);
        result = sink.write(Owner::Partition(op.partition), op.user_key, value);
    });
    if let Err(message) = decoded {
        let error =
            Error::corruption(path, record.offset, format!("the batch has a valid checksum, but {message}"));
        report.damage(DamagedPlace::of(path, error));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(segment: u64, first_seq: SeqNo, end_seq: SeqNo) -> Stretch {
        Stretch { segment: FileId(segment), offset: 64, first_seq, end_seq }
    }

    #[test]
    fn the_newest_segment_wins_and_numbers_ascend() {
        let chains = vec![chain(5, 1, 101), chain(5, 120, 150), chain(9, 40, 60), chain(9, 60, 130)];
        let chosen = choose(chains.clone(), 0);
        assert_eq!(chosen, [chain(5, 1, 40), chain(9, 40, 60), chain(9, 60, 130), chain(5, 130, 150)],);
        assert_eq!(choose(chains, 128), [chain(9, 128, 130), chain(5, 130, 150)]);
    }

    /// Each damaged place begins a chain, and a segment may have many.
    #[test]
    fn many_chains_take_little_time_and_memory() {
        let old = (0..20_000).map(|i| chain(5, 10 * i, 10 * i + 6));
        let new = (0..20_000).map(|i| chain(9, 10 * i + 4, 10 * i + 9));
        let chosen = choose(old.chain(new).collect(), 12);
        assert_eq!(chosen[..3], [chain(5, 12, 14), chain(9, 14, 19), chain(5, 20, 24)]);
        assert_eq!(chosen.len(), 2 * 19_999);
    }

    /// The choice agrees with a look at each number.
    #[test]
    fn each_number_is_taken_from_the_newest_segment_that_has_it() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let mut chains = Vec::new();
            for segment in 1..=rng.u64(1..5) {
                let mut seq = 1;
                for _ in 0..rng.u32(..6) {
                    let first = seq + rng.u64(..8);
                    seq = first + rng.u64(1..12);
                    chains.push(chain(segment, first, seq));
                }
            }
            let due = rng.u64(..20);
            let chosen = choose(chains.clone(), due);
            assert!(chosen.is_sorted_by(|a, b| a.end_seq <= b.first_seq), "{chosen:?}");
            for seq in 0..100 {
                let has = |c: &&Stretch| (c.first_seq..c.end_seq).contains(&seq);
                let expected = chains.iter().filter(has).map(|c| c.segment).max().filter(|_| seq >= due);
                let found = chosen.iter().find(has).map(|c| c.segment);
                assert_eq!(found, expected, "number {seq} of {chains:?} from {due}");
            }
        }
    }

    /// A machine with log segments, each given by its number, its first sequence number and the lengths of its batches.
    fn machine(segments: &[(u64, SeqNo, &[u32])]) -> (Arc<pleach_env::SimEnv>, Arc<dyn Env>) {
        let sim = pleach_env::SimEnv::new(1);
        let env: Arc<dyn Env> = Arc::clone(&sim) as _;
        env.create_dir_all(Path::new("store")).unwrap();
        for &(id, next_seq, counts) in segments {
            let id = FileId(id);
            let options = pleach_log::RecordFileOptions {
                kind: LOG_SEGMENT,
                id,
                hint: pleach_log::ManifestHint::NONE,
                preallocate: None,
                next_seq,
                durable_seq: next_seq - 1,
            };
            let path = segment_path(Path::new("store"), id);
            let mut writer = pleach_log::RecordWriter::create(&*env, &path, &options).unwrap();
            for &count in counts {
                let mut operations = Operations::default();
                for i in 0..count {
                    let key = (writer.next_seq() + u64::from(i)).to_le_bytes();
                    operations.push(crate::keys::PartitionId(0), &key, Some(&[9; 200])).unwrap();
                }
                let (count, first_seq) = (operations.count(), writer.next_seq());
                let record = operations.record_mut();
                writer.append([pleach_log::Append { record, first_seq, count }]).unwrap();
            }
        }
        (sim, env)
    }

    /// Replays the log of the machine up to each of `stops`; returns the entries and the reads after each.
    fn replay(
        machine: &(Arc<pleach_env::SimEnv>, Arc<dyn Env>),
        stops: &[SeqNo],
    ) -> (Vec<u64>, u64, Vec<String>) {
        let (sim, env) = machine;
        let dir = Path::new("store");
        let mut progress = |_, _| true;
        let mut report = Reporter::new(&mut progress);
        let files = crate::repair::manifest::list(&**env, dir, &mut report).unwrap();
        let known = crate::repair::manifest::read(env, dir, &files, &mut report);
        let stretches = index(env, dir, &files, &known, &mut report);
        let (mut replay, before) = (Replay::new(env, dir, stretches), sim.read_count());
        let mut sink = Sink::nowhere();
        let entries = stops.iter().map(|stop| {
            replay.replay(*stop, &known, &mut sink, &mut report).unwrap();
            report.report.entries
        });
        let entries = entries.collect();
        assert!(replay.readers.is_empty(), "no reader outlives its chain");
        let damage = report.report.damage.iter().map(|place| place.error.to_string()).collect();
        (entries, sim.read_count() - before, damage)
    }

    #[test]
    fn a_batch_that_another_segment_cuts_is_reported() {
        let ends_inside = machine(&[(5, 1, &[3, 3, 3]), (9, 6, &[2, 2])]);
        let (entries, _, damage) = replay(&ends_inside, &[u64::MAX]);
        assert_eq!(entries, [7]);
        assert!(
            damage.iter().any(|d| d.contains("writes 4 to 6") && d.contains("4 to 5 were passed")),
            "{damage:?}"
        );
        let begins_inside = machine(&[(5, 1, &[3, 3, 3, 1]), (9, 7, &[2])]);
        let (entries, _, damage) = replay(&begins_inside, &[u64::MAX]);
        assert_eq!(entries, [9]);
        assert!(
            damage.iter().any(|d| d.contains("writes 7 to 9") && d.contains("9 to 9 were passed")),
            "{damage:?}"
        );
    }

    #[test]
    fn a_log_is_read_once_however_often_the_replay_stops() {
        let counts = vec![1; 20_000];
        let machine = machine(&[(5, 1, &counts), (9, 8000, &counts[..100])]);
        let (whole, reads, _) = replay(&machine, &[u64::MAX]);
        let stops: Vec<_> = (0..500).map(|i| 37 * i).chain([u64::MAX]).collect();
        let (entries, reads_in_steps, _) = replay(&machine, &stops);
        assert!(entries.iter().zip(&stops).all(|(&n, &stop)| n == stop.min(20_000)), "{entries:?}");
        assert_eq!((whole, reads_in_steps), (vec![20_000], reads));
    }
}
