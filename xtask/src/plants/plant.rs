//! One plant: its file, parsed.
//!
//! ```text
//! bug: One sentence that says what is wrong.
//! test: cargo test -p pleach --test it name_of_the_test
//! --- crates/pleach/src/path.rs
//! the old text, which stands exactly once in that file
//! +++
//! the new text
//! ```
//!
//! White space does not count in the old text. There may be several changes, and several tests, all of which must fail. A
//! test is a command that works as it stands there; it may begin with variables (`NAME=value cargo test ..`).

use std::fmt;

/// Where the plants are.
pub(crate) const FOLDER: &str = "plants/";

/// A bug and the tests that must notice it.
#[derive(Debug)]
pub(crate) struct Plant {
    /// The name of the file, without its ending.
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) bug: String,
    pub(crate) tests: Vec<Test>,
    pub(crate) changes: Vec<Change>,
}

/// One place of the sources.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

/// A command that runs tests of one executable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    pub(crate) package: String,
    /// The integration test of this name; otherwise the unit tests.
    pub(crate) integration: Option<String>,
    /// A part of the tests' paths.
    pub(crate) filter: String,
    pub(crate) variables: Vec<(String, String)>,
}

impl Plant {
    /// Parses the text of the file at `path`.
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, String> {
        let name = path.trim_start_matches(FOLDER).trim_end_matches(".txt").to_owned();
        let (head, changes) = text.split_once("\n--- ").ok_or("no change: a line `--- PATH` is missing")?;
        let bug = head.lines().find_map(|line| line.strip_prefix("bug: ")).ok_or("no line `bug: ..`")?;
        let tests = head.lines().filter_map(|line| line.strip_prefix("test: ")).map(Test::parse);
        let tests = tests.collect::<Result<Vec<_>, _>>()?;
        if tests.is_empty() {
            return Err("no line `test: ..`".into());
        }
        let changes = changes.split("\n--- ").map(Change::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { name, path: path.to_owned(), bug: bug.to_owned(), tests, changes })
    }
}

impl Change {
    fn parse(text: &str) -> Result<Self, String> {
        let (path, texts) = text.split_once('\n').ok_or("a change without text")?;
        let (old, new) = texts.split_once("\n+++\n").ok_or("a change without a line `+++`")?;
        if old.trim().is_empty() {
            return Err("a change without old text".into());
        }
        Ok(Self { path: path.trim().into(), old: old.trim().into(), new: new.trim().into() })
    }
}

impl Test {
    fn parse(command: &str) -> Result<Self, String> {
        let malformed = || {
            format!("expected `[NAME=value] cargo test -p PACKAGE (--lib | --test NAME) FILTER`: {command}")
        };
        let words: Vec<&str> = command.split_whitespace().collect();
        let is_cargo = |word: &&str| *word == "cargo";
        let (variables, command) = words.split_at(words.iter().position(is_cargo).ok_or_else(malformed)?);
        let variable = |word: &&str| word.split_once('=').map(|(name, value)| (name.into(), value.into()));
        let variables: Option<Vec<_>> = variables.iter().map(variable).collect();
        let (package, integration, filter) = match command {
            ["cargo", "test", "-p", package, "--lib", filter] => (package, None, filter),
            ["cargo", "test", "-p", package, "--test", name, filter] => (package, Some(name), filter),
            _ => return Err(malformed()),
        };
        Ok(Self {
            package: (*package).into(),
            integration: integration.map(|name| (*name).into()),
            filter: (*filter).into(),
            variables: variables.ok_or_else(malformed)?,
        })
    }

    /// The name of the function that is the test, or of a module of tests.
    pub(crate) fn function(&self) -> &str {
        self.filter.rsplit("::").find(|part| !part.is_empty()).unwrap_or_default()
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "cargo test -p {} ", self.package)?;
        match &self.integration {
            None => write!(f, "--lib {}", self.filter),
            Some(name) => write!(f, "--test {name} {}", self.filter),
        }
    }
}

/// The plants as a table in Markdown.
pub(crate) fn table(plants: &[Plant]) -> String {
    let row = |Plant { name, bug, tests, .. }: &Plant| {
        let tests: Vec<_> =
            tests.iter().map(|test| format!("`{}` `{}`", test.package, test.filter)).collect();
        format!("| `{name}` | {bug} | {} |\n", tests.join(", "))
    };
    let rows: String = plants.iter().map(row).collect();
    format!("| plant | bug | noticed by |\n|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANT: &str = "bug: A sync is missing.\ntest: N=1 cargo test -p a --test it b::c\n--- x.rs\n  sync();\n+++\n\
                         if !PLANTED { sync(); }\n--- y.rs\na\n+++\n\n";

    #[test]
    fn a_plant_has_a_bug_a_test_and_changes() {
        let plant = Plant::parse("plants/no_sync.txt", PLANT).unwrap();
        assert_eq!((&*plant.name, &*plant.bug), ("no_sync", "A sync is missing."));
        assert_eq!(plant.tests[0].to_string(), "N=1 cargo test -p a --test it b::c");
        assert_eq!(plant.tests[0].function(), "c");
        let change =
            |path: &str, old: &str, new: &str| Change { path: path.into(), old: old.into(), new: new.into() };
        let expected = [change("x.rs", "sync();", "if !PLANTED { sync(); }"), change("y.rs", "a", "")];
        assert_eq!(plant.changes, expected);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error_without = |part: &str| Plant::parse("plants/a.txt", &PLANT.replace(part, "")).unwrap_err();
        assert!(error_without("bug: ").contains("`bug: ..`"));
        assert!(error_without("test: ").contains("`test: ..`"));
        assert!(error_without("--test it").contains("FILTER"));
        assert!(error_without("\n+++").contains("`+++`"));
        assert!(error_without("--- ").contains("`--- PATH`"));
    }
}
