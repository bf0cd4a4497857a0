//! Salvage of logs: the chains of records that repair finds in damaged segments.

use std::path::Path;
use std::sync::Arc;

use pleach_env::Env;

use super::*;
use crate::operations::Operations;
use crate::repair::replay::Replay;

fn chain(segment: u64, first_seq: SeqNo, end_seq: SeqNo) -> ChainPart {
    let start = ChainStart { offset: 64, first_seq: 1, epoch: 0 };
    ChainPart { segment: FileId(segment), start, first_seq, end_seq }
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
            let has = |c: &&ChainPart| (c.first_seq..c.end_seq).contains(&seq);
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
                operations
                    .push(
                        crate::keys::PartitionId(0),
                        &key,
                        Some(&[9; 200]),
                        crate::options::ValueSizes::ALL_SMALL,
                    )
                    .unwrap();
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
    let mut salvage = Salvage::new(env, dir, None, &mut progress).unwrap();
    let parts = salvage.index_log();
    let (mut replay, before) = (Replay::new(parts), sim.read_count());
    let entries = stops.iter().map(|stop| {
        replay.replay(*stop, &mut salvage).unwrap();
        salvage.report.report.entries
    });
    let entries = entries.collect();
    assert!(replay.readers.is_empty(), "no reader outlives its chain");
    let damage = salvage.report.report.damage.iter().map(|place| place.error.to_string()).collect();
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

/// A chain can begin with a short record, which does not store its number.
#[test]
fn short_records_behind_a_damaged_batch_are_replayed() {
    let machine = machine(&[(5, 1, &[1, 2, 1, 5])]);
    let path = segment_path(Path::new("store"), FileId(5));
    let mut bytes = machine.0.read_file(&path).unwrap();
    let second = bytes.windows(8).position(|key| key == 2_u64.to_le_bytes()).unwrap();
    bytes[second + 20] ^= 1;
    machine.0.write_file(&path, &bytes);
    let (entries, _, damage) = replay(&machine, &[u64::MAX]);
    assert_eq!(entries, [1 + 1 + 5], "{damage:?}");
    let of_log = damage.iter().filter(|text| text.contains("000005.log"));
    assert_eq!(of_log.count(), 1, "{damage:?}");
}
