//! Planned workloads: a workload with the number of threads it runs with, as the command line names it.

use super::table::{Workload, find};

/// Most threads of a workload: far more than a machine has.
const THREADS_MAX: usize = 4096;

/// One entry of `--workloads`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) workload: Workload,
    pub(crate) threads: usize,
}

impl Planned {
    /// Reads `readrandom`, which has `threads`, or `readrandom@2`, which has its own number.
    ///
    /// # Errors
    /// If there is no such workload, or the number is wrong.
    pub(crate) fn parse(text: &str, threads: usize) -> Result<Self, String> {
        let (name, own) = text.split_once('@').map_or((text, None), |(name, own)| (name, Some(own)));
        let workload = *find(name)
            .ok_or_else(|| format!("there is no workload {name:?}; `pleach-bench list` shows them"))?;
        let threads = match own {
            None => threads,
            Some(own) => own.parse().map_err(|_| format!("{text:?}: {own:?} is not a number of threads"))?,
        };
        if threads == 0 || threads > THREADS_MAX {
            return Err(format!("{text:?}: threads must be 1 to {THREADS_MAX}"));
        }
        Ok(Self { workload, threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_bring_its_threads() {
        let parse = |text| Planned::parse(text, 3).map(|planned| (planned.workload.name, planned.threads));
        assert_eq!(parse("readrandom"), Ok(("readrandom", 3)));
        assert_eq!(parse("readrandom@2"), Ok(("readrandom", 2)));
        for wrong in ["", "@2", "readrandom@", "readrandom@0", "readrandom@-1", "readrandom@5000", "none@2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
