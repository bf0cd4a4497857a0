//! Planned workloads: a workload with its numbers of threads and of operations, as the command line names it.

use super::table::{Workload, find};

/// Most threads of a workload: far more than a machine has.
const THREADS_MAX: usize = 4096;

/// One entry of `--workloads`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) workload: Workload,
    pub(crate) threads: usize,
    /// Its own number of operations.
    pub(crate) ops: Option<u64>,
    /// How often the list has it before. Each turn draws other keys.
    pub(crate) turn: u64,
}

impl Planned {
    /// Reads `readrandom`, which has `threads`, `readrandom@2`, which has its own number, and `readrandom:500` or
    /// `readrandom@2:500`, which has its own number of operations too.
    ///
    /// # Errors
    /// If there is no such workload, or a number is wrong.
    pub(crate) fn parse(text: &str, threads: usize) -> Result<Self, String> {
        let (planned, ops) = split(text, ':');
        let (name, own) = split(planned, '@');
        let workload = *find(name)
            .ok_or_else(|| format!("there is no workload {name:?}; `pleach-bench list` shows them"))?;
        let threads = match own {
            None => threads,
            Some(own) => own.parse().map_err(|_| format!("{text:?}: {own:?} is not a number of threads"))?,
        };
        if threads == 0 || threads > THREADS_MAX {
            return Err(format!("{text:?}: threads must be 1 to {THREADS_MAX}"));
        }
        let ops = match ops.map(str::parse) {
            None => None,
            Some(Ok(ops)) if ops > 0 => Some(ops),
            Some(_) => return Err(format!("{text:?}: operations must be a number from 1 on")),
        };
        Ok(Self { workload, threads, ops, turn: 0 })
    }
}

/// What stands before and after a mark, if it is there.
fn split(text: &str, mark: char) -> (&str, Option<&str>) {
    text.split_once(mark).map_or((text, None), |(name, own)| (name, Some(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_bring_its_threads_and_operations() {
        let parse = |text| {
            Planned::parse(text, 3).map(|planned| (planned.workload.name, planned.threads, planned.ops))
        };
        assert_eq!(parse("readrandom"), Ok(("readrandom", 3, None)));
        assert_eq!(parse("readrandom@2"), Ok(("readrandom", 2, None)));
        assert_eq!(parse("readrandom:7"), Ok(("readrandom", 3, Some(7))));
        assert_eq!(parse("readrandom@2:7"), Ok(("readrandom", 2, Some(7))));
        for wrong in ["", "@2", "readrandom@", "readrandom@0", "readrandom@-1", "readrandom@5000", "none@2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["readrandom:", "readrandom:0", "readrandom:-1", "readrandom:7@2", ":7"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
