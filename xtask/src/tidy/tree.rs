//! The files of the project: what git tracks or would track, with their text.

use std::path::Path;
use std::process::Command;

use super::tokens::{self, Token};

/// A text file of the project.
pub(crate) struct SourceFile {
    /// Relative to the root, with `/` between folders.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Tokens of a Rust source, empty for other files; an error where the file is not made of Rust tokens.
    pub(super) tokens: Result<Vec<Token>, String>,
}

impl SourceFile {
    fn new(path: String, text: String) -> Self {
        let tokens = if has_extension(&path, "rs") { tokens::tokenize(&text) } else { Ok(Vec::new()) };
        Self { path, text, tokens }
    }

    /// The tokens; none where the file has no valid ones, which is reported by a check of its own.
    pub(super) fn tokens(&self) -> &[Token] {
        self.tokens.as_deref().unwrap_or(&[])
    }

    /// Whether the whole file is test, benchmark, example or fuzzing code.
    pub(super) fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| {
            matches!(part, "tests" | "tests.rs" | "benches" | "examples" | "testdata" | "fuzz_targets")
        })
    }
}

/// All files of the project.
pub(crate) struct Tree {
    /// Sorted by path.
    files: Vec<SourceFile>,
    /// Paths of files whose bytes are not text; they exist for links and nothing else.
    binary: Vec<String>,
}

impl Tree {
    /// Reads every file that git tracks, or would track if it were added.
    pub(crate) fn load(root: &Path) -> Result<Self, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cannot start git: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let listing = String::from_utf8(output.stdout).map_err(|_| "a file name is not UTF-8")?;
        let mut paths: Vec<&str> = listing.split_terminator('\0').collect();
        paths.sort_unstable();
        paths.dedup();

        let mut tree = Self { files: Vec::new(), binary: Vec::new() };
        for path in paths {
            // A file deleted but not yet committed is still listed.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            match String::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => tree.files.push(SourceFile::new(path.to_owned(), text)),
                _ => tree.binary.push(path.to_owned()),
            }
        }
        Ok(tree)
    }

    /// A tree for tests, from paths and texts.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile::new((*path).into(), (*text).into())).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { files, binary: Vec::new() }
    }

    /// Every text file.
    pub(crate) fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }

    /// Every file whose name ends with `.extension`.
    pub(super) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| has_extension(&file.path, extension))
    }

    /// The text file at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&SourceFile> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[at])
    }

    /// The path of every file.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| &file.path).chain(&self.binary).map(String::as_str)
    }

    /// Whether `path` is a file of the project or a folder that holds one; the empty path is the root.
    pub(super) fn exists(&self, path: &str) -> bool {
        let mut paths = self.files.iter().map(|file| &file.path).chain(&self.binary);
        path.is_empty()
            || paths.any(|other| {
                other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }
}

/// Whether the name at `path` ends with `.extension`.
pub(super) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_when_they_hold_a_file() {
        let tree = Tree::of(&[("docs/format/sst.md", ""), ("a.rs", "")]);
        assert!(tree.exists("docs/format/sst.md") && tree.exists("docs") && tree.exists(""));
        assert!(!tree.exists("doc") && !tree.exists("docs/format/s"));
        assert!(tree.get("a.rs").is_some() && tree.get("b.rs").is_none());
    }

    #[test]
    fn test_files_are_known_by_their_path() {
        let tree =
            Tree::of(&[("a/src/x/tests.rs", ""), ("a/tests/it/main.rs", ""), ("a/src/contests.rs", "")]);
        let is_test: Vec<bool> = tree.files().map(SourceFile::is_test).collect();
        assert_eq!(is_test, [false, true, true]);
    }
}
