//! Leftovers of work in progress: marks, and deferred work without an owner (STYLE.md rule 16).
//!
//! Whole lines are searched, strings included, because a mark in a message is a leftover too. This file spells the marks in
//! halves.

use super::Finding;
use super::tree::Tree;

const MARKS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];
const DEFERRED: &str = concat!("TO", "DO");

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| is_code(&file.path)) {
        for (line, text) in (1..).zip(file.text.lines()) {
            for mark in MARKS {
                if words(text, mark).next().is_some() {
                    findings.push(Finding::new(&file.path, line, format!("leftover {mark}")));
                }
            }
            if words(text, DEFERRED).any(|rest| !has_owner_and_condition(rest)) {
                let message = format!("write `{DEFERRED}(owner or document): condition for doing it`");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

fn is_code(path: &str) -> bool {
    let extension = std::path::Path::new(path).extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "toml" | "sh" | "yml" | "yaml")) || path.starts_with(".ci/")
}

/// The text after each place where `word` stands alone in `text`.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).filter_map(move |(at, _)| {
        let rest = &text[at + word.len()..];
        let alone = !text[..at].ends_with(is_part) && !rest.starts_with(is_part);
        alone.then_some(rest)
    })
}

fn has_owner_and_condition(rest: &str) -> bool {
    let parts = rest.strip_prefix('(').and_then(|rest| rest.split_once("): "));
    parts.is_some_and(|(owner, condition)| !owner.trim().is_empty() && !condition.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let text = text.replace("FIX_ME", MARKS[0]).replace("LATER", DEFERRED);
        find(&Tree::of(&[("a.rs", &text)])).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn marks_are_leftovers() {
        assert_eq!(lines("// FIX_ME\n// aFIX_ME\n// FIX_ME: x\n"), [1, 3]);
    }

    #[test]
    fn deferred_work_names_owner_and_condition() {
        assert!(lines("// LATER(docs/papers.md): when SPDK lands.\n// LATERS\n").is_empty());
        assert_eq!(lines("// LATER\n// LATER: x\n// LATER(): x\n// LATER(a):\n"), [1, 2, 3, 4]);
    }
}
