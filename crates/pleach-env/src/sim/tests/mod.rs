//! Behaviour of the simulated machine: barriers and crashes, faults, and random histories against an oracle.

mod barriers;
#[cfg(feature = "failpoints")]
mod clients;
mod faults;
mod oracle;
mod stores;

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;

/// Seeds per property; enough that every outcome asked for comes up with near certainty.
const SEEDS: u64 = 400;

/// A machine with the directory `/d`.
fn machine(seed: u64) -> Arc<SimEnv> {
    let env = SimEnv::new(seed);
    env.create_dir_all(Path::new("/d")).unwrap();
    env
}

fn path(name: &str) -> PathBuf {
    Path::new("/d").join(name)
}

/// Creates a file with these bytes, nothing synced.
fn put(env: &SimEnv, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = env.create_file(&path(name)).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn sync_dir(env: &SimEnv) {
    env.sync_dir(Path::new("/d"), "test.dir").unwrap();
}

/// Creates a file with these bytes, durable with its name.
fn put_durably(env: &SimEnv, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = put(env, name, bytes);
    file.sync("test.file").unwrap();
    sync_dir(env);
    file
}

/// The views of `look` after crashes of this moment, over many seeds.
fn outcomes<T: Ord>(env: &SimEnv, policy: CrashPolicy, look: impl Fn(&SimEnv) -> T) -> BTreeSet<T> {
    (0..SEEDS).map(|seed| look(&env.crash_image(policy, seed))).collect()
}

fn read(env: &SimEnv, name: &str) -> Option<Vec<u8>> {
    env.read_file(&path(name))
}
