//! Soak of reads: real threads poll, drop, forget and exchange futures while everything under them changes.
//!
//! Each round opens one store, with the next driver, direct or not. Executors begin reads of all kinds, move tasks between each
//! other, poll them with wakers that panic or drop other tasks, drop some and forget some. Meanwhile one thread writes, flushes,
//! compacts and drops partitions, and reads of SSTs fail. A round ends in one of these ways:
//! - all tasks are polled to their ends, only when they are woken; then the store is closed;
//! - the store is closed while tasks wait;
//! - a waker drops the last handle of the store, on the thread that reads.
//!
//! Each answer is compared with the versions that its key had while it was read. After a close no read is in flight, no frame is
//! locked, and exactly the descriptors are open that were open before the round, although futures that were forgotten still
//! exist and keep a handle of the store. The next round finds every acknowledged write.
//!
//! The soak counts what it has met. It ends when its time is over and it has met everything.
//!
//! ```sh
//! PLEACH_SOAK_SECONDS=600 cargo test -p pleach --test soak -- --nocapture
//! ```

#![expect(clippy::disallowed_methods, reason = "a soak needs threads, real files and a time limit")]
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../it/rig/read_drivers.rs"]
mod drivers;
mod history;
mod met;
mod round;
mod struck;
mod task;

use std::env::var;
use std::fs::{read_dir, read_link};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use drivers::{DRIVERS, may_be_refused};
use history::Versions;
use met::{Met, note};
use pleach::ReadDriver;
use round::{Ending, Round};

/// The longest time that anything may take which needs only processor and device. Arbitrary, far above what it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rounds after which everything must have been met. Arbitrary: mostly 20 suffice.
const ROUNDS_MAX: u64 = 400;

fn number_from(name: &str, default: u64) -> u64 {
    var(name).map_or(default, |number| number.parse().unwrap())
}

/// What the process's descriptors are open on. Rings that fail permanently are leaked, so they do not count where the system
/// refuses some.
fn open_descriptors() -> Vec<PathBuf> {
    let links = read_dir("/proc/self/fd").unwrap().filter_map(|link| read_link(link.unwrap().path()).ok());
    let is_leaked =
        |link: &PathBuf| may_be_refused(ReadDriver::Ring) && link.ends_with("anon_inode:[io_uring]");
    let mut open: Vec<_> = links.filter(|link| !is_leaked(link)).collect();
    open.sort();
    open
}

/// Waits for something that needs only time.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "still waiting until {what}; open are {:?}", open_descriptors());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a round on a thread of its own, whose ring is closed with it.
fn run_round(
    dir: &Path,
    driver: ReadDriver,
    seed: u64,
    met: &Arc<Met>,
    versions: &Arc<Versions>,
    ending: Ending,
) {
    thread::scope(|scope| {
        let round = scope.spawn(|| Round::open(dir, driver, seed, met, versions).run(ending));
        round.join().unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// One test, because it counts the process's descriptors.
#[test]
fn futures_that_end_in_any_way_leave_nothing_behind() {
    let (seed, seconds) = (number_from("PLEACH_SEED", 1), number_from("PLEACH_SOAK_SECONDS", 3));
    let (begin, dir) = (Instant::now(), tempfile::tempdir().unwrap());
    let (met, versions) = (Arc::new(Met::default()), Arc::new(Versions::new()));
    if may_be_refused(ReadDriver::Ring) {
        note(&met.ring_rounds);
    }
    // What the process opens once, it keeps. Names of partitions contain the seed, and a failed round leaves some.
    run_round(dir.path(), DRIVERS[0], seed.wrapping_sub(1), &met, &versions, Ending::Closed);
    // A scope does not wait until its threads have closed their rings.
    wait_until("the rings of the first round are closed", || {
        !open_descriptors().iter().any(|link| link.ends_with("anon_inode:[io_uring]"))
    });
    for number in 0.. {
        let is_over = begin.elapsed() >= Duration::from_secs(seconds);
        if is_over && met.missing().is_empty() {
            break;
        }
        assert!(!is_over || number < ROUNDS_MAX, "not met in {number} rounds: {:?}", met.missing());
        let driver = DRIVERS[usize::try_from(number).unwrap() % DRIVERS.len()];
        let ending = [Ending::Drained, Ending::Closed, Ending::ClosedByWaker]
            [usize::try_from(number).unwrap() / DRIVERS.len() % 3];
        let round_seed = seed.wrapping_add(number);
        let context = format!("PLEACH_SEED={round_seed}, {driver:?}, {ending:?}");
        let before = open_descriptors();
        println!("{context}; not met: {:?}", met.missing());
        run_round(dir.path(), driver, round_seed, &met, &versions, ending);
        wait_until(&format!("descriptors are as before {context}, that is {before:?}"), || {
            open_descriptors() == before
        });
        note(&met.rounds);
    }
    println!("soak: {} s, seed {seed}: {met}", begin.elapsed().as_secs());
}
