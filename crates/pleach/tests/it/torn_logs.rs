//! Torn logs: a log that a crash has cut or holed behind its last sync always opens, with any values.
//!
//! The values look like those of users, and like bytes that the engine itself writes (`rig/real_bytes`). The recovered store
//! holds a prefix of the writes that includes every synced one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{CrashPolicy, SimEnv};
use pleach::{Db, Options};

use crate::rig::real_bytes::RealBytes;
use crate::rig::setup::DIR;
use crate::rig::threads::in_parallel;
use crate::rig::vars;

/// Puts before the sync, and in all.
const SYNCED: u64 = 100;
const PUTS: u64 = 400;

const PAGE: usize = 4096;

/// Crashes and holes for each kind of value.
const TRIES: u64 = 40;

fn open(env: &Arc<SimEnv>) -> pleach::Result<Db> {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(16 << 20).open(Path::new(DIR))
}

fn value(kind: RealBytes, number: u64) -> Vec<u8> {
    let len = Rng::with_seed(number).usize(200..6000);
    kind.make(number, len)
}

/// The store's log segment and its length without the zeros at the end.
fn segment(env: &SimEnv) -> (PathBuf, usize) {
    let dir = Path::new(DIR);
    let names = env.file_names(dir).into_iter().filter(|name| pleach_log::parse_segment_name(name).is_some());
    let path = dir.join(names.max().expect("a store has a log"));
    let bytes = env.read_file(&path).expect("it was listed");
    (path, bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1))
}

/// A store of values of `kind`, on a machine that is about to fail, and how much of its log was synced.
fn loaded(kind: RealBytes) -> (Arc<SimEnv>, usize) {
    let env = SimEnv::new(vars::seed());
    let db = open(&env).unwrap();
    let put = |number: u64| db.default_partition().put(number.to_string(), value(kind, number)).unwrap();
    (0..SYNCED).for_each(put);
    db.sync().unwrap();
    let (_, synced) = segment(&env);
    (SYNCED..PUTS).for_each(put);
    assert!(segment(&env).1 > synced + 50 * PAGE, "there is a tail to tear");
    env.power_off();
    (env, synced)
}

/// Opens the store of `env`; the error says what is wrong with it.
fn check(env: &Arc<SimEnv>, kind: RealBytes) -> Result<(), String> {
    let db = open(env).map_err(|e| e.to_string())?;
    let found = db.stats().last_sequence_number;
    if !(SYNCED..=PUTS).contains(&found) {
        return Err(format!("{found} of {PUTS} puts are there; {SYNCED} were synced"));
    }
    for number in 0..PUTS {
        let expected = (number < found).then(|| value(kind, number));
        if db.default_partition().get(number.to_string()).map_err(|e| e.to_string())?.as_deref()
            != expected.as_deref()
        {
            return Err(format!("put {number} of {found} is not as it was"));
        }
    }
    Ok(())
}

/// Each kind of values in a thread of its own: `break_it` makes a machine from the loaded one.
fn none_is_refused(break_it: impl Fn(&Arc<SimEnv>, usize, u64) -> (Arc<SimEnv>, String) + Sync) {
    let seed = vars::seed();
    println!("PLEACH_SEED={seed}");
    in_parallel(RealBytes::ALL.len() as u64, |number| {
        let kind = RealBytes::ALL[usize::try_from(number).expect("few")];
        let (env, synced) = loaded(kind);
        let refused = (0..TRIES).filter_map(|n| {
            let (broken, how) = break_it(&env, synced, seed + n);
            check(&broken, kind).err().map(|message| format!("{how}: {message}"))
        });
        let refused: Vec<_> = refused.collect();
        match refused.first() {
            None => Ok(()),
            Some(first) => Err(format!("{kind:?}: {} of {TRIES} refused; {first}", refused.len())),
        }
    });
}

#[test]
fn a_log_that_a_crash_tore_always_opens() {
    none_is_refused(|env, _, seed| {
        (env.crash_image(CrashPolicy::Random, seed), format!("crash with seed {seed}"))
    });
}

#[test]
fn a_log_with_a_lost_page_behind_its_last_sync_always_opens() {
    none_is_refused(|env, synced, seed| {
        let image = env.crash_image(CrashPolicy::Everything, seed);
        let (path, len) = segment(&image);
        let mut bytes = image.read_file(&path).expect("it is there");
        let start = Rng::with_seed(seed).usize(synced.div_ceil(PAGE)..len / PAGE) * PAGE;
        bytes[start..start + PAGE].fill(0);
        image.write_file(&path, &bytes);
        (image, format!("page of zeros at {start}"))
    });
}
