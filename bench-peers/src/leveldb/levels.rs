//! What LevelDB tells about its levels, read from the texts of its properties.

/// Level 0 is compacted when it has so many files, the others when they have more than [`LEVEL_1_BYTES`], times ten for
/// each level: constants of LevelDB.
const LEVEL_0_FILES: usize = 4;
const LEVEL_1_BYTES: u64 = 10 << 20;

/// Files and bytes of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) files: usize,
    pub(super) bytes: u64,
}

/// The levels, from the property `leveldb.sstables`: a line for each level, followed by a line `number:size[range]` for
/// each file.
pub(super) fn levels(text: &str) -> Vec<Level> {
    let mut levels = Vec::new();
    for line in text.lines() {
        if line.starts_with("--- level ") {
            levels.push(Level::default());
        } else if let (Some(level), Some(bytes)) = (levels.last_mut(), file_bytes(line)) {
            level.files += 1;
            level.bytes += bytes;
        }
    }
    levels
}

fn file_bytes(line: &str) -> Option<u64> {
    let (_number, rest) = line.split_once(':')?;
    rest.split_once('[')?.0.trim().parse().ok()
}

/// Whether a compaction is due by the size of a level. The last level is never compacted.
pub(super) fn compaction_is_due(levels: &[Level]) -> bool {
    let Some((first, rest)) = levels.split_first() else { return false };
    let upper = &rest[..rest.len().saturating_sub(1)];
    let limits = std::iter::successors(Some(LEVEL_1_BYTES), |bytes| Some(bytes * 10));
    first.files >= LEVEL_0_FILES || upper.iter().zip(limits).any(|(level, limit)| level.bytes >= limit)
}

/// What compactions have read and written since the database was opened, in MiB, from the property `leveldb.stats`: two
/// lines of headings, then a line for each level with its number, files, size, seconds, MiB read and MiB written.
pub(super) fn compaction_mib(text: &str) -> (u64, u64) {
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|words| words.len() == 6 && words.iter().all(|word| word.parse::<f64>().is_ok()))
        .map(|words| (number(words.get(4).copied()), number(words.get(5).copied())))
        .fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SSTABLES: &str = "--- level 0 ---\n 17:123['a' @ 1 : 1 .. 'd' @ 2 : 1]\n 18:77['x:[' @ 1 : 1 .. 'y' @ 2 : 1]\n\
        --- level 1 ---\n 5:10485760['a' @ 1 : 1 .. 'b' @ 2 : 1]\n--- level 2 ---\n";

    #[test]
    fn files_are_counted_by_level() {
        let seen = levels(SSTABLES);
        let expected = [(2, 200), (1, 10 << 20), (0, 0)].map(|(files, bytes)| Level { files, bytes });
        assert_eq!(seen, expected);
    }

    #[test]
    fn compactions_are_due_by_files_or_bytes_but_not_in_the_last_level() {
        let level = |files, mib: u64| Level { files, bytes: mib << 20 };
        assert!(!compaction_is_due(&[]));
        assert!(!compaction_is_due(&[level(3, 900), level(1, 9), level(1, 99), level(9, 99_999)]));
        assert!(compaction_is_due(&[level(4, 1), level(1, 9), level(1, 99)]));
        assert!(compaction_is_due(&[level(0, 0), level(1, 10), level(1, 99)]));
        assert!(compaction_is_due(&[level(0, 0), level(1, 9), level(1, 100), level(0, 0)]));
    }

    #[test]
    fn compactions_are_summed_over_levels() {
        let text = "                               Compactions\nLevel  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
            --------------------------------------------------\n  0        1       61         1        0       123\n  \
            1        2       10         2       70        69\n";
        assert_eq!(compaction_mib(text), (70, 192));
    }
}
