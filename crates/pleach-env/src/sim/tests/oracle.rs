//! Random histories: after a crash nothing is missing that was secured, and nothing is there that never was.
//!
//! The oracle knows nothing of blocks and pending lists. It notes for each sector, length and name the values that it
//! has had since the last barrier, and demands that a crash shows one of them.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "e"];
const SECTOR: usize = 512;

/// The values something has had since its barrier, the current one last.
struct History<T>(Vec<T>);

impl<T: Clone + PartialEq> History<T> {
    fn note(&mut self, value: T) {
        self.0.push(value);
    }
    fn current(&self) -> &T {
        self.0.last().expect("never empty")
    }
    fn settle(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }
}

struct Contents {
    bytes: Vec<u8>,
    lens: History<usize>,
    sectors: BTreeMap<usize, History<[u8; SECTOR]>>,
}

impl Contents {
    fn new() -> Self {
        Self { bytes: Vec::new(), lens: History(vec![0]), sectors: BTreeMap::new() }
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let before = self.padded();
        change(&mut self.bytes);
        let after = self.padded();
        let sector = |bytes: &[u8], i: usize| -> [u8; SECTOR] {
            let bytes = bytes.get(i * SECTOR..(i + 1) * SECTOR);
            bytes.map_or([0; SECTOR], |b| b.try_into().expect("a whole sector"))
        };
        for i in 0..before.len().max(after.len()) / SECTOR {
            if sector(&before, i) != sector(&after, i) {
                let start = History(vec![sector(&before, i)]);
                self.sectors.entry(i).or_insert(start).note(sector(&after, i));
            }
        }
        self.lens.note(self.bytes.len());
    }

    fn padded(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        bytes
    }

    fn settle(&mut self) {
        self.lens.settle();
        self.sectors.values_mut().for_each(History::settle);
    }

    fn allows(&self, found: &[u8]) -> bool {
        self.lens.0.contains(&found.len())
            && found.chunks(SECTOR).enumerate().all(|(i, found)| match self.sectors.get(&i) {
                Some(history) => history.0.iter().any(|version| version.starts_with(found)),
                None => found.iter().all(|b| *b == 0),
            })
    }
}

struct Oracle {
    files: Vec<Contents>,
    handles: Vec<Arc<dyn File>>,
    names: BTreeMap<&'static str, History<Option<usize>>>,
}

impl Oracle {
    fn current(&self, name: &str) -> Option<usize> {
        *self.names[name].current()
    }

    fn note(&mut self, name: &'static str, file: Option<usize>) {
        self.names.get_mut(name).expect("all names have a history").note(file);
    }

    fn step(&mut self, env: &SimEnv, rng: &mut Rng) {
        let name = NAMES[rng.usize(..NAMES.len())];
        let Some(file) = self.current(name) else {
            self.handles.push(env.create_file(&path(name)).unwrap());
            self.files.push(Contents::new());
            return self.note(name, Some(self.files.len() - 1));
        };
        let (handle, contents) = (&self.handles[file], &mut self.files[file]);
        match rng.u8(0..12) {
            0..5 => {
                let offset = rng.usize(..10_000);
                let bytes: Vec<u8> = (0..rng.usize(1..3000)).map(|_| rng.u8(..)).collect();
                handle.write_all_at(&bytes, offset as u64).unwrap();
                contents.change(|all| {
                    all.resize(all.len().max(offset + bytes.len()), 0);
                    all[offset..offset + bytes.len()].copy_from_slice(&bytes);
                });
            }
            5 => {
                let len = rng.usize(..12_000);
                handle.set_len(len as u64).unwrap();
                contents.change(|all| all.resize(len, 0));
            }
            6 => {
                let len = rng.usize(..12_000);
                handle.allocate(len as u64).unwrap();
                contents.change(|all| all.resize(all.len().max(len), 0));
            }
            7 | 8 => {
                handle.sync("test.file").unwrap();
                contents.settle();
            }
            9 => {
                env.remove_file(&path(name)).unwrap();
                self.note(name, None);
            }
            10 => {
                let target = NAMES[rng.usize(..NAMES.len())];
                env.rename(&path(name), &path(target)).unwrap();
                if target != name {
                    self.note(name, None);
                    self.note(target, Some(file));
                }
            }
            _ => {
                sync_dir(env);
                self.names.values_mut().for_each(History::settle);
            }
        }
    }

    fn check(&self, image: &SimEnv, context: &str) {
        for (name, history) in &self.names {
            let found = read(image, name);
            let allowed = history.0.iter().any(|file| match (file, &found) {
                (None, None) => true,
                (Some(file), Some(found)) => self.files[*file].allows(found),
                _ => false,
            });
            assert!(allowed, "{context}: {name} holds what it never held");
        }
    }
}

/// The seeds to try: the one in `PLEACH_SEED`, or as many as the time of an ordinary test run allows.
fn seeds() -> std::ops::Range<u64> {
    match std::env::var("PLEACH_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..60,
    }
}

#[test]
fn random_histories_crash_only_into_what_has_been() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        let env = machine(seed);
        let names = NAMES.map(|name| (name, History(vec![None]))).into();
        let mut oracle = Oracle { files: Vec::new(), handles: Vec::new(), names };
        for step in 0..120 {
            oracle.step(&env, &mut rng);
            for name in NAMES {
                let expected = oracle.current(name).map(|file| oracle.files[file].bytes.clone());
                assert_eq!(
                    read(&env, name),
                    expected,
                    "seed {seed}, step {step}: {name} reads wrong before a crash"
                );
            }
            let policy = CrashPolicy::ALL[rng.usize(..CrashPolicy::ALL.len())];
            let crash_seed = rng.u64(..);
            let image = env.crash_image(policy, crash_seed);
            oracle.check(&image, &format!("seed {seed}, step {step}, {policy:?} with seed {crash_seed}"));
            let settled = (policy != CrashPolicy::ProcessKill).then_some(CrashPolicy::DurableOnly);
            let again = image.crash_image(settled.unwrap_or(CrashPolicy::ProcessKill), crash_seed);
            for name in NAMES {
                assert_eq!(read(&again, name), read(&image, name), "seed {seed}: an image is settled");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_crash() {
    let env = machine(3);
    for (i, name) in NAMES.iter().enumerate() {
        put(&env, name, &vec![1 + u8::try_from(i).unwrap(); 20_000]);
    }
    let look = |image: &SimEnv| NAMES.map(|name| read(image, name));
    for seed in 0..50 {
        let first = look(&env.crash_image(CrashPolicy::Random, seed));
        assert_eq!(first, look(&env.crash_image(CrashPolicy::Random, seed)), "seed {seed}");
    }
    assert!(outcomes(&env, CrashPolicy::Random, look).len() > 100);
}
