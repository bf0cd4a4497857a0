//! Salvage of segments with bytes that cannot be read.

use std::ops::Range;

use pleach_env::FileId;
use pleach_log::{LOG_SEGMENT, ManifestHint, Salvaged, SeqNo, salvage_records, segment_path};

use crate::support::{HINT, Machine, append, logged};

/// A segment of records of 4 KiB, each with two sequence numbers.
struct Segment {
    machine: Machine,
    /// Where each record begins, and where the last one ends.
    offsets: Vec<u64>,
}

impl Segment {
    fn of(records: usize) -> Self {
        let machine = Machine::new();
        let mut log = machine.log(1, 64 << 20, 0);
        let mut offsets = vec![log.offset()];
        for _ in 0..records {
            let record = logged(log.last_seq() + 1, 2, 4096);
            append(&mut log, &[record]).unwrap();
            offsets.push(log.offset());
        }
        let len = usize::try_from(log.offset()).unwrap();
        drop(log);
        machine.write(1, &machine.read(1)[..len]);
        Self { machine, offsets }
    }

    /// The first numbers of the records that do not overlap `lost`.
    fn outside(&self, lost: &[Range<u64>]) -> Vec<SeqNo> {
        let overlaps =
            |record: &[u64]| lost.iter().any(|lost| record[0] < lost.end && lost.start < record[1]);
        let numbered = self.offsets.windows(2).zip((1..).step_by(2));
        numbered.filter(|(record, _)| !overlaps(record)).map(|(_, seq)| seq).collect()
    }

    /// The first numbers of the records that salvage shows, the hint, and the number of reads.
    fn salvage(&self) -> (Vec<SeqNo>, Option<ManifestHint>, u64) {
        let Machine { sim, env, dir } = &self.machine;
        let (path, before) = (segment_path(dir, FileId(1)), sim.read_count());
        let mut found = Vec::new();
        let hint = salvage_records(env, &path, &LOG_SEGMENT, FileId(1), &mut |salvaged| {
            if let Salvaged::Record(record) = salvaged {
                assert_eq!(record.payload, logged(record.first_seq, 2, 4096).payload);
                found.push(record.first_seq);
            }
            Ok(true)
        });
        (found, hint.unwrap(), sim.read_count() - before)
    }

    fn lose(&self, bytes: &Range<u64>) {
        self.machine.sim.add_unreadable(&segment_path(&self.machine.dir, FileId(1)), bytes.clone());
    }
}

#[test]
fn a_sector_that_cannot_be_read_costs_the_records_in_its_page() {
    let segment = Segment::of(200);
    let (all, hint, reads) = segment.salvage();
    assert_eq!((all.len(), hint), (200, Some(HINT)));
    assert_eq!(reads, 1);
    segment.lose(&(400_000..400_512));
    let (found, hint, reads) = segment.salvage();
    assert_eq!(hint, Some(HINT));
    let lost_page = 397_312..401_408;
    let whole = segment.outside(std::slice::from_ref(&lost_page));
    assert!(found.len() >= 198 && whole.iter().all(|seq| found.contains(seq)), "{found:?}");
    assert!(reads < 20, "{reads}");
}

#[test]
fn many_pages_that_cannot_be_read_cost_a_read_each() {
    let segment = Segment::of(1000);
    let lost = [500_000..1_500_000, 2_000_000..2_000_001, 2_020_000..2_020_001, 4_000_000..u64::MAX];
    for lost in &lost {
        segment.lose(lost);
    }
    let (found, hint, reads) = segment.salvage();
    assert_eq!(hint, Some(HINT));
    let pages = lost.map(|lost| lost.start / 4096 * 4096..lost.end.saturating_add(4095) / 4096 * 4096);
    let whole = segment.outside(&pages);
    let missed: Vec<_> = whole.iter().filter(|seq| !found.contains(seq)).collect();
    assert!(whole.len() > 700 && missed.is_empty(), "{missed:?} of {}", whole.len());
    let pages_lost = 245 + 1 + 1 + 32;
    assert!(reads < pages_lost + 80, "{reads} for {pages_lost} pages");
}
