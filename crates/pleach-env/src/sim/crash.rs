//! The outcome of a crash: the policies, and the chooser that decides by a policy.
//!
//! A policy is a set of probabilities, one per class of pending change. All outcomes of all policies are legal; policies
//! differ in which outcomes are frequent.

use fastrand::Rng;

/// Which pending changes a simulated crash keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrashPolicy {
    /// Nothing pending persists: the most that a power failure can take.
    DurableOnly,
    /// All that was pending persists, apart from what a failed sync has lost.
    Everything,
    /// The process is killed and the machine runs on: nothing is lost, nothing becomes durable. What was pending is
    /// readable and still pending, so that a crash of the image can take it.
    ProcessKill,
    /// Each item persists at random. The probabilities are drawn for each crash and each class of change, so that mostly lost,
    /// mostly kept and mixed classes all occur, and also files that are kept or lost as a whole.
    Random,
    /// Names and sizes early, data late: removals and renames persist, most sizes too, and hardly any data.
    Adversarial,
    /// Data early, names and sizes late: the opposite of [`CrashPolicy::Adversarial`].
    DataFirst,
    /// All that was pending persists, but a sector that was written several times mostly holds what it held between the
    /// first and the last of these writes.
    Between,
}

impl CrashPolicy {
    /// Every policy, for tests that try them in turn.
    pub const ALL: [CrashPolicy; 7] = [
        CrashPolicy::DurableOnly,
        CrashPolicy::Everything,
        CrashPolicy::ProcessKill,
        CrashPolicy::Random,
        CrashPolicy::Adversarial,
        CrashPolicy::DataFirst,
        CrashPolicy::Between,
    ];
}

/// Decides, item by item, what one crash keeps.
pub(super) struct Chooser {
    rng: Rng,
    data: f64,
    sizes: f64,
    creations: f64,
    removals: f64,
    renames: f64,
    /// Whether [`CrashPolicy::Between`] decides about data.
    between: bool,
}

impl Chooser {
    pub(super) fn new(policy: CrashPolicy, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // In half of the biased crashes all items follow the bias, in the others all but about one in ten.
        let doubt = if rng.bool() { 0.0 } else { 0.1 };
        let [data, sizes, creations, removals, renames] = match policy {
            CrashPolicy::DurableOnly => [0.0; 5],
            CrashPolicy::Everything | CrashPolicy::ProcessKill | CrashPolicy::Between => [1.0; 5],
            CrashPolicy::Random => [(); 5].map(|()| bias(&mut rng)),
            CrashPolicy::Adversarial => {
                // Creations come early or late for the whole crash: "input removed, output never named" needs late.
                let creations = if rng.bool() { 1.0 - doubt } else { doubt };
                [doubt, 1.0 - doubt, creations, 1.0 - doubt, 1.0 - doubt]
            }
            CrashPolicy::DataFirst => [1.0 - doubt, doubt, doubt, doubt, doubt],
        };
        let between = policy == CrashPolicy::Between;
        Self { rng, data, sizes, creations, removals, renames, between }
    }

    /// Whether a change of a directory is kept, which creates a name, removes one, or does both (a rename).
    pub(super) fn keeps_name(&mut self, creates: bool, removes: bool) -> bool {
        let probability = match (creates, removes) {
            (true, true) => self.renames,
            (true, false) => self.creations,
            (false, _) => self.removals,
        };
        keeps(&mut self.rng, probability)
    }

    /// Which of the `versions` lengths of a file is kept; the first is the durable one.
    pub(super) fn size(&mut self, versions: usize) -> usize {
        pick(&mut self.rng, self.sizes, versions)
    }

    /// Starts a file that has at most `sectors` dirty sectors.
    pub(super) fn file(&mut self, sectors: usize) -> FileChooser<'_> {
        let Self { rng, data, between, .. } = self;
        let pattern = match rng.u8(0..4) {
            _ if *data <= 0.0 || *data >= 1.0 => Pattern::Each,
            0 if keeps(rng, *data) => Pattern::All,
            0 => Pattern::None,
            1 => Pattern::First(rng.usize(0..=sectors)),
            _ => Pattern::Each,
        };
        FileChooser { rng, data: *data, pattern, block: Pattern::Each, between: *between }
    }
}

/// Decides about the data of one file.
pub(super) struct FileChooser<'a> {
    rng: &'a mut Rng,
    data: f64,
    pattern: Pattern,
    block: Pattern,
    between: bool,
}

/// Outcomes that are more frequent after real write-back than after independent choices.
#[derive(Clone, Copy)]
enum Pattern {
    All,
    None,
    /// So many of the sectors written first are kept.
    First(usize),
    Each,
}

impl FileChooser<'_> {
    /// Starts a block. Half of the blocks are kept or lost as a whole.
    pub(super) fn next_block(&mut self) {
        self.block = match self.rng.bool() {
            true if keeps(self.rng, self.data) => Pattern::All,
            true => Pattern::None,
            false => Pattern::Each,
        };
    }

    /// Which of a sector's `versions` is kept; the first is the durable one.
    pub(super) fn pick(&mut self, versions: usize) -> usize {
        if self.between && versions > 2 && self.rng.u8(0..4) > 0 {
            return self.rng.usize(1..versions - 1);
        }
        let pattern = match &mut self.pattern {
            Pattern::Each => self.block,
            Pattern::First(0) => Pattern::None,
            Pattern::First(left) => {
                *left -= 1;
                Pattern::All
            }
            whole => *whole,
        };
        match pattern {
            Pattern::None => 0,
            Pattern::All | Pattern::First(_) => versions - 1,
            Pattern::Each => pick(self.rng, self.data, versions),
        }
    }
}

/// A probability that is often extreme.
fn bias(rng: &mut Rng) -> f64 {
    match rng.u8(0..6) {
        0 => 0.0,
        1 => 0.05,
        2 => 0.95,
        3 => 1.0,
        _ => rng.f64(),
    }
}

fn keeps(rng: &mut Rng, probability: f64) -> bool {
    rng.f64() < probability
}

/// The durable version, or with `probability` a later one, which is mostly the latest.
fn pick(rng: &mut Rng, probability: f64, versions: usize) -> usize {
    match versions - 1 {
        0 => 0,
        _ if !keeps(rng, probability) => 0,
        latest if probability >= 1.0 || rng.u8(0..4) > 0 => latest,
        latest => rng.usize(1..=latest),
    }
}
