//! Waiting for an engine that does not say when its background work has ended.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pleach_bench::Result;

/// How often an engine is looked at: short beside the seconds that settling takes.
const LOOK: Duration = Duration::from_millis(20);

/// So many equal looks in a row count as quiet: 200 ms, longer than an engine pauses between two compactions.
const EQUAL_LOOKS: u32 = 10;

/// Waits until `look`, which tells whether there is known to be work and something that changes with it, has seen no
/// work and the same thing for a while. Fails when there is work and nothing has changed for `patience`.
pub(crate) fn wait_until_quiet<T: PartialEq>(
    patience: Duration,
    mut look: impl FnMut() -> Result<(bool, T)>,
) -> Result<()> {
    let (mut busy, mut last) = look()?;
    let mut unchanged_since = Instant::now();
    let mut equal_looks = 0;
    while busy || equal_looks < EQUAL_LOOKS {
        std::thread::sleep(LOOK);
        let (is_busy, now) = look()?;
        if now == last {
            equal_looks += 1;
        } else {
            equal_looks = 0;
            unchanged_since = Instant::now();
        }
        (busy, last) = (is_busy, now);
        if busy && unchanged_since.elapsed() > patience {
            return Err("the engine has work to do and does not do it".into());
        }
    }
    Ok(())
}

/// Sum of the lengths of all files below a folder, which grows while a file is written. Files that vanish meanwhile
/// count nothing.
pub(crate) fn file_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => file_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(of_entry).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_is_the_same_for_a_while() {
        let mut looks = 0;
        wait_until_quiet(Duration::from_secs(60), || {
            looks += 1;
            Ok((looks == 15, looks.min(5)))
        })
        .expect("it becomes quiet");
        assert_eq!(
            looks, 16,
            "ten equal looks from the fifth on, and one more because the fifteenth was busy"
        );
    }

    #[test]
    fn work_that_nobody_does_is_an_error() {
        assert!(wait_until_quiet(Duration::ZERO, || Ok((true, 0))).is_err());
    }
}
