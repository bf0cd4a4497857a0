//! The log of a damaged store: which of its records are replayed, and in what order.
//!
//! Two segments can hold records of the same sequence numbers: a segment may repeat records of earlier ones, and recovery may
//! have left a segment behind whose numbers were given again. The newest segment that has a number wins. So the log is read
//! twice: here for the numbers, in `replay` for the records.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use pleach_env::{Error, ErrorKind, FileId, Result};
use pleach_log::{ChainStart, LOG_SEGMENT, Record, Salvaged, SeqNo, salvage_records, segment_path};

use super::Salvage;
use super::report::missing;
use crate::damage::DamagedPlace;

/// A part of a record chain. The records of a chain follow each other in a segment without a gap in their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainPart {
    pub(super) segment: FileId,
    /// Where the chain begins.
    pub(super) start: ChainStart,
    pub(super) first_seq: SeqNo,
    /// The number after the last one.
    pub(super) end_seq: SeqNo,
}

impl Salvage<'_> {
    /// Reads the segments that are needed and returns the parts to be replayed, in the order of their numbers.
    pub(super) fn index_log(&mut self) -> Vec<ChainPart> {
        let (is_exact, version) = (self.catalog.is_exact, &self.catalog.version);
        let (floor, due) =
            if is_exact { (version.log_floor, version.flushed_seq + 1) } else { (FileId(0), 0) };
        if floor != FileId(0) && !self.files.segments.contains_key(&floor) {
            let path = segment_path(self.dir, floor);
            self.report.damage(missing(&path, "the manifest names this log segment, but it is missing"));
        }
        let mut chains = Vec::new();
        for (id, len) in self.files.segments.clone() {
            let path = segment_path(self.dir, id);
            if id < floor && self.homes.has_segment(id) {
                // Its values are read with the pointers to them.
            } else if id < floor {
                self.report.report.ignored.push(path);
            } else {
                if let Err(error) = self.read_segment(&path, id, &mut chains) {
                    self.report.damage(DamagedPlace::of(&path, error));
                }
                self.homes.read_as_log.insert(id);
            }
            if !self.report.end_file(len) {
                return Vec::new();
            }
        }
        choose(chains, due)
    }

    /// Adds the chains of a segment.
    fn read_segment(&mut self, path: &Path, id: FileId, chains: &mut Vec<ChainPart>) -> Result<()> {
        let (first, mut end) = (chains.len(), 0);
        let salvaged = salvage_records(self.env, path, &LOG_SEGMENT, id, &mut |found| match found {
            Salvaged::Record(record) => {
                let Record { first_seq, count, offset, payload, .. } = record;
                let end_seq = first_seq + u64::from(count);
                end = offset + payload.len() as u64;
                match chains[first..].last_mut() {
                    Some(chain) if chain.end_seq == first_seq => chain.end_seq = end_seq,
                    _ => {
                        let start = ChainStart::from(&record);
                        chains.push(ChainPart { segment: id, start, first_seq, end_seq });
                    }
                }
                Ok(self.report.advance(offset))
            }
            Salvaged::Damage { offset, len, error } => {
                let place = DamagedPlace::of(path, error);
                let len = (len > 0).then_some(len);
                self.report.damage(DamagedPlace { offset: Some(offset), len, ..place });
                Ok(true)
            }
        });
        self.report.report.bytes += end;
        salvaged.map(|_| ())
    }

    /// Reports the sequence numbers above `flushed` that no part has. Without a manifest, value segments are read as segments of
    /// the log, and there are gaps between them: the writes there are in SSTs.
    pub(super) fn report_gaps(&mut self, parts: &[ChainPart], flushed: SeqNo) {
        let (is_exact, due) = (self.catalog.is_exact, self.catalog.version.flushed_seq + 1);
        let mut next = if is_exact { due } else { parts.first().map_or(0, |part| part.first_seq) };
        let mut gap = |path: &Path, from: SeqNo, to: SeqNo| {
            let from = from.max(flushed + 1);
            if from >= to {
                return;
            }
            let message = format!("the writes {from} to {} are missing", to - 1);
            let error = Error::new(ErrorKind::Corruption, message).at_path(path);
            self.report.damage(DamagedPlace { entries: Some(to - from), ..DamagedPlace::of(path, error) });
        };
        for part in parts {
            if part.first_seq > next {
                gap(&segment_path(self.dir, part.segment), next, part.first_seq);
            }
            next = part.end_seq;
        }
        if let Some(closed) = self.catalog.closed_seq.filter(|seq| *seq >= next && (is_exact || next > 0)) {
            let last =
                parts.last().map_or_else(|| self.dir.into(), |part| segment_path(self.dir, part.segment));
            gap(&last, next, closed + 1);
        }
    }
}

/// The parts of `chains` that are replayed, in the order of their numbers: each number from `due` on, once, from the newest
/// segment that has it.
fn choose(mut chains: Vec<ChainPart>, due: SeqNo) -> Vec<ChainPart> {
    chains.sort_by_key(|chain| (Reverse(chain.segment), chain.first_seq));
    // By first number; they do not overlap.
    let mut chosen: BTreeMap<SeqNo, ChainPart> = BTreeMap::new();
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
        let free = free.into_iter().map(|(first_seq, end_seq)| ChainPart { first_seq, end_seq, ..chain });
        chosen.extend(free.map(|part| (part.first_seq, part)));
    }
    chosen.into_values().collect()
}

#[cfg(test)]
mod tests;
