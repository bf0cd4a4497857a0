//! File length: a source has at most 500 lines (STYLE.md rule 7).
//!
//! Test code does not count, neither test files nor test items within a source.

use super::Finding;
use super::tokens::Token;
use super::tree::{SourceFile, Tree};

const LINES_MAX: usize = 500;

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let sources = tree.with_extension("rs").filter(|file| !file.is_test());
    let too_long = sources.filter(|file| code_length(file) > LINES_MAX);
    too_long
        .map(|file| {
            let length = code_length(file);
            let message = format!("{length} lines without tests; split it (the limit is {LINES_MAX})");
            Finding::new(&file.path, 1, message)
        })
        .collect()
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

    #[test]
    fn tests_do_not_count() {
        for (lines, tests, findings) in [(500, 3000, 0), (501, 0, 1)] {
            let text = format!("{}#[cfg(test)]\nmod tests {{{}}}\n", "\n".repeat(lines), "\n".repeat(tests));
            assert_eq!(find(&Tree::of(&[("a.rs", &text)])).len(), findings);
        }
    }
}
