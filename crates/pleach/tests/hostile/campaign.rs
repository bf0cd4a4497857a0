//! Campaign: runs the cases of a test, counts the verdicts, and limits memory, reads and time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pleach::env::{Env, SimEnv, failpoint};

use crate::alloc::measure;
use crate::damage::Damage;
use crate::examine::{Trust, Verdict, examine};
use crate::fixture::{Fixture, StoreFile};

/// The test ends after so many printed violations.
const PRINTED_MAX: usize = 25;

/// Longest time of a case. An intact store takes a few milliseconds.
const CASE_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes of memory that a forged file may cost beyond the intact store. A forged manifest describes another store, whose
/// compactions have other buffers.
const FORGED_MEMORY: usize = 1 << 20;

/// Whether to damage every byte.
pub(crate) fn is_full() -> bool {
    std::env::var("PLEACH_HOSTILE").is_ok_and(|mode| mode == "full")
}

/// The random numbers of a test.
pub(crate) fn rng() -> Rng {
    let seed = std::env::var("PLEACH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261);
    println!("PLEACH_SEED={seed}");
    Rng::with_seed(seed)
}

/// The cost of an examination of the intact store.
struct Baseline {
    memory: usize,
    reads: u64,
}

/// The cases of one test.
pub(crate) struct Campaign<'f> {
    fixture: &'f Fixture,
    name: String,
    baseline: Baseline,
    started: Instant,
    cases: u64,
    intact: u64,
    refused: u64,
    noticed: u64,
    violations: Vec<String>,
    /// Whether the test expects violations. It does not print them then.
    pub(crate) expects_violations: bool,
    /// When the present case began, in milliseconds after `started`.
    watch: Arc<Watch>,
}

struct Watch {
    started: Instant,
    case_began_ms: AtomicU64,
    is_done: AtomicBool,
}

impl<'f> Campaign<'f> {
    pub(crate) fn new(fixture: &'f Fixture, name: &str) -> Self {
        let started = Instant::now();
        let watch =
            Arc::new(Watch { started, case_began_ms: AtomicU64::new(0), is_done: AtomicBool::new(false) });
        let mut campaign = Self {
            fixture,
            name: format!("{name}{}", if fixture.compressed { " (LZ4)" } else { "" }),
            baseline: Baseline { memory: usize::MAX / 2, reads: u64::MAX / 4 },
            started,
            cases: 0,
            intact: 0,
            refused: 0,
            noticed: 0,
            violations: Vec::new(),
            expects_violations: false,
            watch,
        };
        campaign.measure_baseline();
        campaign.start_guard();
        campaign
    }

    fn measure_baseline(&mut self) {
        for settles in [false, true] {
            let env = self.fixture.machine();
            let (verdict, _, memory) = measure(|| examine(self.fixture, &env, Trust::Full, settles));
            assert_eq!(verdict, Ok(Verdict::Intact), "the intact store");
            self.baseline = Baseline { memory, reads: env.read_count() };
        }
    }

    /// Ends the process if a case hangs.
    fn start_guard(&self) {
        let (watch, name) = (Arc::clone(&self.watch), self.name.clone());
        std::thread::spawn(move || {
            while !watch.is_done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(500));
                let began = Duration::from_millis(watch.case_began_ms.load(Ordering::Relaxed));
                if watch.started.elapsed().saturating_sub(began) > CASE_TIME_MAX {
                    eprintln!("{name}: a case hangs; the last line says which");
                    std::process::abort();
                }
            }
        });
    }

    /// One case: `file` with `damage`.
    pub(crate) fn run(&mut self, file: &StoreFile, damage: &Damage, trust: Trust) {
        self.cases += 1;
        let settles = self.cases.is_multiple_of(4);
        let began = self.started.elapsed();
        self.watch
            .case_began_ms
            .store(u64::try_from(began.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let env = self.fixture.machine();
        let damaged = damage.apply(&file.bytes);
        // Taken before the open, because recovery may shorten or remove the file.
        let len = damaged.as_ref().map_or(0, Vec::len).max(file.bytes.len());
        match damaged {
            Some(bytes) => env.write_file(&file.path(), &bytes),
            None => env.remove_file(&file.path()).expect("the simulator removes files"),
        }
        let examine = || match trust {
            Trust::Full => examine(self.fixture, &env, trust, settles),
            Trust::FullWithout(site) => {
                failpoint::with_skipped(site, || examine(self.fixture, &env, Trust::Full, settles))
            }
            Trust::Forged(site) => {
                failpoint::with_skipped(site, || examine(self.fixture, &env, trust, settles))
            }
        };
        let (outcome, _, memory) = measure(|| catch_unwind(AssertUnwindSafe(examine)));
        let violation = match outcome {
            Ok(Ok(verdict)) => {
                self.count(verdict);
                self.check_cost(len, &env, memory, trust)
            }
            Ok(Err(message)) => Some(message),
            Err(panic) => Some(format!("a panic: {}", panic_text(&*panic))),
        };
        if let Some(message) = violation {
            self.report(format!("{} {damage:?}, {trust:?}: {message}", file.name));
        }
    }

    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Intact => self.intact += 1,
            Verdict::Refused(_) => self.refused += 1,
            Verdict::Noticed => self.noticed += 1,
        }
    }

    /// The violation, if a case cost too much. `len`: the length of its file before or after the damage, whichever is larger.
    fn check_cost(&self, len: usize, env: &SimEnv, memory: usize, trust: Trust) -> Option<String> {
        let forged = if matches!(trust, Trust::Forged(_)) { FORGED_MEMORY } else { 0 };
        // What a reader keeps of damage takes some KiB, however short the file is. And jobs have buffers of 64 KiB: damage
        // decides which of them are there at the same time.
        let memory_max = self.baseline.memory + (4 * len).clamp(96 << 10, 64 << 20) + forged;
        if memory > memory_max {
            return Some(format!(
                "{memory} bytes were allocated, {} for the intact store",
                self.baseline.memory
            ));
        }
        let reads_max = 4 * self.baseline.reads + 1000;
        let reads = env.read_count();
        (reads > reads_max).then(|| format!("{reads} reads, {} for the intact store", self.baseline.reads))
    }

    fn report(&mut self, message: String) {
        if !self.expects_violations && self.violations.len() < PRINTED_MAX {
            println!("VIOLATION: {}: {message}", self.name);
        }
        self.violations.push(message);
    }

    /// The number of cases with a violation.
    pub(crate) fn violations(&self) -> usize {
        self.violations.len()
    }

    /// Prints the counts. Panics if there was a violation.
    pub(crate) fn finish(self) {
        let elapsed = self.started.elapsed();
        let rate = u128::from(self.cases) * 1000 / elapsed.as_millis().max(1);
        println!(
            "{}: {} cases in {elapsed:.1?} ({rate}/s): {} refused, {} noticed when read, {} harmless, {} violations",
            self.name,
            self.cases,
            self.refused,
            self.noticed,
            self.intact,
            self.violations.len(),
        );
        assert!(self.violations.is_empty(), "{}: {} violations", self.name, self.violations.len());
    }
}

impl Drop for Campaign<'_> {
    fn drop(&mut self) {
        self.watch.is_done.store(true, Ordering::Relaxed);
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "?".to_owned())
}
