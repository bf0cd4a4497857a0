//! Every barrier and check of the workspace, by the name under which it can be switched off.
//!
//! The table is complete: a test reads the sources. docs/testing/planted-bugs.md shows it to people.

use std::path::{Path, PathBuf};

/// Which rig must notice that the site is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Catcher {
    Crash,
    Damage,
}

/// One barrier or check.
pub(super) struct Site {
    pub(super) name: &'static str,
    pub(super) catcher: Catcher,
}

const fn site(name: &'static str, catcher: Catcher) -> Site {
    Site { name, catcher }
}

/// All of them.
pub(super) const SITES: &[Site] = &[
    site("log.sync", Catcher::Crash),
    site("log.dir_sync", Catcher::Crash),
    site("log.fence_sync", Catcher::Crash),
    site("sst.sync", Catcher::Crash),
    site("value_segment.sync", Catcher::Crash),
    site("values.sync", Catcher::Crash),
    site("conversion.sync", Catcher::Crash),
    site("moved.sync", Catcher::Crash),
    site("moved.dir_sync", Catcher::Crash),
    site("flush.dir_sync", Catcher::Crash),
    site("compaction.dir_sync", Catcher::Crash),
    site("manifest.sync", Catcher::Crash),
    site("manifest.dir_sync", Catcher::Crash),
    site("current.sync", Catcher::Crash),
    site("current.dir_sync", Catcher::Crash),
    site("log.record.crc", Catcher::Damage),
    site("log.header.crc", Catcher::Damage),
    site("current.crc", Catcher::Damage),
    site("sst.block.crc", Catcher::Damage),
    site("sst.tail.crc", Catcher::Damage),
    site("sst.footer.crc", Catcher::Damage),
    site("value.crc", Catcher::Damage),
];

/// The sites whose absence `catcher` must notice.
pub(super) fn sites_of(catcher: Catcher) -> Vec<&'static str> {
    SITES.iter().filter(|site| site.catcher == catcher).map(|site| site.name).collect()
}

/// Last parts of the names of sites.
const ENDINGS: [&str; 4] = ["sync", "dir_sync", "fence_sync", "crc"];

#[test]
fn the_table_names_every_site_of_the_sources() {
    let mut found: Vec<_> = sources().iter().flat_map(|(_, text)| names_in(text)).collect();
    found.sort_unstable();
    found.dedup();
    let mut listed: Vec<_> = SITES.iter().map(|site| site.name.to_owned()).collect();
    listed.sort_unstable();
    assert_eq!(found, listed, "left: the sources; right: the table");
}

/// A call of a barrier names its site, or passes on the name that its caller gave.
#[test]
fn no_barrier_or_check_goes_without_a_name() {
    for (path, text) in sources() {
        // The environment defines the barriers.
        if path.to_string_lossy().contains("pleach-env") {
            continue;
        }
        for (number, line) in code(&text) {
            let nameless = [".sync_dir(", "file.sync(", "writer.sync(", "skipped("].iter().any(|call| {
                let arguments = line.split_once(call).map(|(_, rest)| rest);
                let passes_on = |rest: &str| rest.contains("site");
                arguments.is_some_and(|rest| names_in(rest).is_empty() && !passes_on(rest))
            });
            assert!(!nameless, "{}:{number}: {line}", path.display());
        }
    }
}

/// The lines of code, without comments and unit tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code);
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    lines.filter(|(_, line)| !line.starts_with("//"))
}

/// String literals that look like a site's name.
fn names_in(text: &str) -> Vec<String> {
    let literals = code(text).flat_map(|(_, line)| line.split('"').skip(1).step_by(2));
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let is_name = |literal: &&str| {
        let parts: Vec<_> = literal.split('.').collect();
        let ends_right = parts.last().is_some_and(|last| ENDINGS.contains(last));
        parts.len() > 1 && ends_right && parts.iter().all(|part| is_word(part))
    };
    literals.filter(is_name).map(str::to_owned).collect()
}

/// Sources of the workspace's crates, without their tests. `pleach-reshape` stands above the engine, and its barriers are those
/// of the stores that it uses, which its own crash test takes away.
fn sources() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Vec::new();
    for name in list(&crates) {
        if !name.ends_with("pleach-reshape") {
            read_sources(&name.join("src"), &mut sources);
        }
    }
    assert!(sources.len() > 50, "the sources were found");
    sources
}

fn read_sources(dir: &Path, sources: &mut Vec<(PathBuf, String)>) {
    for path in list(dir) {
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|e| e == "rs")
            && path.file_name().is_some_and(|n| n != "tests.rs")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            sources.push((path, text));
        }
    }
}

fn list(dir: &Path) -> Vec<PathBuf> {
    if !dir.is_dir() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}
