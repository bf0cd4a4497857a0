//! Change notes: one small file each in `changes/`, gathered into `CHANGELOG.md` at a release.
//!
//! One file for each note means that work in parallel never meets in `CHANGELOG.md`. The convention is explained in
//! `changes/README.md`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Kinds of change, in the order in which the changelog lists them, with their headings.
pub(crate) const KINDS: [(&str, &str); 5] = [
    ("added", "Added"),
    ("changed", "Changed"),
    ("fixed", "Fixed"),
    ("performance", "Performance"),
    ("format", "On-disk format"),
];

const EMPTY_CHANGELOG: &str = "# Changelog\n\nWhat a user of Pleach sees, newest release first.\n";

/// A parsed change note.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Index in [`KINDS`].
    kind: usize,
    /// Text of the note, trimmed.
    body: String,
}

/// Reads one note; the error says what its text should look like.
pub(crate) fn parse(text: &str) -> Result<Note, String> {
    let (front, body) = text.split_once('\n').unwrap_or((text, ""));
    let names = KINDS.map(|(name, _)| name).join("|");
    let Some(kind) = front.strip_prefix("kind:").map(str::trim) else {
        return Err(format!("the first line must be `kind: {names}`"));
    };
    let Some(kind) = KINDS.iter().position(|(name, _)| *name == kind) else {
        return Err(format!("unknown kind `{kind}`, expected one of {names}"));
    };
    let body = body.trim();
    if body.is_empty() {
        return Err("the note has no text below its first line".into());
    }
    Ok(Note { kind, body: body.to_owned() })
}

/// Gathers the notes into a section headed `version`, prints it and, unless `dry_run`, moves it to `CHANGELOG.md`.
pub(crate) fn run(root: &Path, version: Option<String>, dry_run: bool) -> Result<(), String> {
    let version = match version {
        Some(version) => version,
        None => workspace_version(&read(&root.join("Cargo.toml"))?)?,
    };
    let paths =
        note_paths(&root.join("changes")).map_err(|error| format!("cannot list changes/: {error}"))?;
    if paths.is_empty() {
        println!("no notes in changes/");
        return Ok(());
    }
    let mut notes = Vec::new();
    for path in &paths {
        notes.push(parse(&read(path)?).map_err(|message| format!("{}:1: {message}", path.display()))?);
    }
    let section = render(&version, &notes);
    print!("{section}");
    if dry_run {
        return Ok(());
    }
    let target = root.join("CHANGELOG.md");
    let before = if target.exists() { read(&target)? } else { EMPTY_CHANGELOG.to_owned() };
    let after = insert(&before, &version, &section)?;
    fs::write(&target, after).map_err(|error| format!("cannot write CHANGELOG.md: {error}"))?;
    for path in &paths {
        fs::remove_file(path).map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Paths of all notes, sorted, so that the result does not depend on the file system's order.
fn note_paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        if is_markdown && path.file_name().is_some_and(|name| name != "README.md") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn workspace_version(manifest: &str) -> Result<String, String> {
    let package = manifest.split("[workspace.package]").nth(1).unwrap_or("");
    let line = package.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|rest| rest.strip_suffix('"'));
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml has no [workspace.package] version".into())
}

fn render(version: &str, notes: &[Note]) -> String {
    let mut section = format!("## {version}\n");
    for (kind, (_, heading)) in KINDS.iter().enumerate() {
        let mut of_kind = notes.iter().filter(|note| note.kind == kind).peekable();
        if of_kind.peek().is_some() {
            write!(section, "\n### {heading}\n\n").expect("writing to a String cannot fail");
        }
        for note in of_kind {
            section.push_str("- ");
            section.push_str(&note.body.replace('\n', "\n  ").replace("\n  \n", "\n\n"));
            section.push('\n');
        }
    }
    section
}

/// Puts `section` above the newest release.
fn insert(changelog: &str, version: &str, section: &str) -> Result<String, String> {
    let heading = format!("## {version}");
    if changelog.lines().any(|line| line == heading) {
        return Err(format!("CHANGELOG.md has a section {version} already; name another with --version"));
    }
    let newest = changelog.find("\n## ").map(|at| at + 1);
    let (intro, releases) = changelog.split_at(newest.unwrap_or(changelog.len()));
    let gap = if releases.is_empty() { "" } else { "\n" };
    Ok(format!("{}\n\n{section}{gap}{releases}", intro.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_needs_a_known_kind_and_a_text() {
        assert_eq!(parse("kind: fixed\n\nIt works.\n"), Ok(Note { kind: 2, body: "It works.".into() }));
        assert!(parse("It works.\n").unwrap_err().contains("first line"));
        assert!(parse("kind: broken\nx\n").unwrap_err().contains("`broken`"));
        assert!(parse("kind: added\n\n").unwrap_err().contains("no text"));
    }

    #[test]
    fn section_groups_by_kind_and_indents_paragraphs() {
        let notes = [
            parse("kind: fixed\nOne\ntwo.").unwrap(),
            parse("kind: added\nFirst.\n\nSecond.").unwrap(),
            parse("kind: fixed\nThree.").unwrap(),
        ];
        let expected =
            "## 0.2.0\n\n### Added\n\n- First.\n\n  Second.\n\n### Fixed\n\n- One\n  two.\n- Three.\n";
        assert_eq!(render("0.2.0", &notes), expected);
    }

    #[test]
    fn newest_release_comes_first() {
        let first = insert(EMPTY_CHANGELOG, "0.1.0", "## 0.1.0\n\n- a\n").unwrap();
        let second = insert(&first, "0.2.0", "## 0.2.0\n\n- b\n").unwrap();
        assert!(second.ends_with("first.\n\n## 0.2.0\n\n- b\n\n## 0.1.0\n\n- a\n"), "{second}");
        assert!(insert(&second, "0.1.0", "").is_err());
    }

    #[test]
    fn version_comes_from_the_workspace() {
        let manifest = "[workspace]\nversion = \"9\"\n[workspace.package]\nversion = \"0.1.0\"\n";
        assert_eq!(workspace_version(manifest), Ok("0.1.0".into()));
        assert!(workspace_version("[workspace]\n").is_err());
    }

    #[test]
    fn notes_move_to_the_changelog_and_vanish() {
        let root = std::env::temp_dir().join(format!("pleach-changelog-{}", std::process::id()));
        fs::create_dir_all(root.join("changes")).unwrap();
        fs::write(root.join("changes/README.md"), "# Notes\n").unwrap();
        fs::write(root.join("changes/a.md"), "kind: added\nA thing.\n").unwrap();
        run(&root, Some("1.0.0".into()), true).unwrap();
        assert!(!root.join("CHANGELOG.md").exists());
        run(&root, Some("1.0.0".into()), false).unwrap();
        assert!(fs::read_to_string(root.join("CHANGELOG.md")).unwrap().contains("- A thing."));
        assert_eq!(note_paths(&root.join("changes")).unwrap(), Vec::<PathBuf>::new());
        fs::remove_dir_all(&root).unwrap();
    }
}
