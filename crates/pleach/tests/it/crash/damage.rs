//! Damage test: bytes of a store change after it was closed or its process was killed. The next open, read or verification must
//! report the damage or give the right answer.
//!
//! An error must report any change of `CURRENT`, of a manifest's header, and of a byte of an SST other than zero (zeros may be
//! padding). Damage at the end of the log may pass unreported, because it looks like a crash. The store then holds an earlier
//! state that it really had.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Capture, CrashPolicy, SimEnv};
use pleach::{LearnedIndex, Shape};

use crate::rig::action::Action;
use crate::rig::catch::catch;
use crate::rig::compare;
use crate::rig::driver::Driver;
use crate::rig::happened::{
    CONVERSIONS, COPIES, CUTS, FULL_DISKS, GROUPS, Happened, LEARNED, MERGES, MOVES, PACKED, SEGMENTS,
    SNAPSHOTS, STORES, TRAINED_LATER,
};
use crate::rig::plan::Plan;
use crate::rig::setup::{DIR, Setup, machine};
use crate::rig::threads::in_parallel;
use crate::rig::timeline::Candidate;
use crate::rig::vars;

/// Length of the header of a manifest or log segment, and of the footer of an SST.
const HEADER_LEN: usize = 64;

/// Stores by default.
const CASES: u64 = 150;

const CLOSED: &str = "stores that were closed";
const UNCLOSED: &str = "stores that a killed process left";

/// A store with all states that it has had.
pub(super) struct Damaged {
    setup: Setup,
    disk: Capture,
    /// Its present state.
    now: Candidate,
    /// The states that it may have if the log has lost its end: the present partitions with earlier contents.
    earlier: Vec<Candidate>,
    /// The states that it may have if the manifest of a store that was not closed has lost its end. This looks like a crash
    /// between an edit and its sync.
    without_edits: Vec<Candidate>,
    is_closed: bool,
    files: Vec<String>,
}

impl Damaged {
    /// The store that the history of a seed leaves.
    ///
    /// # Panics
    /// When the store fails before any damage.
    pub(super) fn new(seed: u64, happened: &Happened) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut setup = Setup::random(&mut rng);
        // Merges of single files need levels of several files, which are rare by chance.
        let has_levels = seed.is_multiple_of(5);
        if has_levels {
            setup.shape = Some(Shape::Leveled);
            // Pointers alone fill no level.
            setup.separate_at = Some(0);
        }
        // So are SSTs of several blocks that an idle machine trains.
        let is_trained = seed % 5 == 1;
        if is_trained {
            setup.learned = Some(LearnedIndex::Adaptive);
            setup.separate_at = Some(0);
        }
        let env = machine(rng.u64(..));
        let mut plan = Plan::new(rng.fork(), &setup);
        if has_levels || is_trained {
            plan.mix.keys = 400;
        }
        let mut driver = Driver::create(Arc::clone(&env), setup).expect("a store can be created");
        for _ in 1..if has_levels || is_trained { 250 } else { rng.usize(20..200) } {
            let action = plan.next(driver.world());
            driver.must(&action).expect("nothing is damaged yet");
        }
        let is_closed = rng.bool();
        if is_closed {
            driver.must(&Action::Reopen).expect("nothing is damaged yet");
        }
        happened.add(if is_closed { CLOSED } else { UNCLOSED }, 1);
        happened.add_history(&driver);
        let earlier = driver.timeline.past();
        let now = earlier.last().expect("there is one").clone();
        let files = env
            .file_names(Path::new(DIR))
            .into_iter()
            .filter(|name| name != "LOCK" && name != "RESERVE")
            .collect();
        let without_edits = driver.timeline.past_changes();
        Self { setup, disk: env.capture(), now, earlier, without_edits, is_closed, files }
    }
}

/// Damages the store in one place, opens it, and judges the answers.
pub(super) fn damage_one(store: &Damaged, seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let env = store.disk.crash_image(CrashPolicy::Everything, seed);
    // Every file is as likely as any other, whatever its size.
    let name = &store.files[rng.usize(..store.files.len())];
    let path = PathBuf::from(DIR).join(name);
    let before = env.read_file(&path).expect("listed");
    let mut bytes = before.clone();
    let (what, must_be_noticed) = damage(name, &mut bytes, &mut rng);
    if bytes == before {
        return Ok(());
    }
    env.write_file(&path, &bytes);
    let told = |message: String| format!("{name}, {} bytes, {what}: {message}", before.len());
    let looked = look(store, name, &env, &mut rng);
    // A store that was not closed may have held files that it no longer needed. The open removes them.
    let was_needed = store.is_closed || env.read_file(&path).is_some();
    match looked {
        Ok(()) if must_be_noticed && was_needed => Err(told("no error was reported".to_owned())),
        Ok(()) => Ok(()),
        Err(message) if message.contains("corruption: ") || message.contains("unsupported: ") => Ok(()),
        Err(message) => Err(told(message)),
    }
}

/// Changes some bytes; says which, and whether an error must be reported.
fn damage(name: &str, bytes: &mut Vec<u8>, rng: &mut Rng) -> (String, bool) {
    if bytes.is_empty() {
        return ("left alone".to_owned(), false);
    }
    // Half of the damage is near an end: headers and footers are there.
    let at = match rng.u8(..4) {
        0 => rng.usize(..bytes.len().min(HEADER_LEN)),
        1 => bytes.len() - 1 - rng.usize(..bytes.len().min(HEADER_LEN)),
        _ => rng.usize(..bytes.len()),
    };
    let is_sst = ends_in(name, "sst");
    let is_footer = at + HEADER_LEN >= bytes.len();
    let is_vital = name == "CURRENT"
        || (name.starts_with("MANIFEST") && at < HEADER_LEN)
        || (is_sst && (is_footer || bytes[at] != 0));
    match rng.u8(..8) {
        0 => {
            bytes.truncate(at);
            (format!("cut at {at}"), is_sst)
        }
        1 => {
            let end = bytes.len().min(at + rng.usize(1..600));
            bytes[at..end].fill(rng.u8(..));
            (format!("filled {at}..{end}"), false)
        }
        _ => {
            bytes[at] ^= 1 << rng.u8(..8);
            (format!("flipped a bit of byte {at}"), is_vital)
        }
    }
}

fn ends_in(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == extension)
}

/// Opens the store, compares it and verifies it. Only the end of the log may be lost.
fn look(store: &Damaged, name: &str, env: &Arc<SimEnv>, rng: &mut Rng) -> Result<(), String> {
    let db = store.setup.open(env).map_err(|e| format!("open: {e}"))?;
    let states = match name {
        name if ends_in(name, "log") => &store.earlier[..],
        name if name.starts_with("MANIFEST") && !store.is_closed => &store.without_edits[..],
        _ => std::slice::from_ref(&store.now),
    };
    let found = compare::find(&db, states, rng).map(drop);
    let verified = db.verify().map(drop).map_err(|e| format!("verify: {e}"));
    env.power_off();
    found.and(verified)
}

#[test]
fn damage_is_noticed_or_harmless() {
    let (seed, cases) = (vars::seed(), vars::cases(CASES));
    println!("seeds {seed}..{}", seed + cases);
    let happened = Happened::default();
    in_parallel(cases, |case| {
        let seed = seed + case;
        let store = Damaged::new(seed, &happened);
        let mut rng = Rng::with_seed(seed);
        for _ in 0..40 {
            let seed_of_damage = rng.u64(..);
            catch(|| damage_one(&store, seed_of_damage))
                .map_err(|message| format!("{message}\nrepeat: PLEACH_SEED={seed} PLEACH_CASES=1"))?;
        }
        Ok(())
    });
    happened.check(
        &[
            CLOSED,
            UNCLOSED,
            GROUPS,
            SNAPSHOTS,
            MERGES,
            CUTS,
            SEGMENTS,
            COPIES,
            MOVES,
            CONVERSIONS,
            PACKED,
            LEARNED,
            TRAINED_LATER,
            STORES,
            FULL_DISKS,
        ],
        cases >= CASES,
    );
}
