//! File length: over 500 lines needs a listed reason, over 1,000 is too long whatever the reason (STYLE.md rule 7).
//!
//! Test code does not count, neither test files nor test items within a source.

use super::Finding;
use super::exceptions;
use super::tokens::Token;
use super::tree::{SourceFile, Tree};

/// Above this, the exception list must say why.
const LINES_SOFT_MAX: usize = 500;
/// Above this, split.
const LINES_MAX: usize = 1000;

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let entries = exceptions::read(tree).0;
    let listed = |path: &str| entries.iter().any(|(_, listed)| listed == path);
    let mut findings = Vec::new();
    for file in tree.with_extension("rs").filter(|file| !file.is_test()) {
        let length = code_length(file);
        if length > LINES_MAX {
            let message = format!("{length} lines without tests; split it (the limit is {LINES_MAX})");
            findings.push(Finding::new(&file.path, 1, message));
        } else if length > LINES_SOFT_MAX && !listed(&file.path) {
            let message = format!(
                "{length} lines without tests; split it, or say why not in {} (over {LINES_SOFT_MAX})",
                exceptions::PATH
            );
            findings.push(Finding::new(&file.path, 1, message));
        }
    }
    for (line, path) in &entries {
        if tree.get(path).is_none_or(|file| code_length(file) <= LINES_SOFT_MAX) {
            let message = format!("{path} needs no exception any more; remove the line");
            findings.push(Finding::new(exceptions::PATH, *line, message));
        }
    }
    findings
}

/// Lines of the file less those of its test items.
fn code_length(file: &SourceFile) -> usize {
    let tests = file.tokens().chunk_by(|a, b| a.in_test == b.in_test).filter(|chunk| chunk[0].in_test);
    let lines_of = |chunk: &[Token]| chunk[chunk.len() - 1].line - chunk[0].line + 1;
    file.text.lines().count().saturating_sub(tests.map(lines_of).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: usize, tests: usize, exceptions: &str) -> Vec<Finding> {
        let text = format!("{}#[cfg(test)]\nmod tests {{{}}}\n", "\n".repeat(lines), "\n".repeat(tests));
        find(&Tree::of(&[("a.rs", &text), (exceptions::PATH, exceptions)]))
    }

    #[test]
    fn tests_do_not_count() {
        assert!(found(500, 3000, "").is_empty());
        assert_eq!(found(501, 0, "").len(), 1);
    }

    #[test]
    fn a_listed_reason_allows_up_to_the_hard_limit() {
        assert!(found(501, 0, "file a.rs: one state machine\n").is_empty());
        assert!(found(1001, 0, "file a.rs: one state machine\n")[0].message.contains("1001 lines"));
    }

    #[test]
    fn a_needless_entry_must_go() {
        assert!(found(500, 0, "file a.rs: x\n")[0].message.contains("remove"));
        assert_eq!(found(1, 0, "file gone.rs: x\n")[0].path, exceptions::PATH);
    }
}
