//! Function length: a soft cap of 70 lines with a list of exceptions that may only shrink (STYLE.md rule 8).
//!
//! A listed function may not grow beyond its listed length; when it has become shorter by [`SLACK_LINES`] or more, or
//! has gone, the entry must follow. Test functions do not count.

use super::Finding;
use super::exceptions::{self, Exception};
use super::functions::functions;
use super::tree::Tree;

/// The cap, taken from what the tidiest storage engines keep to in 95 to 99 of 100 functions.
const LINES_MAX: usize = 70;
/// How much shorter than listed a function may become before its entry must be lowered; arbitrary, so that a line
/// less in passing needs no second edit.
const SLACK_LINES: usize = 10;

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let entries = exceptions::read(tree).0;
    let mut used = vec![false; entries.len()];
    let mut findings = Vec::new();
    for file in tree.with_extension("rs").filter(|file| !file.is_test()) {
        for function in functions(file.tokens()).into_iter().filter(|function| !function.in_test) {
            let entry = entries.iter().position(|(_, entry)| {
                matches!(entry, Exception::Function { path, name, .. }
                    if *path == file.path && *name == function.name)
            });
            let allowed = match entry.map(|at| (&entries[at], &mut used[at])) {
                Some(((line, Exception::Function { lines, .. }), used)) => {
                    *used = true;
                    findings.extend(stale(*line, &function.name, function.length, *lines));
                    *lines
                }
                _ => LINES_MAX,
            };
            if function.length > allowed {
                let message = format!(
                    "`{}` has {} lines, {allowed} are allowed; move work into functions it calls",
                    function.name, function.length
                );
                findings.push(Finding::new(&file.path, function.line, message));
            }
        }
    }
    for ((line, entry), used) in entries.iter().zip(used) {
        if let (Exception::Function { path, name, .. }, false) = (entry, used) {
            let message = format!("`{name}` is no longer in {path}; remove the line");
            findings.push(Finding::new(exceptions::PATH, *line, message));
        }
    }
    findings
}

fn stale(line: usize, name: &str, length: usize, listed: usize) -> Option<Finding> {
    let message = if length <= LINES_MAX {
        format!("`{name}` has {length} lines and needs no exception any more; remove the line")
    } else if length + SLACK_LINES <= listed {
        format!("`{name}` has {length} lines now; lower its entry from {listed}")
    } else {
        return None;
    };
    Some(Finding::new(exceptions::PATH, line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: usize, exceptions: &str) -> Vec<String> {
        let text = format!("impl A {{\nfn b() {{{}}}\n}}\n", "\n".repeat(lines - 1));
        let tree = Tree::of(&[("a.rs", &text), (exceptions::PATH, exceptions)]);
        find(&tree).into_iter().map(|finding| format!("{}:{}", finding.path, finding.message)).collect()
    }

    #[test]
    fn seventy_lines_are_enough() {
        assert!(found(70, "").is_empty());
        assert!(found(71, "")[0].starts_with("a.rs:`A::b` has 71 lines"));
    }

    #[test]
    fn a_listed_function_may_not_grow() {
        assert!(found(80, "fn a.rs A::b 80: a decoder\n").is_empty());
        assert!(found(81, "fn a.rs A::b 80: a decoder\n")[0].contains("80 are allowed"));
    }

    #[test]
    fn the_list_follows_the_function_down() {
        assert!(found(81, "fn a.rs A::b 90: x\n").is_empty());
        assert!(found(80, "fn a.rs A::b 90: x\n")[0].contains("lower its entry"));
        assert!(found(70, "fn a.rs A::b 75: x\n")[0].contains("remove"));
        assert!(found(20, "fn a.rs A::gone 90: x\n")[0].contains("no longer"));
    }

    #[test]
    fn test_functions_are_free() {
        let text = format!("#[cfg(test)]\nmod tests {{\nfn b() {{{}}}\n}}\n", "\n".repeat(100));
        assert!(find(&Tree::of(&[("a.rs", &text)])).is_empty());
    }
}
