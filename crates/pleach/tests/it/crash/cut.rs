//! Cut: one crash, given by the call before which it comes and by what the disk keeps. A list of cuts can be printed and parsed
//! (`PLEACH_REPLAY`), so that a run can be repeated.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;
use pleach::env::CrashPolicy;

/// One crash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Number of the call before which it comes.
    pub(super) op: u64,
    pub(super) policy: CrashPolicy,
    pub(super) seed: u64,
}

impl Cut {
    pub(super) fn random(op: u64, rng: &mut Rng) -> Self {
        let policy = match rng.u8(..14) {
            0 => CrashPolicy::DurableOnly,
            1 => CrashPolicy::Everything,
            2 => CrashPolicy::ProcessKill,
            3..8 => CrashPolicy::Random,
            8..10 => CrashPolicy::Adversarial,
            10 | 11 => CrashPolicy::Between,
            _ => CrashPolicy::DataFirst,
        };
        Self { op, policy, seed: rng.u64(..) }
    }

    pub(super) fn kills_process_only(&self) -> bool {
        self.policy == CrashPolicy::ProcessKill
    }
}

/// A history and the crashes that came one after the other: `history@op/policy/seed,op/policy/seed`.
pub(super) struct Replay {
    pub(super) history: u64,
    pub(super) cuts: Vec<Cut>,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.history)?;
        for (number, Cut { op, policy, seed }) in self.cuts.iter().enumerate() {
            write!(f, "{}{op}/{policy:?}/{seed}", if number == 0 { '@' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Replay {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (history, cuts) = text.split_once('@').ok_or(())?;
        let cuts = cuts.split(',').map(parse_cut).collect::<Option<_>>().ok_or(())?;
        Ok(Self { history: history.parse().map_err(drop)?, cuts })
    }
}

fn parse_cut(text: &str) -> Option<Cut> {
    let mut fields = text.split('/');
    let (op, name, seed) = (fields.next()?, fields.next()?, fields.next()?);
    let policy = CrashPolicy::ALL.into_iter().find(|policy| format!("{policy:?}") == name)?;
    Some(Cut { op: op.parse().ok()?, policy, seed: seed.parse().ok()? })
}
