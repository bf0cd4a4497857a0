//! Every engine of the list against an ordered map: the same random writes, the same answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pleach_bench::{Direction, Durability, EngineConfig, EngineFactory, Result, Scan, Session, Write};

use crate::engines;

const PARTITIONS: usize = 3;
const STEPS: u64 = 4000;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bench-peers-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder takes folders");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.0);
    }
}

fn config(dir: &Path, partitions: usize) -> EngineConfig {
    EngineConfig {
        dir: dir.to_path_buf(),
        memory_bytes: 64 << 20,
        durability: Durability::Buffered,
        direct_reads: false,
        compression: false,
        background_threads: 2,
        partitions,
        tuning: BTreeMap::new(),
        known_tuning: BTreeSet::new(),
    }
}

/// Random numbers: a linear congruential generator, of which the upper bits are used.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Few enough that keys meet again, of several lengths, none empty.
    fn key(&mut self) -> Vec<u8> {
        let mut key = vec![self.below(256) as u8];
        key.extend((0..self.below(3)).map(|_| [0, 7, 255][self.below(3) as usize]));
        key
    }

    fn value(&mut self) -> Vec<u8> {
        (0..1 + self.below(200)).map(|_| self.below(256) as u8).collect()
    }
}

fn seen(session: &mut dyn Session, scan: &Scan<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    session
        .scan(scan, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            true
        })
        .expect("the engine scans");
    entries
}

fn expected(map: &Map, scan: &Scan<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let beyond = |key: &[u8]| match (scan.direction, scan.from) {
        (_, None) => true,
        (Direction::Forward, Some(from)) => key >= from,
        (Direction::Reverse, Some(from)) => key <= from,
    };
    let mut entries: Vec<_> = map.iter().filter(|(key, _)| beyond(key)).collect();
    if scan.direction == Direction::Reverse {
        entries.reverse();
    }
    entries.into_iter().take(scan.limit).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// One random operation on the engine and on the maps.
fn step(session: &mut dyn Session, maps: &mut [Map], random: &mut Random) -> Result<()> {
    let partition = random.below(maps.len() as u64) as usize;
    let key = random.key();
    match random.below(100) {
        0..40 => {
            let value = random.value();
            session.put(partition, &key, &value)?;
            maps[partition].insert(key, value);
        }
        40..55 => {
            session.delete(partition, &key)?;
            maps[partition].remove(&key);
        }
        55..65 => {
            let (other, value) = (random.below(maps.len() as u64) as usize, random.value());
            let put = Write { partition: other, key: &key, value: Some(&value) };
            session.write(&[Write { partition, key: &key, value: None }, put])?;
            maps[partition].remove(&key);
            maps[other].insert(key, value);
        }
        65..67 => {
            let mut upper = key.clone();
            upper[0] = upper[0].saturating_add(random.below(5) as u8);
            session.delete_range(partition, &key, &upper)?;
            maps[partition].retain(|there, _| *there < key || *there >= upper);
        }
        67..75 => {
            let direction = [Direction::Forward, Direction::Reverse][random.below(2) as usize];
            let from = (random.below(4) > 0).then_some(&*key);
            let scan = Scan { partition, from, direction, limit: random.below(30) as usize };
            assert_eq!(seen(session, &scan), expected(&maps[partition], &scan), "{scan:?}");
        }
        _ => {
            let mut value = None;
            let found = session.get(partition, &key, &mut |bytes| value = Some(bytes.to_vec()))?;
            assert_eq!(
                (found, value.as_ref()),
                (maps[partition].contains_key(&key), maps[partition].get(&key))
            );
        }
    }
    Ok(())
}

fn answers_are_those_of_a_map(factory: &EngineFactory, partitions: usize) -> Result<()> {
    let folder = Folder::new(&format!("{}-{partitions}", factory.name));
    let engine = (factory.open)(&config(&folder.0, partitions))?;
    let mut maps = vec![Map::new(); partitions];
    let mut random = Random(7);
    {
        let mut session = engine.session()?;
        for _ in 0..STEPS {
            step(&mut *session, &mut maps, &mut random)?;
        }
        engine.flush()?;
        for _ in 0..STEPS {
            step(&mut *session, &mut maps, &mut random)?;
        }
    }
    engine.settle()?;
    if partitions > 1 {
        engine.drop_partition(1)?;
    }
    if factory.capabilities.compaction {
        engine.compact()?;
    }
    let mut session = engine.session()?;
    for partition in (0..partitions).filter(|&partition| partition != 1) {
        let scan = Scan { partition, from: None, direction: Direction::Forward, limit: usize::MAX };
        assert_eq!(seen(&mut *session, &scan), expected(&maps[partition], &scan), "partition {partition}");
    }
    drop(session);
    engine.stats()?;
    engine.close()
}

#[test]
fn every_engine_answers_as_a_map_does() {
    for factory in engines() {
        for partitions in [1, PARTITIONS] {
            eprintln!("{} with {partitions} partitions", factory.name);
            answers_are_those_of_a_map(&factory, partitions)
                .unwrap_or_else(|error| panic!("{} with {partitions} partitions: {error}", factory.name));
        }
    }
}
