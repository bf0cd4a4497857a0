//! One run of a test, and its outcome.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A run that takes longer hangs: the longest test takes half a minute without a plant.
const TIME_MAX: Duration = Duration::from_secs(120);

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The filter fits no test.
    NoTest,
    /// The first test that failed.
    Failed(String),
    /// The process died.
    Died(String),
    Hangs,
}

impl Verdict {
    /// Whether a plant that leads to this is noticed.
    pub(super) fn is_noticed(&self) -> bool {
        !matches!(self, Self::Passed | Self::NoTest)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "NOT NOTICED"),
            Self::NoTest => write!(f, "there is no such test"),
            Self::Failed(test) => write!(f, "noticed by {test}"),
            Self::Died(status) => write!(f, "noticed: the test died, {status}"),
            Self::Hangs => write!(f, "noticed: the test does not end within {} s", TIME_MAX.as_secs()),
        }
    }
}

/// Runs the executable of tests that `command` names, with its output in the file at `output`.
pub(super) fn run(mut command: Command, output: &Path) -> Result<Verdict, String> {
    let (status, text) = (|| {
        let file = File::create(output)?;
        let mut child = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if start.elapsed() > TIME_MAX {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok((status, String::from_utf8_lossy(&fs::read(output)?).into_owned()))
    })()
    .map_err(|error: std::io::Error| format!("cannot run {command:?}: {error}"))?;
    Ok(match status {
        None => Verdict::Hangs,
        Some(status) if status.success() && text.contains("\nrunning 0 tests") => Verdict::NoTest,
        Some(status) if status.success() => Verdict::Passed,
        Some(status) => failed_test(&text).map_or(Verdict::Died(status.to_string()), Verdict::Failed),
    })
}

/// The first test that libtest reports as failed.
fn failed_test(output: &str) -> Option<String> {
    let failed = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    output.lines().find_map(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(script: &str) -> Verdict {
        let output = std::env::temp_dir().join(format!("pleach-plants-{}", std::process::id()));
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        let verdict = run(shell, &output).unwrap();
        fs::remove_file(output).unwrap();
        verdict
    }

    #[test]
    fn a_run_fails_passes_or_dies() {
        assert_eq!(verdict("echo; echo 'running 1 test'; echo 'test a ... ok'"), Verdict::Passed);
        assert_eq!(verdict("echo; echo 'running 0 tests'"), Verdict::NoTest);
        assert_eq!(verdict("echo 'test a::b ... FAILED'; exit 101"), Verdict::Failed("a::b".into()));
        assert!(matches!(verdict("kill -9 $$"), Verdict::Died(_)));
    }
}
