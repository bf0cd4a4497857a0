//! The list of files and functions that may exceed a length: `xtask/exceptions.txt`.
//!
//! It is a ratchet: an entry that is no longer needed must go, so the list can only shrink without a review.

use super::Finding;
use super::tree::Tree;

pub(super) const PATH: &str = "xtask/exceptions.txt";

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Exception {
    /// `file <path>: <reason>`
    File { path: String },
    /// `fn <path> <name> <lines>: <reason>`
    Function { path: String, name: String, lines: usize },
}

/// The entries with their line numbers, and what is wrong with the other lines.
pub(super) fn read(tree: &Tree) -> (Vec<(usize, Exception)>, Vec<Finding>) {
    let mut entries = Vec::new();
    let mut findings = Vec::new();
    let text = tree.get(PATH).map_or("", |file| &file.text);
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim().is_empty() || content.starts_with('#') {
            continue;
        }
        match parse(content) {
            Some(entry) => entries.push((line, entry)),
            None => findings.push(Finding::new(
                PATH,
                line,
                "expected `file <path>: <reason>` or `fn <path> <name> <lines>: <reason>`",
            )),
        }
    }
    (entries, findings)
}

fn parse(line: &str) -> Option<Exception> {
    let (subject, reason) = line.split_once(": ")?;
    if reason.trim().is_empty() {
        return None;
    }
    let words: Vec<&str> = subject.split_whitespace().collect();
    match words[..] {
        ["file", path] => Some(Exception::File { path: path.to_owned() }),
        ["fn", path, name, lines] => Some(Exception::Function {
            path: path.to_owned(),
            name: name.to_owned(),
            lines: lines.parse().ok()?,
        }),
        _ => None,
    }
}

/// Reports lines that are no entries; what the entries say is checked where the lengths are.
pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    read(tree).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_need_a_reason() {
        let text =
            "# comment\n\nfile a.rs: one table\nfn a.rs B::c 90: a decoder\nfile b.rs\nfn a.rs c x: y\n";
        let tree = Tree::of(&[(PATH, text)]);
        let (entries, findings) = read(&tree);
        assert_eq!(entries[0], (3, Exception::File { path: "a.rs".into() }));
        let function = Exception::Function { path: "a.rs".into(), name: "B::c".into(), lines: 90 };
        assert_eq!(entries[1], (4, function));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5, 6]);
    }
}
